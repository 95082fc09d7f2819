"""`springtide accept`, `cancel`, `resume`, `hold` and `release`: the verbs that change jobs."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import complete_job, connect
from springtide.cli.job_table import JobFilter
from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OUTPUT, OutputOption, join_answer, say, tell
from springtide.cli.submit import EXIT_CODES, print_answer
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.client.replies import ArrayInfo, JobInfo

ARRAY = typer.Option(False, "--array", help="Take the names or ids as those of arrays: act on all jobs of each.")
JOBS = typer.Argument(metavar="JOB...", help="Ids, names, or the beginning of either.", autocompletion=complete_job)


def accept(
    job: str = typer.Argument(
        metavar="JOB", help="An id, a name or the beginning of one.", autocompletion=complete_job
    ),
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
    jobs: list[str] = typer.Argument(
        None, metavar="[JOB]...", help="Ids, names, or the beginning of either.", autocompletion=complete_job
    ),
    array: bool = ARRAY,
    everything: bool = typer.Option(False, "--all", help="All active jobs that match --user, --state and --label."),
    chosen: JobFilter = JobFilter(),  # noqa: B008
    yes: bool = typer.Option(False, "-y", "--yes", help="With --all: do not ask."),
    output: OutputOption = OUTPUT,
) -> None:
    """End jobs; the last checkpoint of each that has one stays, and `springtide resume` goes on from it.

    Examples:

      springtide cancel digits-cnn

      springtide cancel --array learning-rates

      springtide cancel --all --label paper=iclr --yes
    """
    check_choice(jobs or [], everything, chosen)
    with connect() as client:
        refs = [job.id for job in chosen.find(client, False, None)] if everything else jobs
        if everything and refs and not yes:
            confirm(f"cancel {len(refs)} active jobs?")
        ended = change_all(refs, client.cancel, client.cancel_array if array else None)
    show_jobs(ended, output)
    if not refs:
        tell("no active job matches")
    cancelled = [job for job in ended if job.state == "cancelled"]
    if cancelled and output is not OutputOption.JSON:
        tell_way_back(cancelled, jobs if array else None)


def tell_way_back(cancelled: list["JobInfo"], arrays: list[str] | None) -> None:
    """How jobs that were just ended go on: arrays as such, jobs by names that are theirs alone, or by ids."""
    named = f"--array {' '.join(arrays)}" if arrays else " ".join(job.ref or job.id for job in cancelled)
    from_there = "go on from the last checkpoint" if all(job.has_saved for job in cancelled) else "let them go on"
    say(f"{from_there} with: springtide resume {named}")


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


def hold(jobs: list[str] = JOBS, array: bool = ARRAY, output: OutputOption = OUTPUT) -> None:
    """Let jobs wait until they are released; one that runs is checkpointed and gives its devices back.

    Examples:

      springtide hold digits-cnn

      springtide hold --array learning-rates
    """
    with connect() as client:
        show_jobs(change_all(jobs, client.hold, client.hold_array if array else None), output)


def release(jobs: list[str] = JOBS, array: bool = ARRAY, output: OutputOption = OUTPUT) -> None:
    """Let held jobs go.

    Examples:

      springtide release digits-cnn

      springtide release --array learning-rates
    """
    with connect() as client:
        show_jobs(change_all(jobs, client.release, client.release_array if array else None), output)


def resume(jobs: list[str] = JOBS, array: bool = ARRAY, output: OutputOption = OUTPUT) -> None:
    """Let paused, cancelled or failed jobs go on from their last checkpoints; one that has none starts again.

    Of several jobs of one name the newest that can be resumed is meant.

    Examples:

      springtide resume digits-cnn

      springtide resume --array learning-rates
    """
    with connect() as client:
        show_jobs(change_all(jobs, client.resume, client.resume_array if array else None), output)


def change_all(
    names: list[str], change: "Callable[[str], JobInfo]", change_array: "Callable[[str], ArrayInfo] | None"
) -> list["JobInfo"]:
    """What becomes of jobs, or of all jobs of arrays."""
    if change_array is None:
        return [change(name) for name in names]
    return [job for name in names for job in change_array(name).jobs]


def show_jobs(jobs: list["JobInfo"], output: OutputOption) -> None:
    """What has become of jobs, a line each."""
    if not output.write({"schema": 1, "jobs": [job.document for job in jobs]}):
        for job in jobs:
            say(f"{job.name} ({job.id}): {join_answer(job.state, job.sentence)}")
