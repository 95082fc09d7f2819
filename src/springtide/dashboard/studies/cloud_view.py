"""Plans to rent as values that a template draws: the front of time and cost, and each plan in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

from springtide.core.durations import show_span

ROOM = 300.0  # pixels down
MARGIN = 0.06  # of the picture, left free around the points
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
#: Round spans, and those to put between them where there is room.
SPANS_S = (
    *(MINUTE_S * count for count in (1, 5, 15, 30)),
    *(HOUR_S * count for count in (1, 2, 6, 12)),
    *(DAY_S * count for count in (1, 3, 7, 30)),
)
MORE_SPANS_S = (
    *(MINUTE_S * count for count in (90, 2, 10, 20, 45, 75, 105, 150)),
    *(HOUR_S * count for count in (3, 4, 5, 8, 9, 10, 18)),
    *(DAY_S * count for count in (2, 5, 14)),
)
NEAR = 0.06  # of the picture: words closer than that would touch


@dataclass(frozen=True, slots=True)
class LogScale:
    """Positive values as places between two ends, by ratio."""

    low: float
    high: float

    def find(self, value: float) -> float:
        """From 0 to 1."""
        inside = log10(max(value, 1e-12) / self.low) / log10(self.high / self.low)
        return MARGIN + (1 - 2 * MARGIN) * min(1.0, max(0.0, inside))


@dataclass(frozen=True, slots=True)
class RentalDot:
    """A plan on the picture: per cent across, pixels down."""

    number: int
    plan: Mapping[str, Any]
    x: float
    y: float
    is_best: bool
    keeps: bool
    task: str


@dataclass(frozen=True, slots=True)
class ScaleMark:
    """A line of the picture with its words."""

    place: float
    text: str


@dataclass(frozen=True, slots=True)
class RentalView:
    """All that the template draws."""

    document: Mapping[str, Any]
    dots: list[RentalDot]
    times: list[ScaleMark]
    costs: list[ScaleMark]
    deadline: ScaleMark | None
    budget: ScaleMark | None

    @property
    def best(self) -> RentalDot | None:
        """The plan that is proposed."""
        return next((dot for dot in self.dots if dot.is_best), None)


def build_rental(document: Mapping[str, Any]) -> RentalView:
    """The view of an API's document."""
    limits, best = document["limits"], [plan["name"] for plan in document["plans"]][:1]
    plans = list_plans(document)
    times = make_scale([plan["time_s"]["value"] for plan in plans], limits["deadline_s"])
    costs = make_scale([plan["cost_usd"]["value"] for plan in plans], limits["budget_usd"])
    kept = {plan["name"] for plan in (*document["plans"], *document["front"])}
    dots = [
        RentalDot(
            number,
            plan,
            round(100 * times.find(plan["time_s"]["value"]), 2),
            round(ROOM * (1 - costs.find(plan["cost_usd"]["value"])), 1),
            plan["name"] in best,
            plan["name"] in kept,
            document["tasks"].get(plan["name"], ""),
        )
        for number, plan in enumerate(plans)
    ]
    return RentalView(
        document,
        dots,
        [ScaleMark(round(100 * times.find(span), 2), show_span(span)) for span in list_spans(times)],
        [ScaleMark(round(ROOM * (1 - costs.find(usd)), 1), f"${usd:,.0f}") for usd in list_round(costs)],
        mark(limits["deadline_s"], lambda value: 100 * times.find(value), "deadline"),
        mark(limits["budget_usd"], lambda value: ROOM * (1 - costs.find(value)), "budget"),
    )


def list_plans(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every plan once, the fastest first: those of the front, the best, and near misses where nothing fits."""
    known = {plan["name"]: plan for plan in (*document["front"], *document["nearest"], *document["plans"])}
    return sorted(known.values(), key=lambda plan: float(plan["time_s"]["value"]))


def make_scale(values: Sequence[float], limit: float | None) -> LogScale:
    """A scale that shows all values and the limit."""
    shown = [*values, *([limit] if limit else [])] or [1.0]
    low, high = min(shown), max(shown)
    return LogScale(low, high if high > 1.05 * low else 1.05 * low)


def is_inside(value: float, scale: LogScale) -> bool:
    """Whether a value lies between the ends."""
    return scale.low <= value <= scale.high


def list_spans(scale: LogScale) -> list[float]:
    """Round spans between the ends, the roundest first to be taken; none so close to another that words touch."""
    taken: list[float] = []
    for span in (*SPANS_S, *MORE_SPANS_S):
        is_free = all(abs(scale.find(span) - scale.find(other)) >= NEAR for other in taken)
        if is_inside(span, scale) and is_free:
            taken.append(span)
    return sorted(taken)


def list_round(scale: LogScale) -> Iterable[float]:
    """Round amounts between the ends."""
    first = floor(log10(scale.low))
    amounts = (digit * 10.0**power for power in range(first, first + 9) for digit in (1, 2, 5))
    return [amount for amount in amounts if is_inside(amount, scale)]


def mark(value: float | None, find: Any, text: str) -> ScaleMark | None:
    """A limit on the picture."""
    return None if not value else ScaleMark(round(find(value), 2), text)
