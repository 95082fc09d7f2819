"""Step functions of time: what plans hold, and what they leave free.

The compiled planner has arrays of its own for the same (`policies.planning.filling`); all that is not compiled uses
these.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from springtide.core.decisions import Plan


class Stretch(NamedTuple):
    """A number of devices from one instant to another."""

    start_s: float
    end_s: float
    devices: int


def list_stretches(plan: Plan, now_s: float = -inf) -> Iterator[Stretch]:
    """What a plan holds from an instant on, up to its end; stretches without devices included."""
    starts = [segment.start_s for segment in plan.segments]
    for segment, end_s in zip(plan.segments, [*starts[1:], plan.held_until_s], strict=True):
        if end_s > now_s and end_s > segment.start_s:
            yield Stretch(max(segment.start_s, now_s), end_s, segment.share)


@dataclass(slots=True)
class Timeline:
    """Free devices over time: `free[k]` from `times[k]` to `times[k + 1]`, the last for ever."""

    times: list[float]
    free: list[int]

    def walk(self) -> Iterator[Stretch]:
        """Every stretch in turn."""
        return map(Stretch, self.times, [*self.times[1:], inf], self.free)

    def take(self, plan: Plan) -> None:
        """Subtract the devices of a plan, from the beginning of this on."""
        for start_s, end_s, devices in list_stretches(plan, self.times[0]):
            if devices:
                first, last = self._cut(start_s), self._cut(end_s)
                for stretch in range(first, last):
                    self.free[stretch] -= devices

    def _cut(self, at_s: float) -> int:
        """The stretch that begins at an instant, cut there if none did."""
        position = bisect_left(self.times, at_s)
        if position == len(self.times) or self.times[position] != at_s:
            self.times.insert(position, at_s)
            self.free.insert(position, self.free[position - 1])
        return position


def leave_free(plans: Iterable[Plan], devices: int, now_s: float) -> Timeline:
    """What plans leave of so many devices from now on; less than none where they hold more."""
    timeline = Timeline([now_s], [devices])
    for plan in plans:
        timeline.take(plan)
    return timeline
