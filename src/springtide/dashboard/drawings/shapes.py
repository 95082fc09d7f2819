"""What is drawn on an axis: bars, marks, flags and whiskers, as plain values in per cent across and pixels down."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from springtide.dashboard.drawings.axis import LEAST_WIDTH, Axis


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Some devices from one instant to another."""

    x: float
    width: float
    y: float
    height: float
    share: float
    title: str = ""
    job: str = ""
    tone: str = ""
    shade: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at an instant."""

    x: float
    kind: str
    title: str
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Whisker:
    """From when a job is expected to end to when it ends at the latest that its promise counts on."""

    x: float
    end_x: float
    is_beyond: bool
    title: str
    #: Whether even the expected end is further ahead.
    is_all_beyond: bool = False


def draw_steps(steps: Sequence[tuple[float, float]], end_s: float, axis: Axis, room: float, most: int) -> list[TimeBar]:
    """Bars for (instant, share) pairs up to an end, standing on a ground `room` pixels down."""
    bars = []
    for (start_s, share), (stop_s, _) in pairwise([*steps, (end_s, 0)]):
        x, end_x = axis.x(start_s), axis.x(stop_s)
        if share > 0 and end_x - x >= LEAST_WIDTH:
            height = find_height(share, room, most)
            bars.append(TimeBar(x, round(end_x - x, 3), room - height, height, share))
    return bars


def find_height(share: float, room: float, most: int) -> float:
    """The height of a share, in proportion; the least one can be seen."""
    return round(max(5.0, room * share / max(1, most)), 1)


def clip_steps(steps: Iterable[tuple[float, int]], from_s: float) -> list[tuple[float, int]]:
    """The pairs from an instant on; the first says what holds there."""
    listed = list(steps)
    before = [(from_s, share) for at_s, share in listed if at_s <= from_s][-1:]
    return [*before, *((at_s, share) for at_s, share in listed if at_s > from_s)]
