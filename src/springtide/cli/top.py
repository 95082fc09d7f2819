"""`springtide top`: jobs, devices and slack, live."""

import sys
import time
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_rich
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
    from rich.live import Live

    with connect() as client:
        jobs, devices = client.jobs(), client.nodes()
        if output.write(
            {"schema": 1, "jobs": [one.document for one in jobs], "devices": [one.document for one in devices]}
        ):
            return
        if once or not sys.stdout.isatty():
            print_rich(draw(jobs, devices))
            return
        with Live(draw(jobs, devices), refresh_per_second=4) as live:
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
