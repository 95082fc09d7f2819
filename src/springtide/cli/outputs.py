"""How commands show results: a table for people, or one JSON document on stdout; progress goes to stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import typer

WIDE = 160  # characters where the output is no terminal


class Output(StrEnum):
    """Forms of the result on stdout."""

    TABLE = "table"
    JSON = "json"


OUTPUT = typer.Option(Output.TABLE, "-o", "--output", help="Form of the result on stdout.")


def write_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2, allow_nan=False))


def tell(line: str) -> None:
    """A line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def show_rent(document: dict[str, Any]) -> str | None:
    """What renting would cost a declined job, in one line; None where nothing is known of it."""
    rent = document.get("rent") or {}
    if rent.get("state") not in ("offer", "none"):
        return None
    cloud = rent["plan"]["parts"][0]["cloud"]
    return f"renting {rent['sentence']} ({rent['prices']}; more: springtide plan JOB.yaml --cloud {cloud})"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], empty: str = "") -> None:
    """A plain table on stdout; `empty` where there are no rows."""
    from rich.console import Console
    from rich.table import Table

    listed = list(rows)
    if not listed and empty:
        print(empty)
        return
    table = Table(*headings, box=None, header_style="bold", pad_edge=False)
    for row in listed:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def show_seconds(seconds: float | None) -> str:
    """A span for people, or a dash."""
    from springtide.control.durations import show_span

    return "-" if seconds is None else show_span(seconds)
