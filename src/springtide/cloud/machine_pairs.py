"""Mixes of two machine types in one region, and what lets most of them be dropped before they are evaluated.

How long a job takes on a mix on average depends on its machine types and counts, not on region or price: it is found
once. What breaks a limit or stays behind the plans already found is dropped; only the rest is given a spread, which
costs most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from springtide.cloud.candidates import (
    Candidates,
    Flags,
    Name,
    PricedMachine,
    find_front,
    find_shares,
    prefers_speed,
    price,
)
from springtide.cloud.plans import HOUR_S, Limits, Wanted, Work
from springtide.cloud.splitting import Pair, cut_mix
from springtide.throughput.tables.points import Array

SLACK = 1 + 1e-9  # times and costs are compared with rounding in their favour


@dataclass(frozen=True, slots=True)
class MachinePair:
    """Two machine types in one region, on demand or as spot, in any numbers."""

    one: PricedMachine
    other: PricedMachine
    spot: bool

    @property
    def pair(self) -> Pair:
        """What its times depend on."""
        return Pair((self.one.speed, self.other.speed), (self.one.per_node, self.other.per_node))


class MixTimes:
    """Mean times of a job on every pair of node counts: at least one node of each type, and at most so many in all."""

    def __init__(self, work: Work, limits: Limits) -> None:
        counts = np.arange(1.0, limits.most_nodes)
        first, second = np.meshgrid(counts, counts, indexing="ij")
        within = first + second <= limits.most_nodes
        self.first, self.second = first[within], second[within]
        self.work, self.limits = work, limits
        self.shares = {spot: find_shares(self.first + self.second, limits, spot) for spot in {False, limits.spot}}
        self._steps_s: dict[Pair, Array] = {}

    def __len__(self) -> int:
        return len(self.first)

    def find(self, mix: MachinePair) -> Array:
        """Seconds at each pair of counts."""
        pair = mix.pair
        if pair not in self._steps_s:
            cut = cut_mix(pair, self.first, self.second, self.work, spread=False)
            self._steps_s[pair] = np.exp(cut.log_step)
        return self.limits.startup_s + self.work.steps * self._steps_s[pair] / self.shares[mix.spot]


@dataclass(frozen=True)
class Bar:
    """What a mix must beat: the last plan worth naming, and the front if that is wanted, as (time, cost) rows."""

    time_s: float
    cost_usd: float
    front: Array | None

    def beats(self, time_s: Array, cost_usd: Array) -> Flags:
        """Whether a candidate at best this fast and this cheap can neither be named nor join the front."""
        worse = (time_s > self.time_s * SLACK) | (cost_usd > self.cost_usd * SLACK)
        if self.front is None:
            return np.asarray(worse, dtype=bool)
        if not self.front.size:
            return np.zeros(len(time_s), dtype=bool)
        # The front is by rising time and falling cost: the last plan that is as fast is the cheapest of those.
        place = np.searchsorted(self.front[:, 0], time_s / SLACK, side="right") - 1
        behind = (place >= 0) & (self.front[np.maximum(place, 0), 1] * SLACK <= cost_usd)
        return np.asarray(worse & behind, dtype=bool)


class Bars:
    """The bar as plans are found: it rises with every better set of types. Without pruning there is none."""

    def __init__(self, pool: Sequence[Candidates], limits: Limits, wanted: Wanted) -> None:
        self.fast = prefers_speed(limits)
        self.wanted = wanted
        self.front = find_front(pool) if wanted.front else None
        self.merits: dict[Name, float] = {}
        self.current = Bar(np.inf, np.inf, self.front) if wanted.prune else None
        for found in pool:
            self.add(found)

    def add(self, found: Candidates) -> None:
        """Count these feasible candidates in."""
        if not len(found) or not self.wanted.prune:
            return
        merit = float((found.time_s if self.fast else found.cost_usd).min())
        if merit < self.merits.get(found.name, np.inf):
            self.merits[found.name] = merit
            best = nsmallest(self.wanted.best, self.merits.values())
            last = best[-1] if len(best) == self.wanted.best else np.inf
            self.current = Bar(last if self.fast else np.inf, np.inf if self.fast else last, self.front)


def evaluate_mix(mix: MachinePair, times: MixTimes, bar: Bar | None) -> Candidates | None:
    """The candidates of a mix that can still win, if any."""
    first, second = times.first, times.second
    if bar is not None:
        hopeful = ~_find_hopeless(mix, times, bar)
        if not hopeful.any():
            return None
        first, second = first[hopeful], second[hopeful]
    cut = cut_mix(mix.pair, first, second, times.work)
    return price((mix.one, mix.other), (first, second), cut, times.work, times.limits, mix.spot)


def _find_hopeless(mix: MachinePair, times: MixTimes, bar: Bar) -> Flags:
    """Which pairs of counts cannot train the job, break a limit on average already, or stay behind the bar."""
    time_s, limits = times.find(mix), times.limits
    usd_per_h = times.first * mix.one.usd_per_h + times.second * mix.other.usd_per_h
    cost_usd = time_s * (usd_per_h / HOUR_S)
    hopeless = bar.beats(time_s, cost_usd) | ~np.isfinite(time_s)
    for amount, most in (
        (time_s, limits.deadline_s),
        (cost_usd, limits.budget_usd),
        (usd_per_h, limits.most_usd_per_h),
    ):
        if most is not None and limits.confidence >= 0.5:
            hopeless |= amount > most * SLACK
    return hopeless
