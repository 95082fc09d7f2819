"""When spot machines are to be had and at what price, over time: read from CSV, or drawn from a seed.

A trace is rows `time_s,type,zone,available,price`, each valid until the next of its type and zone. A zone is a region
of the catalog, or lies in one by its name (`us-east-1a` in `us-east-1`). Drawn traces are synthetic and say so:
revocations 0.05-0.32 per node-hour and prices 0.10-0.80 of on demand, as seen in public data.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np

from springtide.cloud.catalog import Machine
from springtide.errors import TraceError
from springtide.throughput.tables.csv_rows import read_rows

COLUMNS = ("time_s", "type", "zone", "available", "price")
REVOCATIONS_PER_NODE_H = (0.05, 0.32)
PRICE_RATIOS = (0.10, 0.35, 0.80)  # least, most likely, greatest
PRICE_EVERY_S = 6 * 3600.0
AWAY_S = 1800.0
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Market:
    """One type in one zone over time: when it is available, and its price per hour."""

    times_s: tuple[float, ...]
    available: tuple[bool, ...]
    usd_per_h: tuple[float, ...]

    def at(self, now_s: float) -> tuple[bool, float]:
        """Whether it is available now, and the price."""
        place = max(bisect_right(self.times_s, now_s) - 1, 0)
        return self.available[place], self.usd_per_h[place]

    def next_loss_s(self, now_s: float) -> float | None:
        """When it is next taken away, if the trace knows."""
        start = bisect_right(self.times_s, now_s)
        for place in range(start, len(self.times_s)):
            if not self.available[place]:
                return self.times_s[place]
        return None

    def bill_usd(self, start_s: float, end_s: float) -> float:
        """What a machine costs from one instant to another, at the price of each moment."""
        edges = [start_s, *self.times_s[bisect_right(self.times_s, start_s) : bisect_left(self.times_s, end_s)], end_s]
        return sum((late - early) * self.at(early)[1] for early, late in pairwise(edges)) / HOUR_S


@dataclass(frozen=True, slots=True)
class SpotTrace:
    """Markets by (type, zone), and whether they were drawn."""

    markets: Mapping[tuple[str, str], Market]
    synthetic: bool
    name: str

    def find_zones(self, machine: Machine) -> list[str]:
        """The zones of a machine's region in which the trace knows its type, by name."""
        known = (zone for instance_type, zone in self.markets if instance_type == machine.instance_type)
        return sorted(zone for zone in known if lies_in(zone, machine))

    def check_covers(self, machines: Sequence[Machine]) -> None:
        """Refuse a trace that says nothing about any of these machines."""
        if not any(self.find_zones(machine) for machine in machines):
            told = ", ".join(sorted({f"{instance_type} in {zone}" for instance_type, zone in self.markets})[:5])
            raise TraceError(
                f"{self.name}: no type and zone of it is in the catalog searched (it has {told}); a type is "
                "an instance type such as g5.12xlarge, a zone a region or one of its zones such as us-east-1a"
            )


def lies_in(zone: str, machine: Machine) -> bool:
    """Whether a zone is a machine's region, or a zone of it: its name goes on with a letter or a dash."""
    rest = zone.removeprefix(machine.region)
    return zone.startswith(machine.region) and not rest[:1].isdigit()


def read_spot_trace(path: Path) -> SpotTrace:
    """A trace from CSV; rows may come in any order."""
    table: dict[tuple[str, str], list[tuple[float, bool, float]]] = {}
    for where, row in read_rows(path, COLUMNS, TraceError):
        table.setdefault((row["type"], row["zone"]), []).append(_read_row(where, row))
    if not table:
        raise TraceError(f"{path}: holds no rows; give at least one under the header")
    return SpotTrace({key: _make_market(sorted(found)) for key, found in table.items()}, False, path.name)


def _read_row(where: str, row: Mapping[str, str]) -> tuple[float, bool, float]:
    try:
        time_s, price = float(row["time_s"]), float(row["price"])
    except ValueError:
        raise TraceError(f"{where}: time_s {row['time_s']!r} and price {row['price']!r} must be numbers") from None
    if not (0 <= time_s < inf and 0 < price < inf):
        raise TraceError(
            f"{where}: time_s {row['time_s']!r} must not be negative and price {row['price']!r} must be positive"
        )
    if row["available"].lower() not in ("0", "1", "true", "false"):
        raise TraceError(f"{where}: available {row['available']!r} must be 1 or 0")
    return time_s, row["available"].lower() in ("1", "true"), price


def _make_market(rows: Sequence[tuple[float, bool, float]]) -> Market:
    times, available, prices = zip(*rows, strict=True)
    return Market(tuple(times), tuple(available), tuple(prices))


def draw_spot_trace(machines: Sequence[Machine], nodes: int, length_s: float, seed: int) -> SpotTrace:
    """A synthetic trace for groups of so many nodes: each type's own revocation rate, a price that drifts."""
    draws = np.random.default_rng(seed)
    markets = {}
    for machine in sorted(machines, key=lambda machine: (machine.instance_type, machine.region)):
        if machine.on_demand_usd_per_h is not None:
            rate_per_s = nodes * draws.uniform(*REVOCATIONS_PER_NODE_H) / HOUR_S
            markets[machine.instance_type, machine.region] = _draw_market(
                draws, rate_per_s, machine.on_demand_usd_per_h, length_s
            )
    return SpotTrace(markets, True, f"synthetic (seed {seed})")


def _draw_market(draws: np.random.Generator, rate_per_s: float, on_demand_usd_per_h: float, length_s: float) -> Market:
    rows, now_s, up = [], 0.0, True
    while now_s < length_s:
        price = on_demand_usd_per_h * float(draws.triangular(*PRICE_RATIOS))
        end_s = now_s + float(draws.exponential(1 / rate_per_s if up else AWAY_S))
        while now_s < min(end_s, length_s):
            rows.append((now_s, up, price))
            now_s = min(now_s + PRICE_EVERY_S, end_s)
            price = on_demand_usd_per_h * float(draws.triangular(*PRICE_RATIOS))
        now_s, up = end_s, not up
    return _make_market(rows)
