"""Whether a job should wait for its answer because cheaper jobs are likely to need the devices.

A promise binds devices until the job ends. Under pressure the most deadlines are met by taking cheap jobs first
(Moore and Hodgson's rule), but the cheap ones of the next hours are not known yet. So the demand of the recent past
stands for that of the near future: a job is held back if cheaper jobs alone would keep a good part of the cluster busy
until its deadline, and the promises made, the job and they would not fit together. All quantities are ratios to the
size of the cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from springtide.core.jobs import Job
from springtide.policies import filling
from springtide.policies.filling import Floats
from springtide.policies.ledgers import Ledger, active_rows

REMEMBERED = 256  # arrivals
FEWEST = 20  # arrivals before the past says anything
CHEAPER = 0.3  # of the cluster, kept busy by cheaper jobs
CROWDED = 1.3  # of the cluster, asked for by promises, the job and cheaper ones together
PLEDGED = 0.85  # of the cluster, asked for by promises and the job, each spread evenly up to its deadline
PEAK = 0.5  # of the cluster, needed by promises and the job up to the tightest deadline from its own on

HISTORY = "arrivals"  # key in a policy's memory: [[submitted, cost], ...]


def alone_cost(job: Job, now_s: float, devices: float = inf) -> float:
    """Device-seconds of a job from its start at the smallest level that meets its deadline; infinite if none does."""
    for share in job.curve.levels:
        if share > devices:
            break
        needed_s = job.overhead.pause_s(share, starting=True) + job.work / job.curve.rate(share)
        if now_s + needed_s <= job.deadline_s:
            return share * needed_s
    return inf


def remember(memory: Mapping[str, Any], arrivals: Sequence[tuple[float, float]]) -> list[list[float]]:
    """The recent arrivals with these added; those that no share could finish in time ask for nothing."""
    added = [[submit_s, cost] for submit_s, cost in sorted(arrivals) if cost < inf]
    return [*memory.get(HISTORY, ()), *added][-REMEMBERED:]


@dataclass(slots=True)
class Demand:
    """What was asked for lately, and what is promised, as seen now."""

    now_s: float
    devices: int
    history: Sequence[Sequence[float]]  # [[submitted, cost], ...]
    spans_s: Floats  # of the promised jobs: from now to the deadline, ascending
    pledged: Floats  # device-seconds they need at least, up to each of those
    density: float  # sum of their needs, each per second up to its deadline, over the devices

    def advises_waiting(self, deadline_s: float, cost: float) -> bool:
        """Whether a job of this cost is better not promised yet."""
        span_s = deadline_s - self.now_s
        asked = self.density + cost / (span_s * self.devices)
        if asked <= PLEDGED or self._peak(span_s, cost) <= PEAK:
            return False
        cheaper = self._cheaper(span_s, cost)
        return cheaper > CHEAPER and asked + cheaper > CROWDED

    def _cheaper(self, span_s: float, cost: float) -> float:
        """The part of the cluster that cheaper arrivals, as in the last `span_s` seconds, would keep busy."""
        if len(self.history) < FEWEST:
            return 0.0
        submitted, costs = np.array(self.history).T
        first = min(int(np.searchsorted(submitted, self.now_s - span_s)), len(submitted) - FEWEST)
        recent = costs[first:]
        seen_s = max(self.now_s - float(submitted[first]), span_s)
        return float(recent[recent < cost].sum()) / (seen_s * self.devices)

    def _peak(self, span_s: float, cost: float) -> float:
        """The highest load up to any deadline from this one on, with the job: at most 1 if all can be in time."""
        first = int(np.searchsorted(self.spans_s, span_s, side="right"))
        before = float(self.pledged[first - 1]) if first else 0.0
        load = (before + cost) / (span_s * self.devices)
        if first == len(self.spans_s):
            return load
        return max(load, float(((self.pledged[first:] + cost) / (self.spans_s[first:] * self.devices)).max()))


def survey(ledger: Ledger, history: Sequence[Sequence[float]]) -> Demand:
    """The demand as it stands with the promises in a ledger."""
    rows = active_rows(ledger)
    spans_s = np.maximum(ledger.roster.deadline[rows] - ledger.now_s, 1e-9)
    needs = filling.least_costs(ledger.roster, rows, ledger.now_s)
    order = np.argsort(spans_s, kind="stable")
    return Demand(
        ledger.now_s,
        ledger.devices,
        history,
        spans_s[order],
        np.cumsum(needs[order]),
        float((needs / spans_s).sum()) / ledger.devices,
    )
