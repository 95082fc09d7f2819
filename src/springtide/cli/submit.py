"""`springtide submit`: ask for a promise."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.connections import connect_or_start
from springtide.cli.outputs import OUTPUT, OutputOption, join_answer, list_rent, say, show_time, tell
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.client.client import Client
    from springtide.client.job_folders import JobFolder
    from springtide.client.replies import ArrayInfo, JobInfo

MOST_TOLD = 5
SETTINGS = typer.Option(
    [], "--set", metavar="KEY=VALUE", help="Override a key of the file; dots reach nested keys. Repeat for more."
)
VARIABLES = typer.Option(
    [], "--env", metavar="NAME=VALUE", help="Set an environment variable of the job. Repeat for more."
)
EXIT_CODES = {"admitted": 0, "running": 0, "succeeded": 0, "failed": 1, "cancelled": 1}


def run(
    jobs: list[Path] = typer.Argument(metavar="JOB.yaml...", help="Job files; start with: springtide new"),
    deadline: str = typer.Option(None, help="Override the file's deadline: 6h, 1h30m, or a time with its zone."),
    name: str = typer.Option(None, help="Override the file's name."),
    settings: list[str] = SETTINGS,
    env: list[str] = VARIABLES,
    accept_offer: bool = typer.Option(False, "--accept-offer", help="If declined, take the nearest offer at once."),
    allow_code_change: bool = typer.Option(
        False, "--allow-code-change", help="Resume from a checkpoint in checkpoint.dir even if other code wrote it."
    ),
    wait: bool = typer.Option(True, help="Where the code must be measured first, wait for the answer."),
    output: OutputOption = OUTPUT,
) -> None:
    """Submit a job: admitted with a promise, waitlisted, or declined with what would be accepted.

    A file with a sweep makes many jobs. Of several files, those that others wait for (`after`) are submitted first.
    Exit code 0 if it is admitted, 3 if it is declined, waitlisted or not yet known, 1 if it failed.

    Examples:

      springtide submit job.yaml

      springtide submit job.yaml --set deadline=2h --set checkpoint.every=1m --env LR=0.1

      springtide submit prepare.yaml train.yaml

      springtide submit job.yaml --deadline 45m --accept-offer -o json
    """
    from springtide.client.job_folders import load_job, read_secrets
    from springtide.core.job_file_parts.job_settings import JobSettings

    changes = JobSettings(settings, env)
    folders = order_folders([load_job(job, changes, deadline=deadline, name=name) for job in jobs])
    for number, folder in enumerate(folders):
        read_secrets(folder.job)  # one that is missing is said before a server is started
        if allow_code_change:
            folders[number] = allow_other_code(folder)
        tell_withheld(folder)
    with connect_or_start() as client:
        documents, states = submit_all(client, folders, accept_offer, wait, output)
    output.write(documents[0] if len(documents) == 1 else {"schema": 1, "answers": documents})
    raise typer.Exit(max(EXIT_CODES.get(state, 3) for state in states))


def order_folders(folders: "list[JobFolder]") -> "list[JobFolder]":
    """Those that others wait for first; jobs that wait for each other in a circle are refused."""
    from springtide.core.dependencies import order_jobs

    named = {folder.job.name or f" {number}": folder for number, folder in enumerate(folders)}
    if len(named) < len(folders):
        raise InputError("two of these files have the same name; rename one, so that `after` can tell them apart")
    order = order_jobs({name: [one.job for one in folder.job.dependencies] for name, folder in named.items()})
    return [named[name] for name in order]


def submit_all(
    client: "Client", folders: "list[JobFolder]", accept_offer: bool, wait: bool, output: OutputOption
) -> "tuple[list[dict[str, Any]], list[str]]":
    """Submit jobs one after the other; returns the answers as documents, and the states of all jobs."""
    documents: list[dict[str, Any]] = []
    states: list[str] = []
    for folder in folders:
        if folder.job.sweep is None:
            with say_if_interrupted() as on_probe:
                answer = client.submit(folder, accept_offer, wait, on_probe)
            documents.append(answer.document)
            states.append(answer.state)
            if output is not OutputOption.JSON:
                print_answer(answer)
        else:
            with say_if_interrupted() as on_probe:
                array = client.submit_array(folder, accept_offer, wait, on_probe)
            documents.append(array.document)
            states += [one.state for one in array.jobs]
            if output is not OutputOption.JSON:
                print_array(array)
    return documents, states


@contextmanager
def say_if_interrupted() -> "Iterator[Callable[[JobInfo | ArrayInfo], None]]":
    """What hears that a job is probed; if Ctrl-C comes while it is, the user is told that the job goes on."""
    probed: list[JobInfo | ArrayInfo] = []

    def note(job: "JobInfo | ArrayInfo") -> None:
        probed.append(job)
        tell(f"{job.name}: measuring its speed first, with a probe of at most 15 s")

    try:
        yield note
    except KeyboardInterrupt:
        tell("")  # what is told is not to stand beside ^C
        for job in probed:
            array = " --array" if not hasattr(job, "state") else ""
            tell(f"{job.name} ({job.id}) was submitted and goes on without you")
            tell(f"see its answer with: springtide status {job.name}")
            tell(f"end it with: springtide cancel{array} {job.id}")
        if not probed:
            tell("it is not known whether the job was submitted; look with: springtide ps")
        raise


def print_array(array: "ArrayInfo") -> None:
    """What was answered to the jobs of a sweep, like answers together, and what to do next."""
    told_by_state = ("failed", "cancelled", "paused")
    counts = Counter((job.answer if job.state not in told_by_state else str(job.state)) for job in array.jobs)
    told = ", ".join(f"{count} {answer}" for answer, count in counts.items())
    say(f"{array.name} ({array.id}): an array of {array.count} jobs: {told}")
    for sentence, count in Counter(job.sentence for job in array.jobs).most_common(MOST_TOLD):
        say(f"  {count} x {sentence}")
    say(f"watch it with: springtide ps   end it with: springtide cancel --array {array.name}")


def tell_withheld(folder: "JobFolder") -> None:
    """Say which files stay here although no ignore file names them."""
    withheld = folder.list_withheld()
    if withheld:
        more = f" and {len(withheld) - MOST_TOLD} more" if len(withheld) > MOST_TOLD else ""
        tell(
            f"not sent, because it may hold secrets: {', '.join(withheld[:MOST_TOLD])}{more}; "
            f"give values by `secrets:`, or send it by a line !{withheld[0]} in .springtideignore"
        )


def allow_other_code(folder: "JobFolder") -> "JobFolder":
    """The folder with a job that may resume from checkpoints of other code, if it says where they are."""
    if folder.job.checkpoint.dir is None:
        tell("--allow-code-change has nothing to allow: without checkpoint.dir a new job starts in a folder of its own")
    checkpoint = folder.job.checkpoint.model_copy(update={"allow_code_change": True})
    return replace(folder, job=folder.job.model_copy(update={"checkpoint": checkpoint}))


def print_answer(answer: "JobInfo") -> None:
    """The answer in a few lines, and what to do next."""
    shown = answer.answer if answer.state not in ("failed", "cancelled", "paused") else answer.state
    say(f"{answer.name} ({answer.id}): {join_answer(shown, answer.sentence)}")
    for offer in answer.open_offers:
        say(f"  offer {offer.id}: {offer.sentence}")
    for line in list_rent(answer.rent):
        say(f"  {line}")
    if answer.open_offers:
        until = show_time(answer.open_offers[0].expires_at)
        say(f"take the first with: springtide accept {answer.name}   (open until {until})")
    elif shown == "admitted":
        say(f"watch it with: springtide logs -f {answer.name}   springtide why {answer.name}")
