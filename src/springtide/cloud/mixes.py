"""Mixes of two kinds of machine in one region, and what lets most of them be dropped without being evaluated.

A mix is dropped when even a bound on its step time (no device is faster than alone) breaks a limit or leaves it behind
the plans already found; what survives is timed, compared again, and only then given a spread.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations

import numpy as np

from springtide.cloud.candidates import Candidates, Flags, Kind, Name, find_front, find_shares, prefers_speed, price
from springtide.cloud.plans import HOUR_S, Limits, Wanted, Work
from springtide.cloud.splitting import Pair, bound_step, cut_mix, time_first_part
from springtide.throughput.samples import Array

SLACK = 1 + 1e-9  # bounds are compared with rounding in their favour


@dataclass(frozen=True)
class Mix:
    """Every pair of node counts of two kinds in one region."""

    one: Kind
    other: Kind
    first: Array
    second: Array
    spot: bool

    def keep(self, rows: Flags) -> "Mix":
        """Only these pairs of counts."""
        return Mix(self.one, self.other, self.first[rows], self.second[rows], self.spot)

    @property
    def usd_per_h(self) -> Array:
        """The hourly price of each pair of counts."""
        price: Array = self.first * self.one.usd_per_h + self.second * self.other.usd_per_h
        return price


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


def list_mixes(kinds: Sequence[Kind], spot: bool, limits: Limits) -> Iterator[Mix]:
    """All mixes of two kinds: at least one node each, and at most so many together."""
    counts = np.arange(1.0, limits.most_nodes)
    first, second = np.meshgrid(counts, counts, indexing="ij")
    within = first + second <= limits.most_nodes
    for one, other in combinations(kinds, 2):
        yield Mix(one, other, first[within], second[within], spot)


def evaluate_mix(mix: Mix, work: Work, limits: Limits, bar: Bar | None) -> Candidates | None:
    """The candidates of a mix that can still win, if any: dropped first by bounds, then by their own time and cost."""
    pair = Pair((mix.one.speed, mix.other.speed), (mix.one.per_node, mix.other.per_node))
    if bar is not None:
        mix = _drop(mix, bound_step(pair, mix.first, mix.second, work), work, limits, bar)
        if len(mix.first):
            mix = _drop(mix, time_first_part(pair, mix.first, mix.second, work), work, limits, bar)
        if len(mix.first):
            means = cut_mix(pair, mix.first, mix.second, work, spread=False)
            mix = _drop(mix, np.exp(means.log_step), work, limits, bar)
    if not len(mix.first):
        return None
    cut = cut_mix(pair, mix.first, mix.second, work)
    return price((mix.one, mix.other), (mix.first, mix.second), cut, work, limits, mix.spot)


def _drop(mix: Mix, step_s: Array, work: Work, limits: Limits, bar: Bar) -> Mix:
    """The mix without the counts that, at best this fast, break a limit or stay behind the bar."""
    share = find_shares(mix.first + mix.second, limits, mix.spot) if mix.spot else 1.0
    time_s = limits.startup_s + work.steps * step_s / share
    usd_per_h = mix.usd_per_h
    cost_usd = time_s * (usd_per_h / HOUR_S)
    hopeless = bar.beats(time_s, cost_usd) | ~np.isfinite(time_s)
    for amount, most in (
        (time_s, limits.deadline_s),
        (cost_usd, limits.budget_usd),
        (usd_per_h, limits.most_usd_per_h),
    ):
        if most is not None and limits.confidence >= 0.5:
            hopeless |= amount > most * SLACK
    return mix.keep(~hopeless) if hopeless.any() else mix
