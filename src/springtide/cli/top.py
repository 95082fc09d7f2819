"""`springtide top`: jobs, devices and slack, live."""

import sys
import time
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, WIDE, OutputOption, write_json
from springtide.cli.ps import HEADINGS, show_row

if TYPE_CHECKING:
    from rich.console import Group

    from springtide.client.replies import DeviceInfo, JobInfo


def run(
    every: float = typer.Option(1.0, min=0.1, help="Seconds between looks."),
    once: bool = typer.Option(False, "--once", help="Look once and end; also where stdout is no terminal."),
    output: OutputOption = OUTPUT,
) -> None:
    """Watch jobs and devices until Ctrl-C.

    Example:

      springtide top
    """
    from rich.console import Console
    from rich.live import Live

    with connect() as client:
        if output is OutputOption.JSON:
            write_json(
                {
                    "schema": 1,
                    "jobs": [job.document for job in client.jobs()],
                    "devices": [device.document for device in client.nodes()],
                }
            )
            return
        if once or not sys.stdout.isatty():
            Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(
                draw(client.jobs(), client.nodes())
            )
            return
        with Live(draw(client.jobs(), client.nodes()), refresh_per_second=4) as live:
            while True:
                time.sleep(every)
                live.update(draw(client.jobs(), client.nodes()))


def draw(jobs: "list[JobInfo]", devices: "list[DeviceInfo]") -> "Group":
    """Devices as a line of who holds them, then the jobs."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    held = sum(device.job_name is not None for device in devices)
    line = Text(f"{held} of {len(devices)} devices held: ")
    for device in devices:
        line.append(f"[{device.job_name or ' '}]", style="green" if device.job_name else "dim")
    table = Table(*HEADINGS, box=None, header_style="bold", pad_edge=False)
    for job in jobs:
        table.add_row(*show_row(job))
    return Group(line, table)
