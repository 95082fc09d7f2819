"""How commands show results: a table for people, or one JSON document on stdout; progress goes to stderr."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from springtide.cli.option_groups import option
from springtide.cli.text_tables import TextTable, draw_told
from springtide.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from rich.text import Text

    from springtide.client.replies import RentInfo

INDENT = 2
WIDE = 160  # characters where the output is not a terminal
#: What follows a colon and is to be typed.
COMMAND = re.compile(r"(\w+=\S+ |env |sudo |ssh |source |\S*/)*(springtide|pip|kill|ssh|python\d*|make|curl) ")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LOG_CODES = re.compile(r"\r|\x1b\[[0-9;]*[mK]")
PICTURES = (".png", ".pdf", ".svg")


class OutputOption(StrEnum):
    """Forms of the result on stdout."""

    TABLE = "table"
    JSON = "json"

    def write(self, document: dict[str, Any]) -> bool:
        """Print the document as JSON if that is the form; whether it is."""
        return OutputForm(self).write(document)


FORM_HELP = "Form of the result on stdout."
OUTPUT = typer.Option(OutputOption.TABLE, "-o", "--output", help=FORM_HELP)


@dataclass(frozen=True, slots=True)
class OutputForm:
    """What a report is to look like, as a group of options: `-o table|json` and `--json FILE|-`."""

    output: OutputOption = option(OutputOption.TABLE, FORM_HELP, "-o", "--output")
    json_file: str | None = option(None, "Write the result as JSON.", "--json", metavar="FILE|-")

    def write(self, document: dict[str, Any]) -> bool:
        """Write the document as JSON where that was asked for, in the file or on stdout; whether stdout has it."""
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
        if self.json_file not in (None, "-"):
            write_text(text, str(self.json_file))
        if self.is_document:
            write_text(text, "-")
        return self.is_document

    def check_writable(self) -> None:
        """Refuse a file that could not be written, before anything is run for it."""
        if self.json_file not in (None, "-"):
            check_writable(Path(str(self.json_file)), "--json")

    @property
    def is_document(self) -> bool:
        """Whether stdout is for the document alone."""
        return self.json_file == "-" or self.output is OutputOption.JSON


def write_text(text: str, target: str) -> None:
    """A text in a file, or on stdout (`-`)."""
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; give a path in a folder that exists") from None


def check_writable(file: Path, option: str) -> None:
    """Refuse a file that could not be written, before anything is run for it."""
    path = file.absolute()
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = f"folder {str(path.parent)!r} does not exist"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "you may not write there"
    else:
        return
    raise InputError(f"cannot write {file}: {why}; give {option} a file in a folder that exists and is yours")


def check_picture(path: Path, option: str = "--plot") -> None:
    """Refuse a picture that could not be written, before anything is run for it."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"picture {str(path)!r} ends in {path.suffix!r}; it must be one of {', '.join(PICTURES)}")
    check_writable(path, option)
    if find_spec("matplotlib") is None:
        raise InputError("drawing needs matplotlib; install it with: pip install 'springtide[figures]'")


def clean(text: str) -> str:
    """A text in which nothing moves a cursor, rings, renames a window or turns the writing round: told, not obeyed."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def clean_log(text: str) -> str:
    """The same for what a job prints, which may have colours, erase the end of a line and go back to its start."""
    return "".join(
        piece if LOG_CODES.fullmatch(piece) else clean(piece) for piece in re.split(f"({LOG_CODES.pattern})", text)
    )


def say(line: str) -> None:
    """A line on stdout that may hold the words of jobs and users."""
    for one in break_line(clean(line), sys.stdout):
        print(one, flush=True)


def tell(line: str) -> None:
    """A line of progress on stderr."""
    for one in break_line(clean(line), sys.stderr):
        print(one, file=sys.stderr, flush=True)


def break_line(line: str, stream: TextIO) -> list[str]:
    """A line as a terminal is to show it: broken between words, which it would not look for itself."""
    if not stream.isatty():
        return [line]
    width = shutil.get_terminal_size().columns
    return [part for one in line.split("\n") for part in (fold(one, width) if len(one) > width else [one])]


def fold(line: str, width: int) -> list[str]:
    """A long line as lines of whole words; a command at its end has one of its own, whole, so that it can be copied."""
    words, mark, command = line.rpartition(": ")
    if not mark or COMMAND.match(command) is None:
        return wrap_words(line, width)
    indent = " " * (len(line) - len(line.lstrip()) + INDENT)
    return [*wrap_words(f"{words}:", width), f"{indent}{command}"]


def wrap_words(line: str, width: int) -> list[str]:
    """Lines of whole words, those after the first a little further in."""
    indent = " " * (len(line) - len(line.lstrip()) + INDENT)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def join_answer(state: str, sentence: str) -> str:
    """A state and its sentence, in which the word is not said twice."""
    return sentence if sentence.startswith(state) else f"{state}: {sentence}"


def list_rent(rent: "RentInfo | None") -> list[str]:
    """What renting would cost a declined job, as one line; none where nothing is known of it."""
    if rent is None or rent.state not in ("offer", "none") or rent.plan is None:
        return []
    cloud = rent.plan["parts"][0]["cloud"]
    return [f"renting {rent.sentence} ({rent.prices}; more: springtide plan JOB.yaml --cloud {cloud})"]


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    empty: str = "",
    title: str | None = None,
    width: int = WIDE,
    legend: str = "",
) -> None:
    """A plain table on stdout, so wide where that is not a terminal; `empty` where there are no rows.

    In a terminal a legend says below it what its words and signs mean.
    """
    from rich.table import Table

    listed = list(rows)
    if not listed and empty:
        print(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")  # a path that is cut is of no use
    for row in listed:
        table.add_row(*make_cells(row))
    print_rich(table, width)
    tell_legend(legend)


def print_fitting(
    table: TextTable,
    legend: str | Mapping[str, str] = "",
    more: str = "in a wider window, or with -o json",
    width: int | None = None,
) -> None:
    """The columns of a table for which there is room, on stdout, and in a terminal what they mean and where more is.

    A legend by heading tells of the columns that are there.
    """
    fitting = table.fit(find_width() if width is None else width)
    for line in fitting.draw():
        print(clean(line), flush=True)
    if not isinstance(legend, str):
        legend = explain_headings(legend, fitting.headings)
    left_out = f"more columns: {more}" if len(fitting.headings) < len(table.headings) else ""
    tell_legend("; ".join(filter(None, (legend, left_out))))


def explain_headings(meanings: Mapping[str, str], headings: Iterable[str]) -> str:
    """What those of a table's headings mean that are not plain words."""
    return "; ".join(f"{heading}: {meanings[heading]}" for heading in headings if heading in meanings)


def tell_legend(legend: str) -> None:
    """What the words and signs of a table mean, below it, for people: a terminal gets it, a pipe does not."""
    if legend and sys.stdout.isatty():
        for line in textwrap.wrap(legend, find_width(), break_long_words=False, break_on_hyphens=False):
            tell(line)


def print_told(table: TextTable, sentences: Sequence[str]) -> None:
    """A table with a sentence for each line of it on stdout, the headings' first; broken into lines in a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for line in draw_told(table.fit(width), sentences, width):
        say(line)


def find_width() -> int:
    """How wide a table may be."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def make_cells(row: Iterable[str]) -> Iterator["Text"]:
    """The cells of a row that may hold the words of jobs and users: brackets in it are brackets."""
    from rich.text import Text

    return (Text(clean(cell)) for cell in row)


def print_rich(drawn: Any, width: int = WIDE) -> None:
    """Something of rich on stdout, so wide where that is not a terminal."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else width, highlight=False).print(drawn)


def show_seconds(seconds: float | None) -> str:
    """A span for people, or a dash."""
    from springtide.core.durations import show_span

    return "-" if seconds is None else show_span(seconds)


def show_time(instant: "datetime | None") -> str:
    """An instant as the API writes it, or a dash."""
    from springtide.core.durations import show_instant

    return "-" if instant is None else show_instant(instant.timestamp())


def show_size(count: int) -> str:
    """So many bytes, for people."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{count / size:.1f} {unit}" for size, unit in units if count >= size), f"{count} B")


def count_devices(count: int) -> str:
    """So many devices, in words."""
    return f"{count} device{'s' if count != 1 else ''}"
