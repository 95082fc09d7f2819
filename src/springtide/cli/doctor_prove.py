"""`springtide doctor --prove`: try what the platform promises on this machine's devices, and write it down."""

import json
from pathlib import Path

import typer

from springtide.cli.outputs import OutputForm, check_writable, print_table, tell, write_text

SHOWN = 200
MARKS = {True: "ok", False: "failed", None: "not tried"}


def run_proofs(file: Path, form: OutputForm) -> None:
    """Try everything, write the document, show it, and end with its exit code."""
    from springtide.verification.proofs.prove import prove

    check_writable(file, "--prove")
    form.check_writable()
    tell("this takes up to ten minutes")
    proof = prove(tell)
    document = proof.to_json()
    write_text(json.dumps(document, indent=1) + "\n", str(file))
    if not form.write(document):
        rows = ((item.name, MARKS[item.ok], f"{item.seconds:.0f} s", shorten(item.seen)) for item in proof.items)
        print_table(("CHECK", "STATUS", "TOOK", "SEEN"), rows, legend="STATUS: not tried: what it needs is not here")
        where = ", ".join(proof.environment["gpus"]) or "the CPU: no GPU was found, so nothing is said of any"
        print(f"\ntried on {where}; torch {proof.environment['torch']}")
        print(f"written to {file}; please send it back in an issue, whatever it says")
    raise typer.Exit(0 if proof.ok else 1)


def shorten(text: str) -> str:
    """The beginning of a long text; the document has all of it."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ... (all of it is in the file)"
