"""`springtide why`: one sentence on where a job stands."""

import typer

from springtide.cli.connections import choose_job, connect
from springtide.cli.outputs import OUTPUT, Output, write_json


def run(
    job: str = typer.Argument(None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest."),
    output: Output = OUTPUT,
) -> None:
    """Say why a job is where it is: waiting, running, in danger, declined or ended.

    Example:

      springtide why digits-cnn
    """
    with connect() as client:
        told = client.why(choose_job(client, job))
    if output is Output.JSON:
        write_json(told)
        return
    print(f"{told['name']} is {told['state']} [{told['reason']}]: {told['sentence']}")
    for fact in told["facts"]:
        print(f"  - {fact}")
    if told["remedy"]:
        print(f"  try: {told['remedy']}")
