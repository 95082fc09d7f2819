"""`springtide receipt`: what a finished job has trained, by bits."""

import json
from pathlib import Path
from typing import Any

import typer

from springtide.cli.connections import choose_job, complete_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_table, write_text
from springtide.errors import InputError

SHOWN_DIGITS = 16


def run(
    job: str = typer.Argument(
        None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.", autocompletion=complete_job
    ),
    out: Path = typer.Option(None, metavar="FILE", help="Write the receipt there, as JSON."),
    check: Path = typer.Option(
        None, metavar="FILE", help="Ask the server whether it has sealed this receipt; 1 if not."
    ),
    output: OutputOption = OUTPUT,
) -> None:
    """Show the receipt of a job that has succeeded: code, data, environment, seed, digests of its state, weights.

    The seal says that this server wrote it; whether the bits are right is proved by training them again:
    springtide verify --receipt FILE.

    Examples:

      springtide receipt digits-cnn --out receipt.json

      springtide receipt --check receipt.json
    """
    if check is not None:
        check_seal(check, output)
    with connect() as client:
        receipt = client.receipt(client.job(choose_job(client, job)).id)
    if out is not None:
        write_text(json.dumps(receipt, indent=1) + "\n", str(out))
    if not output.write(receipt):
        show(receipt)
        if out is not None:
            print(f"\nwritten to {out}; train it again with: springtide verify --receipt {out}")


def check_seal(file: Path, output: OutputOption) -> None:
    """Say whether the server has written a receipt, and end."""
    from springtide.core.receipt_format import read_receipt

    if not file.is_file():
        raise InputError(f"receipt {file} does not exist; give the file that springtide receipt --out wrote")
    receipt = read_receipt(file.read_text(encoding="utf-8"), str(file))
    with connect() as client:
        sealed = client.was_sealed_here(receipt)
        url = client.url
    if not output.write({"schema": 1, "receipt": str(file), "sealed_here": sealed}):
        print(f"{file} {'was' if sealed else 'was NOT'} sealed by the server at {url}; its digest and chain are right")
    raise typer.Exit(0 if sealed else 1)


def show(receipt: dict[str, Any]) -> None:
    """A receipt for people."""
    head, last = receipt["chain"][0], receipt["chain"][-1]
    facts, environment = head["facts"], head["environment"]
    links = [line for line in receipt["chain"] if "state" in line]
    rows = (
        ("job", f"{receipt['job']['name']} ({receipt['job']['id']}), {' '.join(receipt['job']['run'])}"),
        ("code", f"archive {receipt['code_archive'][:SHOWN_DIGITS]}, script {facts['code'][:SHOWN_DIGITS]}"),
        ("data", f"{head['data'] or 'no fingerprint was given'}; {facts['samples']} samples"),
        ("on", f"{environment['device']}, {environment['processor']}, torch {environment['torch']}"),
        ("run", f"{facts['logical_workers']} logical workers, seed {facts['seed']}, level {facts['level']}"),
        ("chain", f"{len(links)} links, last of step {last['step']}: {last['chain'][:SHOWN_DIGITS]}"),
        ("weights", f"step {receipt['final']['step']}: {receipt['final']['weights_sha256'] or 'none'}"),
        ("digest", receipt["digest"]),
        ("seal", f"{receipt['seal']['algorithm']}, key {receipt['seal']['key']}"),
    )
    print_table(("", ""), rows)
