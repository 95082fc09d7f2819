"""`springtide why`: one sentence on where a job stands."""

from typing import Any

import typer

from springtide.cli.connections import choose_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, show_rent, write_json


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
    if output is OutputOption.JSON:
        write_json(told)
    else:
        print_explanation(told)


def print_explanation(told: dict[str, Any]) -> None:
    """The sentence, the facts behind it, and what to do."""
    reason = f", {told['reason']}" if told["reason"] not in ("", told["state"]) else ""
    print(f"{told['name']} ({told['state']}{reason}): {told['sentence']}")
    for fact in told["facts"]:
        print(f"  - {fact}")
    rent = show_rent(told)
    if rent is not None:
        print(f"  - {rent}")
    if told["remedy"]:
        print(f"  try: {told['remedy']}")
