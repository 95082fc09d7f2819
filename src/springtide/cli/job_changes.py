"""`springtide accept`, `cancel`, `resume`, `hold` and `release`: the verbs that change jobs."""

import sys
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect
from springtide.cli.job_table import JobFilter
from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OUTPUT, OutputOption, join_answer, say, tell
from springtide.cli.submit import EXIT_CODES, print_answer
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.client.replies import JobInfo

MOST_AT_ONCE = 1000
JOBS = typer.Argument(metavar="JOB...", help="Ids, names, or the beginning of either.")


def accept(
    job: str = typer.Argument(metavar="JOB", help="An id, a name or the beginning of one."),
    offer: str = typer.Option(None, help="Which offer. Default: the first."),
    output: OutputOption = OUTPUT,
) -> None:
    """Take an open offer of a declined job: a later deadline, or less work. It is checked once more.

    Example:

      springtide accept digits-cnn
    """
    with connect() as client:
        answer = client.accept(job, offer)
    if not output.write(answer.document):
        print_answer(answer)
    raise typer.Exit(EXIT_CODES.get(answer.state, 3))


@flatten
def cancel(
    jobs: list[str] = typer.Argument(None, metavar="[JOB]...", help="Ids, names, or the beginning of either."),
    array: bool = typer.Option(False, "--array", help="They are names or ids of arrays: end all jobs of each."),
    everything: bool = typer.Option(False, "--all", help="All active jobs that match --user, --state and --label."),
    chosen: JobFilter = JobFilter(),  # noqa: B008
    yes: bool = typer.Option(False, "-y", "--yes", help="With --all: do not ask."),
    output: OutputOption = OUTPUT,
) -> None:
    """End jobs; the last checkpoint of each stays, and `springtide resume` goes on from it.

    Examples:

      springtide cancel digits-cnn

      springtide cancel --array learning-rates

      springtide cancel --all --label paper=iclr --yes
    """
    check_choice(jobs or [], everything, chosen)
    with connect() as client:
        refs = [job.id for job in chosen.find(client, False, MOST_AT_ONCE)] if everything else jobs
        if everything and refs and not yes:
            confirm(f"cancel {len(refs)} active jobs?")
        ended = [one for name in refs for one in (client.cancel_array(name).jobs if array else (client.cancel(name),))]
    show_jobs(ended, output)
    if not refs:
        tell("no active job matches")
    if output is not OutputOption.JSON and any(job.state == "cancelled" for job in ended):
        names = " ".join(job.name for job in ended if job.state == "cancelled")
        say(f"go on from the last checkpoint with: springtide resume {names}")


def check_choice(jobs: list[str], everything: bool, chosen: JobFilter) -> None:
    """Refuse a command that names no jobs, or names them twice."""
    if bool(jobs) == everything:
        given = "both names and --all" if jobs else "no job"
        raise InputError(f"cancel was given {given}; give names, or --all (with --user, --state or --label for fewer)")
    if jobs and chosen != JobFilter():
        raise InputError("--user, --state and --label choose among all jobs; give them with --all")


def confirm(question: str) -> None:
    """Ask a user who can answer; a script must say --yes."""
    if not sys.stdin.isatty():
        raise InputError(f"{question} nobody can answer here; say so with --yes")
    typer.confirm(question, abort=True, err=True)


def hold(jobs: list[str] = JOBS, output: OutputOption = OUTPUT) -> None:
    """Let jobs wait until they are released; one that runs is checkpointed and gives its devices back.

    Example:

      springtide hold digits-cnn
    """
    with connect() as client:
        show_jobs([client.hold(job) for job in jobs], output)


def release(jobs: list[str] = JOBS, output: OutputOption = OUTPUT) -> None:
    """Let held jobs go.

    Example:

      springtide release digits-cnn
    """
    with connect() as client:
        show_jobs([client.release(job) for job in jobs], output)


def resume(jobs: list[str] = JOBS, output: OutputOption = OUTPUT) -> None:
    """Let a paused, cancelled or failed job go on from its last checkpoint.

    Example:

      springtide resume digits-cnn
    """
    with connect() as client:
        show_jobs([client.resume(job) for job in jobs], output)


def show_jobs(jobs: list["JobInfo"], output: OutputOption) -> None:
    """What has become of jobs, a line each."""
    if not output.write({"schema": 1, "jobs": [job.document for job in jobs]}):
        for job in jobs:
            say(f"{job.name} ({job.id}): {join_answer(job.state, job.sentence)}")
