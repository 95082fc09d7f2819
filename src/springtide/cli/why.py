"""`springtide why`: one sentence on where a job stands."""

from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, list_rent

if TYPE_CHECKING:
    from springtide.client.replies import WhyInfo


def run(
    job: str = typer.Argument(None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest."),
    output: OutputOption = OUTPUT,
) -> None:
    """Say why a job is where it is: waiting, running, in danger, declined or ended.

    Example:

      springtide why digits-cnn
    """
    with connect() as client:
        told = client.why(choose_job(client, job))
    if not output.write(told.document):
        print_explanation(told)


def print_explanation(told: "WhyInfo") -> None:
    """The sentence, the facts behind it, and what to do."""
    reason = f", {told.reason}" if told.reason not in ("", told.state) else ""
    print(f"{told.name} ({told.state}{reason}): {told.sentence}")
    for fact in (*told.facts, *list_rent(told.rent)):
        print(f"  - {fact}")
    if told.remedy:
        print(f"  try: {told.remedy}")
