"""`springtide submit`: ask for a promise."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect_or_start
from springtide.cli.outputs import OUTPUT, OutputOption, list_rent, say, show_time, tell

if TYPE_CHECKING:
    from springtide.client.projects import Project
    from springtide.client.replies import JobInfo

MOST_TOLD = 5
EXIT_CODES = {"admitted": 0, "running": 0, "succeeded": 0, "failed": 1, "cancelled": 1}


def run(
    job: Path = typer.Argument(metavar="JOB.yaml", help="A job file; start with: springtide new"),
    deadline: str = typer.Option(None, help="Instead of the file's: 6h, 1h30m, or a time with its zone."),
    name: str = typer.Option(None, help="Instead of the file's."),
    accept_offer: bool = typer.Option(False, "--accept-offer", help="If declined, take the nearest offer at once."),
    allow_code_change: bool = typer.Option(
        False, "--allow-code-change", help="Resume from a checkpoint in checkpoint.dir even if other code wrote it."
    ),
    wait: bool = typer.Option(True, help="Follow the probe of unknown code until the answer is there."),
    output: OutputOption = OUTPUT,
) -> None:
    """Submit a job: admitted with a promise, waitlisted, or declined with what would be accepted.

    Exit code 0 if it is admitted, 3 if it is declined, waitlisted or not yet known, 1 if it failed.

    Examples:

      springtide submit job.yaml

      springtide submit job.yaml --deadline 45m --accept-offer -o json
    """
    from springtide.client.projects import load_job, read_secrets

    project = load_job(job, deadline=deadline, name=name)
    read_secrets(project.job)  # one that is missing is said before a server is started
    if allow_code_change:
        project = allow_other_code(project)
    tell_withheld(project)
    with connect_or_start() as client:
        answer = client.submit(project, accept_offer, wait, lambda job: tell(f"{job.name}: probing"))
    if not output.write(answer.document):
        print_answer(answer)
    raise typer.Exit(EXIT_CODES.get(answer.state, 3))


def tell_withheld(project: "Project") -> None:
    """Say which files stay here although no ignore file names them."""
    withheld = project.list_withheld()
    if withheld:
        more = f" and {len(withheld) - MOST_TOLD} more" if len(withheld) > MOST_TOLD else ""
        tell(
            f"not sent, because it may hold secrets: {', '.join(withheld[:MOST_TOLD])}{more}; "
            f"give values by `secrets:`, or send it by a line !{withheld[0]} in .springtideignore"
        )


def allow_other_code(project: "Project") -> "Project":
    """The project with a job that may resume from checkpoints of other code, if it says where they are."""
    if project.job.checkpoint.dir is None:
        tell("--allow-code-change has nothing to allow: without checkpoint.dir a new job starts in a folder of its own")
    checkpoint = project.job.checkpoint.model_copy(update={"allow_code_change": True})
    return replace(project, job=project.job.model_copy(update={"checkpoint": checkpoint}))


def print_answer(answer: "JobInfo") -> None:
    """The answer in a few lines, and what to do next."""
    shown = answer.answer if answer.state not in ("failed", "cancelled") else answer.state
    say(f"{answer.name} ({answer.id}): {shown}: {answer.sentence}")
    for offer in answer.open_offers:
        say(f"  offer {offer.id}: {offer.sentence}")
    for line in list_rent(answer.rent):
        say(f"  {line}")
    if answer.open_offers:
        until = show_time(answer.open_offers[0].expires_at)
        say(f"take the first with: springtide accept {answer.name}   (open until {until})")
    elif shown == "admitted":
        say(f"watch it with: springtide logs -f {answer.name}   springtide why {answer.name}")
