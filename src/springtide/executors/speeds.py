"""The speed of a running job from the instants at which its steps were heard of. Pure: the clock is an argument.

Time between the last step of an epoch and the first of the next is outside steps: evaluation, checkpoints and the
user's code between epochs, less the one step it also holds.
"""

from dataclasses import dataclass, field
from statistics import median

#: In-epoch intervals kept for the typical step; enough for a median, few enough to follow a change.
KEPT = 64


@dataclass
class Speedometer:
    """Steps heard of since the processes started."""

    step: int = 0
    epoch: int = 0
    heard_s: float | None = None
    #: Longest time between two steps, whatever lay between them.
    longest_gap_s: float = 0.0
    outside_s: float = 0.0
    intervals_s: list[float] = field(default_factory=list)
    #: Since the last report: steps inside epochs, and the seconds they took.
    steps: int = 0
    inside_s: float = 0.0

    @property
    def step_s(self) -> float:
        """The typical seconds per step; 0 before the second step."""
        return median(self.intervals_s) if self.intervals_s else 0.0

    def note(self, step: int, epoch: int, now_s: float) -> None:
        """Hear of a step."""
        if self.heard_s is not None:
            self.measure(now_s - self.heard_s, step - self.step, epoch != self.epoch)
        self.step, self.epoch, self.heard_s = step, epoch, now_s

    def measure(self, gap_s: float, steps: int, is_new_epoch: bool) -> None:
        """Account for the time since the last step."""
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        if is_new_epoch:
            self.outside_s += max(0.0, gap_s - self.step_s)
            return
        self.steps += steps
        self.inside_s += gap_s
        self.intervals_s = [*self.intervals_s[-KEPT + 1 :], gap_s / max(1, steps)]

    def pause(self) -> None:
        """Forget the speed so far, as after a change of devices; the next interval does not count."""
        self.heard_s = None
        self.intervals_s = []
        self.steps, self.inside_s = 0, 0.0

    def report(self) -> float | None:
        """Steps per second since the last report; None if there were no steps."""
        speed = self.steps / self.inside_s if self.inside_s > 0 else None
        self.steps, self.inside_s = 0, 0.0
        return speed
