"""Cells of trace files: reads rows, numbers and flags, and says what is wrong with one that cannot be read.

Which column means what belongs to the readers of each kind of trace.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

from springtide.errors import TraceError
from springtide.simulator.scenarios import Request, WorkerRequest

FLAGS = {"0": False, "false": False, "no": False, "": False, "1": True, "true": True, "yes": True}


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """Where each field stands in a row: field -> (position, column name); and the columns with speeds."""

    width: int
    positions: Mapping[str, tuple[int, str]]
    speeds: tuple[tuple[int, int], ...] = ()  # (share, position)

    def cell(self, cells: Sequence[str], field: str) -> tuple[str, str]:
        """(column name, text) of a field; an absent column reads as empty."""
        position, name = self.positions.get(field, (-1, field))
        return name, cells[position].strip() if position >= 0 else ""


class TraceForm(NamedTuple):
    """A naming of columns: field -> names, how a row is read, and whether several rows may have one name.

    Where the times are those of a calendar, a trace begins at 0 (`from_zero`).
    """

    columns: Mapping[str, tuple[str, ...]]
    read: Callable[[CsvHeader, Sequence[str], int], Request | WorkerRequest]
    repeats: bool = False
    from_zero: bool = False


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row that is not blank, the header first."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except OSError as error:
        raise TraceError(f"trace {path}: cannot be opened ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"trace {path}: is not a CSV text file ({error})") from None


def positive(value: float) -> str:
    """What is wrong with a number that must be positive; empty if nothing is."""
    return "" if 0 < value < inf else "must be a positive number"


def not_negative(value: float) -> str:
    """What is wrong with a number of seconds; empty if nothing is."""
    return "" if 0 <= value < inf else "must be a number of seconds, 0 or more"


def read_number(column: str, text: str, rule: Callable[[float], str]) -> float:
    """The number in a cell that keeps a rule."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    broken = rule(value)
    if broken:
        raise TraceError(f"{column} {text!r} {broken}")
    return value


def read_count(column: str, text: str, default: int | None = None) -> int:
    """The whole number in a cell, 1 or more; the default where it is empty."""
    if not text and default is not None:
        return default
    value = read_number(column, text, positive_whole)
    return int(value)


def positive_whole(value: float) -> str:
    """What is wrong with a count; empty if nothing is."""
    return "" if isfinite(value) and value >= 1 and value == int(value) else "must be a whole number, 1 or more"


def read_text(column: str, text: str) -> str:
    """The name in a cell."""
    if not text:
        raise TraceError(f"{column} is empty; it must name a model")
    return text
