"""What a policy proposes beside its plans, and how cautiously: the steps that `admission` tries in turn."""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import inf
from typing import Any

from springtide.core.decisions import Answer, JobView
from springtide.core.jobs import JobId
from springtide.policies.planning.best_effort import Usage

SEATINGS = 4  # of urgent jobs that are tried before all of them wait for devices that nobody must leave


class Caution(IntEnum):
    """How much a proposal may change: each step leaves out what may have made the one before impossible to place."""

    GROW = 0  # admit newcomers and hand out spare devices
    # the same, but of those who are not promised only urgent ones make others move: see `hold_still`, `keep_held`
    STEADY = 1
    CLOSED = 2  # only follow the plans in force, as steadily
    AFRESH = 3  # admit no one, and look for other plans
    UNCHECKED = (
        4  # follow the plans in force although they do not pass the check on devices: a job ended early in between
    )
    ALONE = 5  # the same, and whoever is not promised leaves its devices, to start again a moment later where it fits
    ANYHOW = 6  # follow the plans in force, whoever must be moved

    @property
    def admits(self) -> bool:
        """Whether newcomers may be promised and spare devices handed out: never without the check on devices."""
        return self <= Caution.STEADY

    @property
    def shares_anew(self) -> bool:
        """Whether jobs that are not promised may get more than they hold, and others move for them."""
        return self is Caution.GROW

    @property
    def checks(self) -> bool:
        """Whether what is planned must be followed on devices."""
        return self not in (Caution.UNCHECKED, Caution.ALONE, Caution.ANYHOW)

    @property
    def unpromised_leave(self) -> bool:
        """Whether all who are not promised leave their devices."""
        return self is Caution.ALONE


@dataclass(frozen=True, slots=True)
class Seating:
    """How a cautious proposal seats urgent jobs: best-effort jobs that have starved, or go before one that runs.

    First nobody stops for whom there are devices by count. If a promised job would have to move, those who come after
    the urgent ones stop, too, and if that does not help, those for whom it would have to are `blocked`: one after the
    other, and after a few all of them, because each costs a proposal; they stay so in more cautious proposals.
    """

    blocked: frozenset[JobId] = frozenset()
    clears: bool = False
    refused: int = 0  # seatings before this one that others were blocked after

    def follow(self, draft: "Draft") -> "Seating | None":
        """The seating after this one was refused; None if no urgent job made a promised one move."""
        if not draft.pushing:
            return None
        if not self.clears:
            return replace(self, clears=True)
        everyone = [view.job.id for view in draft.best_effort]
        more = draft.pushing if self.refused < SEATINGS else everyone
        return Seating(self.blocked.union(more), refused=self.refused + 1)


@dataclass(slots=True)
class Draft:
    """What a policy wants to say beside the plans in the plan table."""

    answers: dict[JobId, Answer] = field(default_factory=dict)
    refused: list[JobView] = field(default_factory=list)  # of those who are declined, who gets offers
    best_effort: list[JobView] = field(default_factory=list)
    tentative: dict[JobId, JobView] = field(default_factory=dict)  # planned, but nothing is promised
    wake_at_s: float = inf
    memory: dict[str, Any] | None = None
    by_size: bool = False  # whether best-effort jobs share by `best_effort`, or start in order and grow with the others
    usage: Usage | None = None  # of the users, where several share the cluster
    tight: tuple[JobId, ...] = ()  # promised, with little slack: they grew before best-effort jobs got anything
    patience: float = 0.0  # a job grows only if it then ends earlier by more than this many pauses
    seating: Seating = field(default_factory=Seating)
    urgent: tuple[JobId, ...] = ()  # best-effort jobs that start although others must move for it
    pushing: frozenset[JobId] = frozenset()  # those of them for which promised jobs would move
