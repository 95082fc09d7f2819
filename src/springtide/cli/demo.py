"""`springtide demo`: the platform at work, in about two minutes, on this machine."""

import json
from enum import StrEnum

import typer


class Output(StrEnum):
    """Forms of the result on stdout."""

    TABLE = "table"
    JSON = "json"


def run(
    output: Output = typer.Option(Output.TABLE, "-o", "--output", help="Form of the result on stdout."),
) -> None:
    """Show what Springtide does: the same jobs under several policies, in a simulated cluster.

    Example:

      springtide demo
    """
    from springtide.cli.rehearsal import print_reports, rehearse

    reports = rehearse()
    if output is Output.JSON:
        print(json.dumps({"schema": 1, "runs": [report.to_json() for report in reports]}, indent=2))
    else:
        print_reports(reports)
