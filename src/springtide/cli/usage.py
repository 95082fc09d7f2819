"""`springtide usage`: who has used how much, what it cost, and which promises were kept."""

from enum import StrEnum

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_fitting
from springtide.cli.text_tables import TextTable

LEGEND = "KEPT and MISSED count promises of jobs that have ended"


class By(StrEnum):
    """What usage is added up by."""

    USER = "user"
    PROJECT = "project"
    JOB = "job"


def run(
    by: By = typer.Option(By.USER, "--by", help="Add up by user, project or job."),
    since: str = typer.Option("7d", "--since", metavar="SPAN", help="How far back to count."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show device-hours, money and promises kept; an admin sees everybody's, others their own.

    Money is shown where server.yaml has a price: `price_per_device_hour`, or `prices` by device type.

    Examples:

      springtide usage

      springtide usage --by project --since 30d -o json
    """
    from springtide.core.durations import parse_span

    parse_span(since, "--since")
    with connect() as client:
        lines = client.usage(str(by), since)
    if output.write({"schema": 1, "by": str(by), "usage": [one.document for one in lines]}):
        return
    if not lines:
        print(f"nothing was used in the last {since}")
        return
    rows = [
        (one.name, f"{one.device_h:.2f}", "-" if one.usd is None else f"{one.usd:.2f}", str(one.kept), str(one.missed))
        for one in lines
    ]
    headings = (str(by).upper(), "DEVICE-HOURS", "USD", "KEPT", "MISSED")
    print_fitting(TextTable(headings, rows, ranks=(1, 2, 5, 3, 4)), LEGEND)
