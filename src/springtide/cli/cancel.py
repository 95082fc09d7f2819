"""`springtide cancel`: end jobs for good; the last checkpoint of each stays."""

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption


def run(
    jobs: list[str] = typer.Argument(metavar="JOB...", help="Ids, names, or the beginning of either."),
    output: OutputOption = OUTPUT,
) -> None:
    """End jobs for good; the last checkpoint of each stays.

    Example:

      springtide cancel digits-cnn
    """
    with connect() as client:
        found = [client.cancel(job) for job in jobs]
    if output.write({"schema": 1, "jobs": [one.document for one in found]}):
        return
    for one in found:
        print(f"{one.name} ({one.id}): {one.state}: {one.sentence}")
