"""Tables that fit a width: columns that matter least are left out, and what stays is never cut or broken."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

GAP = 2
#: The rank of a column that is there however wide it is.
ALWAYS = 1
#: Less room than this beside a row is none for a sentence.
LEAST_TEXT = 32
INDENT = 2


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


def draw_told(table: TextTable, sentences: Sequence[str], width: int) -> Iterator[str]:
    """The rows of a table that fits a width, its headings first, each with a sentence beside it or in lines below it.

    Words are not broken: they decide whether there is room beside the rows.
    """
    beside = sum(table.widths) + GAP * len(table.widths)
    longest = max(len(word) for sentence in sentences for word in sentence.split())
    is_beside = width - beside >= max(LEAST_TEXT, longest)
    indent = beside if is_beside else INDENT
    for cells, sentence in zip(table.draw(), sentences, strict=True):
        lines = textwrap.wrap(sentence, width - indent, break_long_words=False, break_on_hyphens=False)
        if is_beside and lines:
            yield cells.ljust(indent) + lines.pop(0)
        else:
            yield cells
        yield from (" " * indent + line for line in lines)
