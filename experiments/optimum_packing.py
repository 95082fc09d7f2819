"""Finds an exact schedule that finishes given jobs in their windows, or shows by how much it cannot.

In each interval a schedule runs configurations (a share for each of some jobs, together no more than the devices),
one after the other. How long to run which is a linear programme; its configurations are generated as they are
needed, each by a knapsack over the jobs that are open in the interval. Rescaling is free here: this serves the
offline bound, not a policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csc_array, hstack

from experiments.fixed_schedules import ScheduledShare
from springtide.core.jobs import Job

LEAST_S = 1e-9  # seconds that are not worth a piece of their own
PRICE_TOLERANCE = 1e-9
ENOUGH = 1e-7  # a shortfall that is none: the solver's own tolerance

Floats = NDArray[np.float64]
Shares = dict[int, int]  # position of a job -> its share


@dataclass(frozen=True, slots=True)
class Packing:
    """Pieces of a schedule, and which fraction of each job's work it leaves undone.

    `proven` says that no schedule leaves less undone in sum.
    """

    pieces: list[ScheduledShare]
    shortfalls: Floats
    proven: bool


@dataclass(slots=True)
class _Columns:
    """The configurations found so far: interval and shares of each, and the work they do per second."""

    jobs: Sequence[Job]
    edges: Floats
    open_jobs: list[list[int]]  # for each interval the positions of the jobs whose window covers it
    intervals: list[int] = field(default_factory=list)
    shares: list[Shares] = field(default_factory=list)
    seen: set[tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=set)

    def add(self, interval: int, shares: Shares) -> bool:
        key = interval, tuple(sorted(shares.items()))
        if key in self.seen:
            return False
        self.seen.add(key)
        self.intervals.append(interval)
        self.shares.append(shares)
        return True

    def matrix(self, work: Floats) -> csc_array:
        """Rows: the fraction of each job's work per second (negated), then the seconds of each interval."""
        rows, columns, values = [], [], []
        for column, (interval, shares) in enumerate(zip(self.intervals, self.shares, strict=True)):
            for position, share in shares.items():
                rows.append(position)
                columns.append(column)
                values.append(-self.jobs[position].curve.rate(share) / work[position])
            rows.append(len(self.jobs) + interval)
            columns.append(column)
            values.append(1.0)
        shape = len(self.jobs) + len(self.edges) - 1, len(self.intervals)
        return csc_array((values, (rows, columns)), shape=shape)


@dataclass(frozen=True, slots=True)
class _Balance:
    """The best mix of the known configurations: seconds of each, what each job lacks, what work and time are worth."""

    seconds: Floats
    shortfalls: Floats
    prices: Floats  # of each job's whole work
    rents: Floats  # of a second of each interval


def pack(jobs: Sequence[Job], devices: int, time_limit_s: float) -> Packing:
    """A schedule that leaves the least work undone, summed over the jobs as fractions of their work."""
    until_s = perf_counter() + time_limit_s
    edges = np.unique([instant for job in jobs for instant in (job.submit_s, job.deadline_s)])
    work = np.array([job.work for job in jobs])
    columns = _Columns(jobs, edges, _find_open(jobs, edges))
    balance = _Balance(np.zeros(0), np.ones(len(jobs)), np.ones(len(jobs)), np.zeros(len(edges) - 1))
    while perf_counter() < until_s and balance.shortfalls.sum() > ENOUGH:
        if not _grow(columns, balance, work, devices):
            return Packing(_lay_out(columns, balance.seconds), balance.shortfalls, True)
        balance = _balance(columns, work)
    return Packing(_lay_out(columns, balance.seconds), balance.shortfalls, bool(balance.shortfalls.sum() <= ENOUGH))


def _grow(columns: _Columns, balance: _Balance, work: Floats, devices: int) -> bool:
    """Add to each interval the configuration that is worth most; whether any was worth more than its time."""
    grew = False
    lengths = np.diff(columns.edges)
    for interval, here in enumerate(columns.open_jobs):
        value, shares = _fill_best(columns.jobs, here, balance.prices / work, devices)
        if shares and value > balance.rents[interval] + PRICE_TOLERANCE / lengths[interval]:
            grew |= columns.add(interval, shares)
    return grew


def _find_open(jobs: Sequence[Job], edges: Floats) -> list[list[int]]:
    """For each interval the positions of the jobs whose window covers it."""
    return [
        [at for at, job in enumerate(jobs) if job.submit_s <= start_s and job.deadline_s >= end_s]
        for start_s, end_s in pairwise(edges)
    ]


def _balance(columns: _Columns, work: Floats) -> _Balance:
    """Solve for how long to run each known configuration."""
    count, intervals = len(columns.jobs), len(columns.edges) - 1
    known = columns.matrix(work)
    found = known.shape[1]
    every = np.arange(count)
    missing = csc_array((-np.ones(count), (every, every)), shape=(count + intervals, count))
    result: Any = linprog(
        np.concatenate((np.zeros(found), np.ones(count))),
        A_ub=hstack([known, missing], format="csc"),
        b_ub=np.concatenate((-np.ones(count), np.diff(columns.edges))),
        method="highs",
    )
    marginals = -result.ineqlin.marginals
    return _Balance(result.x[:found], result.x[found:], marginals[:count], marginals[count:])


def _fill_best(jobs: Sequence[Job], here: Sequence[int], prices: Floats, devices: int) -> tuple[float, Shares]:
    """The configuration worth most at the prices per unit of work: a knapsack with one share or none per job."""
    best = np.zeros(devices + 1)
    choices: list[tuple[int, NDArray[np.int64]]] = []
    for at in here:
        if prices[at] <= 0:
            continue
        chosen = np.zeros(devices + 1, dtype=np.int64)
        grown = best.copy()
        for share in jobs[at].curve.levels:
            if share > devices:
                break
            offer = best[: devices + 1 - share] + prices[at] * jobs[at].curve.rate(share)
            better = offer > grown[share:]
            grown[share:][better] = offer[better]
            chosen[share:][better] = share
        best = grown
        choices.append((at, chosen))
    shares: Shares = {}
    left = devices
    for at, chosen in reversed(choices):
        if chosen[left]:
            shares[at] = int(chosen[left])
            left -= shares[at]
    return float(best[devices]), shares


def _lay_out(columns: _Columns, seconds: Floats) -> list[ScheduledShare]:
    """The configurations of each interval one after the other."""
    now_s = {interval: float(start_s) for interval, start_s in enumerate(columns.edges[:-1])}
    pieces = []
    for interval, shares, length_s in zip(columns.intervals, columns.shares, seconds, strict=True):
        if length_s <= LEAST_S:
            continue
        start_s = now_s[interval]
        end_s = min(start_s + float(length_s), float(columns.edges[interval + 1]))
        pieces += [ScheduledShare(columns.jobs[at].id, share, start_s, end_s) for at, share in sorted(shares.items())]
        now_s[interval] = end_s
    return pieces
