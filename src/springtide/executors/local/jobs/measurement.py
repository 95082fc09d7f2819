"""The course of a probe: how long to measure at each share, and the points that come of it. Pure.

The bound (30 steps or 15 s after the first step, by default) is shared evenly among the shares. A share's first step
is not measured: it carries the warm-up.
"""

from dataclasses import dataclass, field

from springtide.executors.protocol import Probe, SpeedPoint


@dataclass
class ProbeMeasurement:
    """A probe under way."""

    shares: int
    max_steps: int
    max_s: float
    points: list[SpeedPoint] = field(default_factory=list)
    first_s: float | None = None
    first_step: int = 0
    last_s: float = 0.0
    last_step: int = 0
    #: When the whole probe is over at the latest; None before its first step.
    until_s: float | None = None
    #: Pause of the change to the second share.
    pause_s: float | None = None

    @property
    def share(self) -> int:
        """The share being measured, from 1."""
        return len(self.points) + 1

    def note(self, step: int, now_s: float) -> bool:
        """Hear of a step; True when this share has been measured."""
        if self.until_s is None:
            self.until_s = now_s + self.max_s
        if self.first_s is None:
            self.first_s, self.first_step = now_s, step
        self.last_s, self.last_step = now_s, step
        return step - self.first_step + 1 >= max(2, self.max_steps // self.shares)

    def is_over(self, now_s: float) -> bool:
        """Whether the time of this share is up; never before its first step."""
        return self.first_s is not None and now_s - self.first_s >= self.max_s / self.shares

    def close(self, now_s: float) -> None:
        """Keep the point of this share and begin the next.

        Without a whole step on one device its speed is at most 1/(the time waited); on more devices there is no point.
        """
        steps = self.last_step - self.first_step
        if self.first_s is None or (self.points and not steps):
            return
        seconds = self.last_s - self.first_s if steps else now_s - self.first_s
        self.points.append(SpeedPoint(self.share, steps, max(1, steps) / max(seconds, 1e-9)))
        self.first_s = None

    @property
    def is_last(self) -> bool:
        """Whether no other share is to be measured after this one."""
        return self.share >= self.shares


def make_measurement(order: Probe) -> ProbeMeasurement:
    """The measurement that a probe makes."""
    return ProbeMeasurement(min(2, len(order.devices)), order.max_steps, order.max_s)
