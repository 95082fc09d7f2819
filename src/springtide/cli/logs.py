"""`springtide logs`: what a job writes."""

import sys
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, clean_log, tell

if TYPE_CHECKING:
    from springtide.client.client import Client

EXIT_CODES = {"failed": 1, "cancelled": 1, "declined": 3}


class StepReporter:
    """Tells on stderr what `run.log` recorded since the last time, so that a quiet script can be followed too."""

    def __init__(self, client: "Client", ref: str) -> None:
        self.client = client
        self.ref = ref
        self.step = 0

    def tell(self) -> None:
        """Tell what is new."""
        for entry in self.client.metrics(self.ref, self.step):
            self.step = entry.step
            told = " ".join(f"{name}={value:.6g}" for name, value in entry.metrics.items())
            tell(f"step {self.step}: {told}")


def run(
    job: str = typer.Argument(None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest."),
    follow: bool = typer.Option(False, "-f", "--follow", help="Go on until the job has ended; Ctrl-C detaches."),
    rank: int = typer.Option(0, min=0, help="Which process of the job."),
    tail: int = typer.Option(None, "-n", "--tail", min=1, help="Only the last lines."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show what a job's process of a rank wrote. Ctrl-C detaches; the job goes on.

    With --follow the exit code is 1 if the job failed.

    Examples:

      springtide logs -f

      springtide logs digits-cnn --rank 1 --tail 50
    """
    with connect() as client:
        ref = client.job(choose_job(client, job)).id
        try:
            pieces, told, text = [], False, ""
            steps = StepReporter(client, ref) if follow and rank == 0 else None
            for text in client.logs(ref, rank, follow, tail, steps.tell if steps is not None else lambda: None):
                if output is OutputOption.JSON:
                    pieces.append(text)
                else:
                    sys.stdout.write(clean_log(text) if sys.stdout.isatty() else text)
                    sys.stdout.flush()
                told = True
            found = client.job(ref)
        except KeyboardInterrupt:
            tell(f"\ndetached; {ref} goes on. Stop it with: springtide cancel {ref}")
            raise
    output.write({"schema": 1, "job": ref, "state": found.state, "rank": rank, "text": "".join(pieces)})
    if not follow:
        if not told:
            tell(f"rank {rank} of {found.name} printed nothing; what run.log recorded: springtide logs -f {ref}")
        return
    if sys.stdout.isatty() and text and not text.endswith("\n"):
        print()
    tell(f"{found.name} {found.state}: {found.sentence}")
    raise typer.Exit(EXIT_CODES.get(found.state, 0))
