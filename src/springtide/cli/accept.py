"""`springtide accept`: take an offer."""

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption
from springtide.cli.submit import EXIT_CODES, print_answer


def run(
    job: str = typer.Argument(metavar="JOB", help="An id, a name or the beginning of one."),
    offer: str = typer.Option(None, help="Which offer. Default: the first."),
    output: OutputOption = OUTPUT,
) -> None:
    """Take an open offer of a declined job: a later deadline, or less work. It is checked once more.

    Example:

      springtide accept digits-cnn
    """
    with connect() as client:
        answer = client.accept(job, offer)
    if not output.write(answer.document):
        print_answer(answer)
    raise typer.Exit(EXIT_CODES.get(answer.state, 3))
