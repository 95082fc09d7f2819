"""What a figure found: tables to draw and to keep, lines for the summary, and what must be said on its face."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments.tables import Table


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary: what someone published, what we found, and one honest sentence on the difference."""

    what: str
    published: float | str | None
    ours: float | str | None
    remark: str
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over published, where both are numbers."""
        if isinstance(self.published, int | float) and isinstance(self.ours, int | float) and self.published:
            return self.ours / self.published
        return None


@dataclass(frozen=True, slots=True)
class Findings:
    """All that one figure brought.

    `notes` stand on the figure's face; `unfinished` are runs stopped at their time limit; `problems` are inputs that
    could not be used: the figure is drawn without them, and the command says so.
    """

    table: Table
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    others: Mapping[str, Table] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
