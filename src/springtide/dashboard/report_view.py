"""The report as values that a template draws. Pure: made of the API's document."""

from dataclasses import dataclass
from typing import Any

MOST_WEEKS = 8  # that fit on a printed page


@dataclass(frozen=True, slots=True)
class WeekGrid:
    """Money, or device-hours where nothing has a price, of each user in each of the last weeks; None: no job ended."""

    weeks: list[str]
    users: list[tuple[str, list[float | None]]]


def build_grid(report: dict[str, Any]) -> WeekGrid:
    """The grid of a report, the newest week last."""
    weeks = sorted({one["name"] for one in report["weeks"]})[-MOST_WEEKS:]
    key = "device_h" if report["total"]["usd"] is None else "usd"
    found = {(one["user"], one["week"]): float(one[key]) for one in report["users_by_week"]}
    names = [one["name"] for one in report["users"]]
    return WeekGrid(weeks, [(name, [found.get((name, week)) for week in weeks]) for name in names])
