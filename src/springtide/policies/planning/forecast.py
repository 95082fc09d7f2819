"""Whether a promise should wait, or not be made at all, because cheaper jobs are likely to need the devices.

A promise binds devices until the job ends. Under pressure the most deadlines are met by taking cheap jobs first
(Moore and Hodgson's rule), but the cheap ones of the next hours are not known yet. So the recent past is reflected
into the near future: a job that arrived ten minutes ago will arrive in ten minutes, with the same cost and the same
time to its deadline. What counts is the load up to any deadline from the job's own on: of the promises made, of the
job, and of the cheaper ones to come. A job may run while its promise waits, so that waiting is cheap and the bound for
it low; to decline a job for others that may come, the load must be near what the cluster has.
All quantities are ratios to the size of the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf
from struct import pack
from typing import Any

import numpy as np

from springtide.core.jobs import Job, JobId
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Floats
from springtide.policies.planning.plan_table import PlanTable, rows_but

REMEMBERED = 256  # arrivals
FEW = 5  # arrivals before the past says anything
CALM = 0.4  # of the cluster, needed by promises, the job and cheaper ones to come: up to it nothing is held back
CROWDED = 0.85  # of the cluster, needed by the same: beyond it a job that must be answered is declined

ROUNDING = 1e-9  # of a load
LEAST_SPAN_S = 1e-9  # to the deadline of a promise that has none left
NOTHING = (np.zeros(0), np.zeros(0))  # to come
HISTORY = "arrivals"  # key in a policy's memory: [[submitted, cost, seconds to the deadline], ...]

Arrivals = Sequence[Sequence[float]]  # (submitted, cost, seconds to the deadline) of each


def alone_cost(job: Job, now_s: float, devices: float = inf) -> float:
    """Device-seconds of a job from its start at the smallest level that meets its deadline; infinite if none does."""
    for share in job.curve.levels:
        if share > devices:
            break
        needed_s = job.overhead.pause_s(share, starting=True) + job.work / job.curve.rate(share)
        if now_s + needed_s <= job.deadline_s:
            return share * needed_s
    return inf


def remember(memory: Mapping[str, Any], arrivals: Arrivals) -> list[list[float]]:
    """What came lately, with these arrivals added; those that no share could finish in time ask for nothing."""
    added = [[submit_s, cost, span_s] for submit_s, cost, span_s in sorted(map(tuple, arrivals)) if cost < inf]
    return [*memory.get(HISTORY, ()), *added][-REMEMBERED:]


@dataclass(frozen=True)
class Reflection:
    """What came lately, as what is to come: read once, when first asked for."""

    now_s: float
    past: Arrivals

    @cached_property
    def to_come(self) -> tuple[Floats, Floats]:
        """The past reflected: seconds from now to each deadline, ascending, and the costs."""
        if len(self.past) < FEW:
            return NOTHING
        # packed first: twice as fast as reading the numbers one by one
        flat = np.frombuffer(pack(f"{3 * len(self.past)}d", *chain.from_iterable(self.past)))
        submitted, costs, given_s = flat.reshape(-1, 3).T
        ends_s = self.now_s - submitted + given_s
        order = np.argsort(ends_s, kind="stable")
        return ends_s[order], costs[order]


@dataclass(frozen=True)
class Demand:
    """What is promised, ascending by deadline, and what is to come."""

    now_s: float
    devices: int
    spans_s: Floats  # of the promised jobs: from now to the deadline
    needs: Floats  # device-seconds they need at least
    reflection: Reflection

    def with_promise(self, deadline_s: float, cost: float) -> "Demand":
        """The demand with one promise more."""
        span_s = max(deadline_s - self.now_s, LEAST_SPAN_S)
        place = int(np.searchsorted(self.spans_s, span_s, side="right"))
        spans_s, needs = np.insert(self.spans_s, place, span_s), np.insert(self.needs, place, cost)
        return Demand(self.now_s, self.devices, spans_s, needs, self.reflection)

    def is_calm(self, deadline_s: float, cost: float) -> bool:
        """Whether so much is left free that nothing speaks against promising a job of this cost at once."""
        if self._is_busy(deadline_s):
            return False
        # no load is higher than if all there is had to be done by this deadline: most clusters are calm by that already
        all_of_it = self._total + cost + float(self.reflection.to_come[1].sum())
        if all_of_it / (deadline_s - self.now_s) / self.devices <= CALM - ROUNDING:
            return True
        return self._load(deadline_s, cost, *self.reflection.to_come) <= CALM

    def advises_waiting(self, deadline_s: float, cost: float) -> bool:
        """Whether a job of this cost is better not promised yet: cheaper ones may still want its place."""
        return self._load(deadline_s, cost, *self.reflection.to_come) > max(
            CALM, self._load(deadline_s, cost, *NOTHING)
        )

    def advises_declining(self, deadline_s: float, cost: float) -> bool:
        """Whether a job of this cost would take the place of cheaper ones to come."""
        known = self._load(deadline_s, cost, *NOTHING)
        return known > CALM and self._load(deadline_s, cost, *self.reflection.to_come) > max(CROWDED, known)

    def _is_busy(self, deadline_s: float) -> bool:
        """Whether the promises alone need more than a calm cluster has: known without looking at anything to come."""
        return deadline_s - self.now_s <= self._busy_s

    @cached_property
    def _total(self) -> float:
        """Device-seconds of all promises."""
        return float(self.needs.sum())

    @cached_property
    def _busy_s(self) -> float:
        """Up to how far from now a deadline is one from which on the promises alone make a high load."""
        loads = np.cumsum(self.needs) / self.spans_s / self.devices
        busy = np.flatnonzero(loads > CALM + ROUNDING)
        return float(self.spans_s[busy[-1]]) if len(busy) else -inf

    def _load(self, deadline_s: float, cost: float, ends_s: Floats, costs: Floats) -> float:
        """The highest load up to any deadline from this one on, with the job and those to come that cost less."""
        span_s = deadline_s - self.now_s
        return float(filling.highest_need(self.spans_s, self.needs, ends_s, costs, span_s, cost)) / self.devices


def survey(table: PlanTable, past: Arrivals, waiting: Iterable[JobId] = ()) -> Demand:
    """The demand as it stands with the promises in a plan table; the plans of those that wait promise nothing."""
    rows = rows_but(table, waiting)
    spans_s = np.maximum(table.columns.deadline[rows] - table.now_s, LEAST_SPAN_S)
    needs = filling.least_costs(table.columns, rows, table.now_s)
    order = np.argsort(spans_s, kind="stable")
    return Demand(table.now_s, table.devices, spans_s[order], needs[order], Reflection(table.now_s, past))
