"""Themis (NSDI 2020) as finish-time fairness: nobody should end much later than with an equal part of the cluster.

rho = (elapsed + left / x) / (isolated + left / x_isolated): the finish in the shared cluster over the finish with 1/n
of it, where `left` is the time the job still needs at its requested devices, x the fraction of time it runs, and
`isolated` the time its work so far would have taken at the fractions x_isolated = min(1, G / (n g)) of those days.
The fractions minimise the largest rho under sum g x <= G, 0 <= x <= 1. Every 360 s they are computed anew, and the
jobs of the largest fractions run for a round; devices that come free inside a round go to waiting jobs in that order.

This is the version of Gavel and of the ElasticFlow artifact, not the auction of the paper. For one device type and a
fixed rho the linear program has the closed solution x(rho) = min(1, left / (rho * (isolated + left / x_isolated) -
elapsed)), so bisection on rho replaces the solver; clipping at 1 also serves those who could do better than the
worst-off. Done better than in the artifact: isolated speed is speed x fraction (there the fraction alone, so that
rho mixes units), and rescaling costs. Rounds received need no counter of their own: a program solved in every round
sees them in `elapsed` and `left`. Solving only when jobs come or go and dividing by a counter, as Gavel does, met a
third fewer deadlines of elasticVpollux_e and slowed jobs down more in the mean. Deadline-blind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.policies.common.answers import count_free, remaining_views
from springtide.policies.common.gangs import (
    answer_gangs,
    change_shares,
    fit_in_order,
    gang_share,
    stretch_round_s,
    wake_if_waiting,
)

ROUND_S = 360.0
STEPS = 60  # of bisection: each halves the interval of rho

Floats = NDArray[np.float64]


class Account(NamedTuple):
    """The isolated time of a job up to the moment it had `work_left`; work since then counts at `isolated_rate`."""

    isolated_s: float
    work_left: float
    isolated_rate: float

    def settle_s(self, work_left: float) -> float:
        """The isolated time up to a later moment."""
        return self.isolated_s + (self.work_left - work_left) / self.isolated_rate


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """Columns over jobs: gang, speed, work left, isolated time so far and isolated fraction from now on."""

    gangs: Floats
    rates: Floats
    work_left: Floats
    isolated_s: Floats
    isolated_fraction: Floats


def themis(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs the jobs that most need to run to keep finish times fair, each on its requested devices."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    devices = snapshot.cluster.total
    table = tabulate(now_s, views, snapshot.memory.get("accounts", {}), devices)
    fractions = find_fractions(now_s, views, table, devices)
    ends_s = float(snapshot.memory.get("round_ends_s", now_s))
    if now_s >= ends_s:
        ends_s = now_s + stretch_round_s(views, ROUND_S)
        chosen = fit_in_order(rank(views, fractions), devices)
    else:
        chosen = {view.job.id: view.share for view in views if view.share}
        waiting = [view for view in rank(views, fractions) if not view.share]
        chosen |= fit_in_order(waiting, count_free(snapshot))
    return Decision(
        answers=answers,
        shares=change_shares(views, chosen),
        wake_at_s=wake_if_waiting(views, chosen, ends_s),
        memory={"accounts": write_accounts(views, table), "round_ends_s": ends_s},
    )


def rank(views: list[JobView], fractions: Floats) -> list[JobView]:
    """Jobs by falling fraction; a tie goes to the job that runs, which saves its pause."""
    pairs = sorted(
        zip(fractions.tolist(), views, strict=True), key=lambda pair: (-pair[0], not pair[1].share, pair[1].job.index)
    )
    return [view for _, view in pairs]


def tabulate(now_s: float, views: list[JobView], accounts: Mapping[str, list[float]], devices: int) -> SpeedTable:
    """The columns of the jobs there are now."""
    gangs = [gang_share(view.job) for view in views]
    work_left = [view.progress.work_left_at(now_s) for view in views]
    isolated_s = [
        Account(*accounts[view.job.id]).settle_s(left) if view.job.id in accounts else 0.0
        for view, left in zip(views, work_left, strict=True)
    ]
    return SpeedTable(
        gangs=np.array(gangs, dtype=float),
        rates=np.array([view.job.curve.rate(gang) for view, gang in zip(views, gangs, strict=True)]),
        work_left=np.array(work_left),
        isolated_s=np.array(isolated_s),
        isolated_fraction=np.minimum(1.0, devices / (len(views) * np.array(gangs, dtype=float))),
    )


def write_accounts(views: list[JobView], table: SpeedTable) -> dict[str, list[float]]:
    """The accounts as JSON state."""
    columns = (table.isolated_s, table.work_left, table.rates * table.isolated_fraction)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {view.job.id: list(row) for view, row in zip(views, rows, strict=True)}


def find_fractions(now_s: float, views: list[JobView], table: SpeedTable, devices: int) -> Floats:
    """The fraction of time each job should run."""
    left_s = table.work_left / table.rates
    alone_s = table.isolated_s + left_s / table.isolated_fraction
    elapsed_s = np.array([now_s - view.job.submit_s for view in views])
    return balance(left_s, elapsed_s, alone_s, table.gangs, devices)


def balance(left_s: Floats, elapsed_s: Floats, alone_s: Floats, gangs: Floats, devices: int) -> Floats:
    """The fractions of time that make the largest rho = (elapsed + left / x) / alone as small as it can be.

    Lexicographic: a job that runs all the time and is worst off all the same does not slow the others down.
    """
    if gangs.sum() <= devices:
        return np.ones_like(left_s)
    alone_s = np.maximum(alone_s, 1e-9)
    low, high = 0.0, 1.0
    while gangs @ fractions_at(high, left_s, elapsed_s, alone_s) > devices:
        low, high = high, 2.0 * high
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        if gangs @ fractions_at(middle, left_s, elapsed_s, alone_s) > devices:
            low = middle
        else:
            high = middle
    return fractions_at(high, left_s, elapsed_s, alone_s)


def fractions_at(rho: float, left_s: Floats, elapsed_s: Floats, alone_s: Floats) -> Floats:
    """The least fractions of time with which no job exceeds rho; 1 where no fraction is enough."""
    room_s = rho * alone_s - elapsed_s
    return np.where(room_s > left_s, left_s / np.maximum(room_s, 1e-9), 1.0)
