"""Tables that fit a width: columns that matter least are left out, and what stays is never cut or broken."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

GAP = 2
#: The rank of a column that is there however wide it is.
ALWAYS = 1


@dataclass(frozen=True)
class TextTable:
    """Rows of cells under headings, and how much each column matters where there is little room."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    ranks: Sequence[int]

    @cached_property
    def widths(self) -> list[int]:
        """How wide each column is."""
        return [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]

    def fit(self, width: int) -> "TextTable":
        """The columns for which there is room, taken in the order of their ranks."""
        kept: set[int] = set()
        left = width + GAP
        for column in sorted(range(len(self.headings)), key=lambda one: self.ranks[one]):
            needed = self.widths[column] + GAP
            if needed <= left or self.ranks[column] == ALWAYS:
                kept.add(column)
                left -= needed

        def choose(cells: Sequence[str]) -> list[str]:
            return [cell for column, cell in enumerate(cells) if column in kept]

        ranks = [rank for column, rank in enumerate(self.ranks) if column in kept]
        return TextTable(choose(self.headings), [choose(row) for row in self.rows], ranks)

    def draw(self) -> Iterator[str]:
        """The headings, and a line for each row."""
        for row in (self.headings, *self.rows):
            cells = (cell.ljust(width) for cell, width in zip(row, self.widths, strict=True))
            yield (" " * GAP).join(cells).rstrip()
