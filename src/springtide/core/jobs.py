"""What a user wants done: a fixed amount of work, how fast it can go, and by when it should end.

A `Job` never changes. Where it stands is kept beside it (`core.decisions.JobView`).
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, log2
from typing import NewType

from springtide.core.curves import Curve
from springtide.core.typed_curves import Mix, TypedCurves

JobId = NewType("JobId", str)


class Purpose(StrEnum):
    """What a job's devices are for. Policies make no difference between the two."""

    TRAIN = "train"
    PROBE = "probe"  # to measure its speed, before it is answered


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds without progress whenever a job's set of devices becomes a different, non-empty one.

    pause(g) = base_s + per_doubling_s * (log2 g + 1), log2 real-valued; `start_s` is added when the job held none.
    """

    base_s: float = 0.0
    per_doubling_s: float = 0.0
    start_s: float = 0.0

    def pause_s(self, share: int, starting: bool = False) -> float:
        """The pause after a change to `share` devices."""
        pause = self.base_s + self.per_doubling_s * (log2(share) + 1.0)
        return pause + self.start_s if starting else pause

    def resumes_s(self, now_s: float, share: int, starting: bool, paused_until_s: float) -> float:
        """When a job that changes to `share` devices now makes steps again: after a full pause, begun anew.

        A change does not shorten a start-up that is under way (`paused_until_s`): it is made when that is over.
        """
        pause_over_s = now_s + self.pause_s(share, starting)
        return max(pause_over_s, paused_until_s) if self.start_s and not starting else pause_over_s


FREE = Overhead()


@dataclass(frozen=True, slots=True)
class Job:
    """Work to finish: `work` steps at the speeds of `curve`, by `deadline_s` (infinite: best effort).

    `index` is the arrival number and breaks every tie. `requested` is the share that rigid policies give. `typed` holds
    the speeds by device type where the cluster has several; `curve` is then that of the type a rigid policy gives.
    `weight` is the part of its party in fair sharing, beside those of other parties; `project` is a group of users who
    share as one.
    """

    id: JobId
    index: int
    submit_s: float
    work: float
    curve: Curve
    deadline_s: float = inf
    requested: int = 1
    overhead: Overhead = FREE
    user: str = ""
    priority: int = 0
    weight: float = 1.0
    typed: TypedCurves | None = None
    purpose: Purpose = Purpose.TRAIN
    project: str = ""

    @property
    def party(self) -> str:
        """Whose job it is in fair sharing: a project, or a user without one."""
        return f"project {self.project}" if self.project else self.user

    @property
    def best_effort(self) -> bool:
        """Whether no finish was asked for."""
        return self.deadline_s == inf

    def alone_s(self, devices: float = inf) -> float:
        """Seconds from start to finish on the best of so many devices with no one else there: start cost plus work."""
        return min(
            (
                self.overhead.pause_s(share, starting=True) + self.work / rate
                for share, rate in zip(self.curve.shares, self.curve.rates, strict=True)
                if share <= devices
            ),
            default=inf,
        )

    def alone_among_s(self, totals: Mix) -> float:
        """The same on the best mix of a whole cluster with so many devices of each type."""
        if self.typed is None:
            return self.alone_s(sum(totals.values()))
        return min(
            (
                self.overhead.pause_s(sum(mix.values()), starting=True) + self.work / rate
                for mix in self.typed.climb(totals)
                if (rate := self.typed.rate(mix)) > 0
            ),
            default=inf,
        )
