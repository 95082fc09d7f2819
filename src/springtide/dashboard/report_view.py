"""The report as values that a template draws: as many rows as fit on a printed page, the rest of them summed up.

Pure: made of the API's document.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Tally: TypeAlias = dict[str, Any]
MOST_WEEKS = 8  # that fit on a printed page
MOST_USERS = 20
SUMS = ("jobs", "kept", "missed", "device_h", "lent_h", "lost_steps", "predicted", "ended_early")


@dataclass(frozen=True, slots=True)
class WeekGrid:
    """Money, or device-hours where nothing has a price, of each user in each of the last weeks; None: no job ended."""

    weeks: list[str]
    users: list[tuple[str, list[float | None]]]


@dataclass(frozen=True, slots=True)
class ReportRows:
    """The largest users, the last weeks and both together; what is left out of each is one more row."""

    users: list[Tally]
    weeks: list[Tally]
    grid: WeekGrid


def build_rows(report: Tally) -> ReportRows:
    """The rows of a report."""
    users = sorted(report["users"], key=lambda one: -one[find_key(report)])
    weeks = sorted(report["weeks"], key=lambda one: str(one["name"]), reverse=True)
    return ReportRows(cut(users, MOST_USERS, "others"), cut(weeks, MOST_WEEKS, "earlier weeks"), build_grid(report))


def cut(rows: Sequence[Tally], most: int, noun: str) -> list[Tally]:
    """The first rows, and the sum of those that do not fit."""
    kept, rest = [*rows[:most]], rows[most:]
    return [*kept, sum_up(rest, f"{len(rest)} {noun}")] if rest else kept


def sum_up(rows: Sequence[Tally], name: str) -> Tally:
    """Several rows as one; their mean error counts each prediction once."""
    total = {key: sum(row[key] for row in rows) for key in SUMS}
    errors = sum((row["prediction_error"] or 0.0) * row["predicted"] for row in rows)
    usd = None if rows[0]["usd"] is None else sum(row["usd"] for row in rows)
    error = errors / total["predicted"] if total["predicted"] else None
    return {"name": name, **total, "prediction_error": error, "usd": usd}


def find_key(report: Tally) -> str:
    """By what users are compared: money, or device-hours where nothing has a price."""
    return "device_h" if report["total"]["usd"] is None else "usd"


def build_grid(report: Tally) -> WeekGrid:
    """The grid of a report, the largest users first, the newest week last."""
    key = find_key(report)
    weeks = sorted({one["name"] for one in report["weeks"]})[-MOST_WEEKS:]
    found = {(one["user"], one["week"]): float(one[key]) for one in report["users_by_week"]}
    names = [one["name"] for one in sorted(report["users"], key=lambda one: -one[key])]
    rows = [(name, [found.get((name, week)) for week in weeks]) for name in names[:MOST_USERS]]
    rest = names[MOST_USERS:]
    if rest:
        sums = [sum(found.get((name, week), 0.0) for name in rest) for week in weeks]
        rows.append((f"{len(rest)} others", [*sums]))
    return WeekGrid(weeks, rows)
