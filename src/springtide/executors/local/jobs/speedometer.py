"""The speed of a running job from the instants at which its steps were heard of. Pure: the clock is an argument.

Time outside steps (evaluation, checkpoints, the user's code between epochs) is measured by the training runtime and
taken off the time between two steps.
"""

from dataclasses import dataclass, field
from statistics import median

#: Intervals kept for the typical step; enough for a median, few enough to follow a change.
KEPT = 64


@dataclass
class Speedometer:
    """Steps heard of since the processes started."""

    step: int = 0
    heard_s: float | None = None
    #: Longest time between two steps, whatever lay between them.
    longest_gap_s: float = 0.0
    outside_s: float = 0.0
    #: Of that, since the last step.
    outside_now_s: float = 0.0
    intervals_s: list[float] = field(default_factory=list)
    #: Since the last report: steps, and the seconds they took.
    steps: int = 0
    inside_s: float = 0.0

    @property
    def step_s(self) -> float:
        """The typical seconds per step; 0 before the second step."""
        return median(self.intervals_s) if self.intervals_s else 0.0

    def note(self, step: int, now_s: float) -> None:
        """Hear of a step; several may have passed since the last."""
        if self.heard_s is not None and step > self.step:
            gap_s = now_s - self.heard_s
            inside_s = max(0.0, gap_s - self.outside_now_s)
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
            self.steps += step - self.step
            self.inside_s += inside_s
            self.intervals_s = [*self.intervals_s[-KEPT + 1 :], inside_s / (step - self.step)]
        self.step, self.heard_s, self.outside_now_s = step, now_s, 0.0

    def note_outside(self, seconds: float) -> None:
        """Hear of time outside steps."""
        self.outside_s += seconds
        self.outside_now_s += seconds

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
