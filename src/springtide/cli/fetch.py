"""`springtide fetch`: weights and checkpoints of a job, brought here."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, complete_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_table, say, show_size, tell

if TYPE_CHECKING:
    from springtide.client.client import Client
    from springtide.client.fetching import Fetched
    from springtide.client.replies import CheckpointInfo

TELL_EVERY_S = 2.0


class TransferReporter:
    """Tells on stderr how much has come, every few seconds."""

    def __init__(self) -> None:
        self.bytes = 0
        self.told_s = time.monotonic()

    def add(self, count: int) -> None:
        """Count a piece."""
        self.bytes += count
        if time.monotonic() - self.told_s >= TELL_EVERY_S:
            self.told_s = time.monotonic()
            tell(f"{self.bytes / 1e6:.0f} MB")


def run(
    job: str = typer.Argument(
        None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.", autocompletion=complete_job
    ),
    paths: list[str] = typer.Argument(
        None,
        metavar="[PATH]...",
        help="Files, folders or patterns as `springtide ls` shows them, instead of the weights.",
    ),
    outputs: bool = typer.Option(False, "--outputs", help="All that it wrote to $SPRINGTIDE_OUTPUT."),
    logs: bool = typer.Option(False, "--logs", help="What every process printed, and what run.log recorded."),
    checkpoint: int = typer.Option(
        None, min=0, metavar="STEP", help="Default: the newest; of a finished job, its result."
    ),
    out: Path = typer.Option(None, metavar="DIR", help="Where to put it. Default: a folder with the job's name."),
    whole: bool = typer.Option(False, "--whole", help="The whole checkpoint, to resume from, not the weights alone."),
    list_: bool = typer.Option(False, "--list", help="Only list the checkpoints that are there."),
    output: OutputOption = OUTPUT,
) -> None:
    """Bring the weights of a job here, as safetensors that load_state_dict takes; their hash is checked.

    With paths, --outputs or --logs, these files instead. A transfer that broke off goes on where it did when the same
    command is given again. Works from any machine that reaches the server (SPRINGTIDE_URL, SPRINGTIDE_TOKEN).

    Examples:

      springtide fetch digits-cnn

      springtide fetch digits-cnn 'output/*.png' --logs

      springtide fetch digits-cnn --checkpoint 400 --whole --out resumed
    """
    with connect() as client:
        ref = client.job(choose_job(client, job)).id
        if list_:
            show_list(client, ref, output)
            return
        wanted = [*(paths or ()), *(["output"] if outputs else []), *(["logs"] if logs else [])]
        if wanted:
            show_files(ref, client.fetch_files(ref, wanted, out, TransferReporter().add), output)
            return
        fetched = client.fetch(ref, out, checkpoint, whole, TransferReporter().add)
    document = {
        "schema": 1,
        "job": fetched.job,
        "step": fetched.step,
        "folder": str(fetched.folder),
        "files": [str(file) for file in fetched.files],
    }
    if not output.write(document):
        show(fetched)


def show_files(ref: str, files: list[Path], output: OutputOption) -> None:
    """The files that have come."""
    if not output.write({"schema": 1, "job": ref, "files": [str(file) for file in files]}):
        for file in files:
            say(f"{file}  {show_size(file.stat().st_size)}")


def show_list(client: "Client", ref: str, output: OutputOption) -> None:
    """The checkpoints of a job."""
    found = client.checkpoints(ref)
    if not output.write({"schema": 1, "job": ref, "checkpoints": [one.document for one in found]}):
        rows = ((str(one.step), show_size(measure(one)), one.torch) for one in found)
        print_table(("STEP", "SIZE", "TORCH"), rows, f"{ref} has no checkpoint yet")


def measure(checkpoint: "CheckpointInfo") -> int:
    """The bytes of a checkpoint."""
    return sum(one.size for one in checkpoint.files)


def show(fetched: "Fetched") -> None:
    """What has come, and how it is used."""
    for file in fetched.files:
        print(f"{file}  {show_size(file.stat().st_size)}")
    print(
        f"step {fetched.step}; in Python: model.load_state_dict(safetensors.torch.load_file({str(fetched.weights)!r}))"
    )
