"""`springtide resume`: let a paused, cancelled or failed job go on from its last checkpoint."""

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption


def run(
    jobs: list[str] = typer.Argument(metavar="JOB...", help="Ids, names, or the beginning of either."),
    output: OutputOption = OUTPUT,
) -> None:
    """Let a paused, cancelled or failed job go on from its last checkpoint.

    Example:

      springtide resume digits-cnn
    """
    with connect() as client:
        found = [client.resume(job) for job in jobs]
    if output.write({"schema": 1, "jobs": [one.document for one in found]}):
        return
    for one in found:
        print(f"{one.name} ({one.id}): {one.state}: {one.sentence}")
