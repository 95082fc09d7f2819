"""How many spot machines a zone had over time and at which price, as recorded: read from files, or drawn from a seed.

Three forms are read: CSV rows `time_s,zone,count,price` (USD per machine-hour, each row valid until the next of its
zone); SkyPilot's availability traces, a JSON file per zone with `metadata.gap_seconds` and `data` (machines to be had
at each tick), without prices; and a folder of either. SkyNomad's converted traces (with `metadata.price_info`) say 1
where machines were *preempted*; they are refused, because the same number means the opposite. Its raw probe rounds
(`zone_results`, `instances_created`) are read from their folder.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from springtide.errors import TraceError
from springtide.throughput.tables.csv_rows import read_rows

COLUMNS = ("time_s", "zone", "count", "price")
HOUR_S = 3600.0
TICK_S = 300.0


@dataclass(frozen=True, slots=True)
class SpotZone:
    """Machines to be had in one zone over time, ascending, and the price of one per hour."""

    name: str
    times_s: tuple[float, ...]
    counts: tuple[int, ...]
    usd_per_h: tuple[float, ...]

    def place(self, now_s: float) -> int:
        """Which entry holds at an instant; before the first it is the first."""
        return max(bisect_right(self.times_s, now_s) - 1, 0)

    def next_change_s(self, now_s: float) -> float:
        """When the next entry begins."""
        following = bisect_right(self.times_s, now_s)
        return self.times_s[following] if following < len(self.times_s) else inf

    def shifted(self, start_s: float) -> "SpotZone":
        """The zone from an instant on, which becomes 0."""
        first = self.place(start_s)
        times = (0.0, *[time_s - start_s for time_s in self.times_s[first + 1 :]])
        return SpotZone(self.name, times, self.counts[first:], self.usd_per_h[first:])


def read_spot_counts(path: Path, usd_per_h: float | None = None) -> list[SpotZone]:
    """The zones of a file or a folder, by name; `usd_per_h` is the price where the file has none."""
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix in (".csv", ".json"))
        if not files:
            raise TraceError(f"spot trace {path}: the folder holds no .csv or .json file")
        rounds = [_read_json(one) for one in files if one.suffix == ".json"]
        if rounds and all("zone_results" in one for one in rounds):
            return _gather_rounds(path, rounds, usd_per_h)
        return [zone for one in files for zone in read_spot_counts(one, usd_per_h)]
    return [_read_ticks(path, usd_per_h)] if path.suffix == ".json" else _read_csv(path)


def _read_csv(path: Path) -> list[SpotZone]:
    table: dict[str, list[tuple[float, int, float]]] = {}
    for where, row in read_rows(path, COLUMNS, TraceError):
        time_s = _read_number(where, row, "time_s", 0.0)
        count = _read_number(where, row, "count", 0.0)
        if count != int(count):
            raise TraceError(f"{where}: count {row['count']!r} must be a whole number of machines")
        table.setdefault(row["zone"], []).append((time_s, int(count), _read_number(where, row, "price", 1e-9)))
    if not table:
        raise TraceError(f"{path}: holds no rows; give at least one under the header")
    return [_make_zone(name, sorted(rows)) for name, rows in sorted(table.items())]


def _read_number(where: str, row: Mapping[str, str], column: str, least: float) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if not least <= value < inf:
        rule = "a positive number" if least > 0 else "a number, 0 or more"
        raise TraceError(f"{where}: {column} {row[column]!r} must be {rule}")
    return value


def _make_zone(name: str, rows: Sequence[tuple[float, int, float]]) -> SpotZone:
    """A zone without entries that change nothing."""
    kept = [row for number, row in enumerate(rows) if number == 0 or row[1:] != rows[number - 1][1:]]
    times, counts, prices = zip(*kept, strict=True)
    return SpotZone(name, times, counts, prices)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TraceError(f"spot trace {path}: cannot be read as JSON ({error})") from None
    if not isinstance(found, dict):
        raise TraceError(
            f"spot trace {path}: holds a {type(found).__name__}; it must be an object with metadata and data"
        )
    return found


def _read_ticks(path: Path, usd_per_h: float | None) -> SpotZone:
    found = _read_json(path)
    metadata, counts = found.get("metadata", {}), found.get("data")
    if "price_info" in metadata:
        raise TraceError(
            f"spot trace {path}: a converted SkyNomad trace counts preemptions (1 is none to be had), not machines; "
            "give the raw probe rounds, or rows time_s,zone,count,price"
        )
    gap_s = metadata.get("gap_seconds")
    if not isinstance(gap_s, (int, float)) or gap_s <= 0 or not isinstance(counts, list) or not counts:
        raise TraceError(f"spot trace {path}: needs metadata.gap_seconds and a list data of machines at each tick")
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise TraceError(f"spot trace {path}: data must be whole numbers of machines, 0 or more")
    price = _need_price(path, usd_per_h)
    return _make_zone(path.stem, [(number * gap_s, count, price) for number, count in enumerate(counts)])


def _gather_rounds(path: Path, rounds: Sequence[Mapping[str, Any]], usd_per_h: float | None) -> list[SpotZone]:
    """The zones of a folder of probe rounds: how many of the machines asked for were created, round by round."""
    price = _need_price(path, usd_per_h)
    ordered = sorted((datetime.fromisoformat(one["scheduled_at"]).timestamp(), one["zone_results"]) for one in rounds)
    first_s = ordered[0][0]
    table: dict[str, list[tuple[float, int, float]]] = {}
    for at_s, zones in ordered:
        for name, result in zones.items():
            table.setdefault(name, []).append((at_s - first_s, int(result["instances_created"]), price))
    return [_make_zone(name, rows) for name, rows in sorted(table.items())]


def _need_price(path: Path, usd_per_h: float | None) -> float:
    if usd_per_h is None:
        raise TraceError(f"spot trace {path}: has no prices; give the spot price of a machine with --spot-price USD")
    return usd_per_h


def write_spot_counts(path: Path, zones: Sequence[SpotZone]) -> None:
    """Zones as CSV rows."""
    rows = sorted(row for zone in zones for row in _list_rows(zone))
    lines = (f"{time_s:g},{name},{count},{price:g}" for time_s, name, count, price in rows)
    path.write_text("\n".join((",".join(COLUMNS), *lines)) + "\n")


def _list_rows(zone: SpotZone) -> Iterator[tuple[float, str, int, float]]:
    for time_s, count, price in zip(zone.times_s, zone.counts, zone.usd_per_h, strict=True):
        yield time_s, zone.name, count, price


def draw_spot_counts(name: str, machines: int, length_s: float, usd_per_h: float, seed: int) -> SpotZone:
    """A synthetic zone: plenty, scarce and none by turns of hours, the count wandering meanwhile, the price with it."""
    draws = np.random.default_rng(seed)
    rows: list[tuple[float, int, float]] = []
    now_s, count = 0.0, machines
    while now_s < length_s:
        mood = int(draws.integers(3))
        until_s = now_s + float(draws.exponential(3.0 * HOUR_S))
        while now_s < min(until_s, length_s):
            aim = (machines, machines // 3, 0)[mood]
            count = int(np.clip(aim + draws.integers(-3, 4), 0, machines)) if mood < 2 else 0
            price = usd_per_h * (1.0 + 0.3 * mood / 2.0 + 0.05 * float(draws.standard_normal()))
            rows.append((now_s, count, max(price, 0.05 * usd_per_h)))
            now_s += TICK_S * float(1 + draws.integers(12))
    return _make_zone(name, rows)
