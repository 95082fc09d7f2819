"""`springtide events`: what happened, in order."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_table, show_time

if TYPE_CHECKING:
    from springtide.client.replies import EventInfo

FOLLOW_S = 0.5
MOST_NAMES = 1000


def run(
    job: str = typer.Argument(None, metavar="[JOB]", help="An id, a name or the beginning of one. Default: all jobs."),
    follow: bool = typer.Option(False, "-f", "--follow", help="Go on until Ctrl-C."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show decisions, rescales and faults, oldest first.

    Example:

      springtide events digits-cnn
    """
    with connect() as client:
        events = client.events(job)
        if output.write({"schema": 1, "events": [one.document for one in events]}):
            return
        names = {found.id: found.name for found in client.jobs(all=True, limit=MOST_NAMES)}
        rows = ((show_time(one.at), find_name(one, names), one.kind, one.sentence) for one in events)
        print_table(("AT", "JOB", "EVENT", "WHAT HAPPENED"), rows, "nothing has happened yet")
        last = events[-1].seq if events else 0
        while follow:
            time.sleep(FOLLOW_S)
            for one in client.events(job, last):
                print(f"{show_time(one.at)} {find_name(one, names)} {one.kind}: {one.sentence}", flush=True)
                last = one.seq


def find_name(event: "EventInfo", names: Mapping[str, str]) -> str:
    """The name of the job that an event is about, its id where the name is not known, or a dash."""
    return "-" if event.job is None else names.get(event.job, event.job)
