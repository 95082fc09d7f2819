"""`springtide accept`, `cancel` and `resume`: the verbs that change jobs."""

from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, say
from springtide.cli.submit import EXIT_CODES, print_answer

if TYPE_CHECKING:
    from springtide.client.replies import JobInfo

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


def cancel(jobs: list[str] = JOBS, output: OutputOption = OUTPUT) -> None:
    """End jobs for good; the last checkpoint of each stays.

    Example:

      springtide cancel digits-cnn
    """
    with connect() as client:
        show_jobs([client.cancel(job) for job in jobs], output)


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
            say(f"{job.name} ({job.id}): {job.state}: {job.sentence}")
