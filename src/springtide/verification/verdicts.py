"""What every verdict is made of: runs compared with a reference, each the same, different or failed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Parted = TypeVar("Parted")


@dataclass(frozen=True, slots=True)
class RunOutcome(Generic[Parted]):
    """What came of one run: where it parts from the reference, if it does."""

    name: str
    difference: Parted | None
    #: The run's own error, if it failed.
    error: str | None = field(default=None, kw_only=True)

    @property
    def identical(self) -> bool:
        """Whether it ran to its end with the reference's bits on every process and at every step."""
        return self.difference is None and self.error is None

    @property
    def word(self) -> str:
        """What became of it, in a word: of a run that failed nothing was compared to its end."""
        if self.error is not None:
            return "failed"
        return "identical" if self.identical else "different"


def are_identical(outcomes: Sequence[RunOutcome[Parted]]) -> bool:
    """Whether every run is."""
    return all(outcome.identical for outcome in outcomes)
