"""`springtide verify --receipt`: train a segment of a finished job again, and say whether its receipt holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from springtide.cli.option_groups import option
from springtide.cli.outputs import OutputForm, tell
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.verification.receipt_check import ReceiptVerdict

RECEIPT = "A receipt (--receipt)"
SHOWN = 40


@dataclass(frozen=True, slots=True)
class ReceiptOptions:
    """The options of `verify --receipt`."""

    receipt: Path | None = option(
        None, "Train a finished job again, with the code of this folder.", metavar="FILE", rich_help_panel=RECEIPT
    )
    from_step: int = option(0, "Compare from this step on.", "--from", min=0, metavar="STEP", rich_help_panel=RECEIPT)
    to_step: int | None = option(
        None, "Compare up to this step. Default: the last.", "--to", min=1, metavar="STEP", rich_help_panel=RECEIPT
    )
    checkpoints: Path | None = option(
        None,
        "Begin at a checkpoint of this folder, as fetch --whole brought it; else at step 0.",
        metavar="DIR",
        rich_help_panel=RECEIPT,
    )
    tell_server: bool = option(
        False,
        "Tell the server that sealed it what came of it; the job's page shows it.",
        "--tell-server",
        rich_help_panel=RECEIPT,
    )


def verify_receipt(options: ReceiptOptions, sizes: str | None, form: OutputForm) -> NoReturn:
    """Do what the options say, show it, and end with its exit code."""
    from springtide.core.receipt_format import read_receipt
    from springtide.verification.receipt_check import check_receipt, choose_segment

    file = options.receipt
    assert file is not None, "asked for"
    if not file.is_file():
        raise InputError(f"receipt {file} does not exist; give the file that springtide receipt --out wrote")
    receipt = read_receipt(file.read_text(encoding="utf-8"), str(file))
    segment = choose_segment(receipt, options.from_step, options.to_step, options.checkpoints)
    if options.tell_server:
        check_sealed(receipt)
    verdict = check_receipt(receipt, segment, sizes or "1", tell)
    if not form.write(verdict.to_json()):
        show(str(file), verdict)
    if options.tell_server:
        tell_server(receipt, verdict)
    raise typer.Exit(0 if verdict.holds else 1)


def check_sealed(receipt: dict[str, Any]) -> None:
    """Refuse a receipt that the server will not keep a verdict of, before it is trained again."""
    from springtide.cli.connections import connect

    with connect() as client:
        if not client.was_sealed_here(receipt):
            raise InputError(
                f"the server at {client.url} did not seal this receipt; leave --tell-server out, or give the address "
                "of the one that did as SPRINGTIDE_URL"
            )


def tell_server(receipt: dict[str, Any], verdict: "ReceiptVerdict") -> None:
    """Have the server keep a verdict with the job."""
    from springtide.cli.connections import connect

    with connect() as client:
        job = client.note_verification(receipt, verdict.summarise())
        tell(f"kept with {job.name} at {client.url}")


def show(name: str, verdict: "ReceiptVerdict") -> None:
    """The verdict for people."""
    for what, (then, now) in verdict.changed_environment.items():
        print(f"environment: {what} {str(then)[:SHOWN]} -> {str(now)[:SHOWN]}")
    for what, (then, now) in verdict.changed_facts.items():
        print(f"different {what}: {str(then)[:SHOWN]} -> {str(now)[:SHOWN]}")
    if verdict.first_difference is not None:
        print(f"first difference: the state after step {verdict.first_difference}")
    count = len(verdict.compared)
    span = f"{count} digest{'s' if count != 1 else ''} from step {verdict.compared[0]} to {verdict.compared[-1]}"
    trained = f"trained again from step {verdict.segment.start}"
    print(f"{name} {'holds' if verdict.holds else 'does NOT hold'}: {span} compared, {trained}")
