"""The data behind a figure: plain tables, written as CSV so that the same inputs give the same bytes.

What differs from run to run (times, memory) is marked `measured` and goes to a file of its own, named as timing, so
that everything else can be compared byte by byte.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Cell = str | int | float | bool | None
SEPARATE = ".timing.csv"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns: the first `labels` say what a row is, `measured` ones differ from run to run."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: int = 1
    measured: frozenset[str] = frozenset()

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row by column name."""
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))

    def column(self, name: str) -> list[Any]:
        """One column's cells, in order."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], labels: int = 1, measured: Sequence[str] = ()
) -> Table:
    """A table out of plain sequences; every measured column must be one of the columns."""
    assert set(measured) <= set(columns), f"measured columns {measured} must be among {columns}"
    return Table(tuple(columns), tuple(tuple(row) for row in rows), labels, frozenset(measured))


def write_csv(table: Table) -> str:
    """What is the same in every run, as CSV."""
    return _write(table, [name for name in table.columns if name not in table.measured])


def write_timing(table: Table) -> str | None:
    """The labels and what was measured, as CSV; None where nothing was."""
    if not table.measured:
        return None
    return _write(table, [*table.columns[: table.labels], *(name for name in table.columns if name in table.measured)])


def _write(table: Table, names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    places = [table.columns.index(name) for name in names]
    for row in table.rows:
        writer.writerow([show(row[place]) for place in places])
    return text.getvalue()


def show(cell: Cell) -> str:
    """One cell as text: ten digits of a number, nothing where nothing is known."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.10g}"
    return str(cell)
