"""The axis of time that past, present and future share: instants as places from 0 (left) to 100 (right)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
#: Between ticks: the first that gives few enough of them is taken.
STEPS_S = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(MINUTE_S * count for count in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * count for count in (1, 2, 3, 6, 12)),
    *(DAY_S * count for count in (1, 2, 7, 14, 28, 91, 182, 365)),
)
MOST_TICKS = 9
LEAST_WIDTH = 0.12  # per cent: narrower bars cannot be seen
LEAST_FUTURE_S = 60.0
LEAST_PAST_S = 30.0
PAST_PART = 0.4  # of the axis at most, unless more of the past is asked for
FAR = 6.0  # times the usual horizon: one job that is due next year must not press all others into a line
USUAL = 0.8  # of the jobs are due within the usual horizon


@dataclass(frozen=True, slots=True)
class Tick:
    """A place with the time it stands for; `is_day` where a new day begins."""

    x: float
    at_s: float
    is_day: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """From when to when, and where now is."""

    start_s: float
    now_s: float
    end_s: float

    def x(self, at_s: float) -> float:
        """The place of an instant, kept on the axis."""
        part = (at_s - self.start_s) / (self.end_s - self.start_s)
        return round(100.0 * min(1.0, max(0.0, part)), 3)

    @property
    def least_s(self) -> float:
        """How long something must last to be seen."""
        return LEAST_WIDTH / 100.0 * (self.end_s - self.start_s)

    @property
    def past(self) -> "Axis":
        """An axis of the same past alone."""
        return Axis(self.start_s, self.now_s, self.now_s)

    def is_beyond(self, at_s: float) -> bool:
        """Whether an instant lies after the end."""
        return at_s > self.end_s

    @property
    def now_x(self) -> float:
        """The place of now."""
        return self.x(self.now_s)

    @property
    def ticks(self) -> list[Tick]:
        """Round times, at most nine."""
        span_s = self.end_s - self.start_s
        step_s = next((step_s for step_s in STEPS_S if span_s / step_s <= MOST_TICKS), STEPS_S[-1])
        first = floor(self.start_s / step_s) + 1
        times = [k * step_s for k in range(first, floor(self.end_s / step_s) + 1)]
        return [Tick(self.x(at_s), at_s, step_s >= DAY_S or at_s % DAY_S == 0.0) for at_s in times]


def make_axis(now_s: float, ends: Iterable[float], past_s: float | None, oldest_s: float) -> Axis:
    """An axis that shows the ends of all jobs, and of the past what was asked, or what there is in proportion."""
    horizon_s = max(LEAST_FUTURE_S, find_horizon([end_s - now_s for end_s in ends if end_s > now_s]))
    if past_s is None:
        past_s = min(max(LEAST_PAST_S, horizon_s * PAST_PART / (1 - PAST_PART)), max(LEAST_PAST_S, now_s - oldest_s))
    return Axis(now_s - past_s, now_s, now_s + 1.04 * horizon_s)


def find_horizon(spans_s: Sequence[float]) -> float:
    """How far ahead to look: as far as the last end, unless that is far beyond all others."""
    if not spans_s:
        return 15 * MINUTE_S
    ordered = sorted(spans_s)
    usual_s = ordered[min(len(ordered) - 1, int(USUAL * len(ordered)))]
    return ordered[-1] if ordered[-1] <= FAR * usual_s else 1.3 * usual_s


def show_clock(at_s: float, is_day: bool = False) -> str:
    """An instant on the axis in UTC, for readers without scripts."""
    instant = datetime.fromtimestamp(at_s, UTC)
    return instant.strftime("%a %d") if is_day else instant.strftime("%H:%M:%S" if at_s % MINUTE_S else "%H:%M")
