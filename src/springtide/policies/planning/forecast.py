"""Whether a job should wait for its answer because cheaper jobs are likely to need the devices.

A promise binds devices until the job ends. Under pressure the most deadlines are met by taking cheap jobs first
(Moore and Hodgson's rule), but the cheap ones of the next hours are not known yet. So the recent past is reflected
into the near future: a job that arrived ten minutes ago will arrive in ten minutes, with the same cost and the same
time to its deadline. A job is held back if, up to some deadline from its own on, the promises made, the job and the
cheaper ones to come would need more than the cluster has: said the sooner, the more jobs were turned away lately.
All quantities are ratios to the size of the cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from springtide.core.jobs import Job
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Floats
from springtide.policies.planning.plan_table import PlanTable, active_rows

REMEMBERED = 256  # arrivals
FEW = 20  # arrivals before the past says anything; a forecast must then be nearly twice the bound
CROWDED = 0.95  # of the cluster, needed by promises, the job and cheaper ones to come
KEPT = 0.2  # of the cluster, kept free for them where jobs are often turned away
OFTEN = 0.05  # of the recent arrivals
RECENT = 64  # arrivals over which being turned away is forgotten
CALM = 0.35  # of the cluster, needed by promises and the job: up to it nothing is held back
IDLE = 0.25  # of the cluster: while more of it has nothing to do, no job is held back

NOTHING = (np.zeros(0), np.zeros(0))  # to come
HISTORY = "arrivals"  # key in a policy's memory: [[submitted, cost, seconds to the deadline], ...]
REFUSED = "refused"  # key in a policy's memory: the part of the recent arrivals that found no room


def alone_cost(job: Job, now_s: float, devices: float = inf) -> float:
    """Device-seconds of a job from its start at the smallest level that meets its deadline; infinite if none does."""
    for share in job.curve.levels:
        if share > devices:
            break
        needed_s = job.overhead.pause_s(share, starting=True) + job.work / job.curve.rate(share)
        if now_s + needed_s <= job.deadline_s:
            return share * needed_s
    return inf


@dataclass(frozen=True, slots=True)
class Past:
    """What came lately, [[submitted, cost, seconds to the deadline], ...], and the part of it that found no room."""

    arrivals: list[list[float]]
    refused: float

    @property
    def bound(self) -> float:
        """The load at which jobs wait: lower where many were turned away, higher while few have been seen."""
        doubt = FEW * (1.0 / len(self.arrivals) - 1.0 / REMEMBERED)
        return (CROWDED - KEPT * min(1.0, self.refused / OFTEN)) * (1.0 + doubt)

    def write(self, memory: Mapping[str, Any], refusals: int) -> dict[str, Any]:
        """A policy's memory with this past, after so many refusals."""
        return {**memory, HISTORY: self.arrivals, REFUSED: self.refused + refusals / RECENT}


def remember(memory: Mapping[str, Any], arrivals: Sequence[tuple[float, float, float]]) -> Past:
    """The past with these arrivals added; those that no share could finish in time ask for nothing."""
    added = [[submit_s, cost, span_s] for submit_s, cost, span_s in sorted(arrivals) if cost < inf]
    refused = float(memory.get(REFUSED, 0.0)) * (1.0 - 1.0 / RECENT) ** len(added)
    return Past([*memory.get(HISTORY, ()), *added][-REMEMBERED:], refused)


@dataclass(frozen=True)
class Demand:
    """What is promised, ascending by deadline, and what came lately."""

    now_s: float
    devices: int
    spans_s: Floats  # of the promised jobs: from now to the deadline
    needs: Floats  # device-seconds they need at least
    past: Past

    def advises_waiting(self, deadline_s: float, cost: float, idle: int) -> bool:
        """Whether a job of this cost is better not promised yet, with so many devices that no one needs now."""
        if len(self.past.arrivals) < FEW or idle > IDLE * self.devices:
            return False
        known = self._load(deadline_s, cost, *NOTHING)
        return known > CALM and self._load(deadline_s, cost, *self.to_come) > max(self.past.bound, known)

    def is_calm(self, deadline_s: float, cost: float) -> bool:
        """Whether promises and a job of this cost leave so much free that nothing speaks against promising it."""
        return self._load(deadline_s, cost, *NOTHING) <= CALM

    @cached_property
    def to_come(self) -> tuple[Floats, Floats]:
        """The past reflected: seconds from now to each deadline, ascending, and the costs."""
        submitted, costs, given_s = np.array(self.past.arrivals).T
        ends_s = self.now_s - submitted + given_s
        order = np.argsort(ends_s, kind="stable")
        return ends_s[order], costs[order]

    def _load(self, deadline_s: float, cost: float, ends_s: Floats, costs: Floats) -> float:
        """The highest load up to any deadline from this one on, with the job and those to come that cost less."""
        span_s = deadline_s - self.now_s
        return float(filling.highest_need(self.spans_s, self.needs, ends_s, costs, span_s, cost)) / self.devices


def survey(table: PlanTable, past: Past) -> Demand:
    """The demand as it stands with the promises in a plan table."""
    rows = active_rows(table)
    spans_s = np.maximum(table.columns.deadline[rows] - table.now_s, 1e-9)
    needs = filling.least_costs(table.columns, rows, table.now_s)
    order = np.argsort(spans_s, kind="stable")
    return Demand(table.now_s, table.devices, spans_s[order], needs[order], past)
