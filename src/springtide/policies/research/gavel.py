"""Gavel (OSDI 2020): fractions of time on each device type that make the worst-off job's share of speed largest.

x_mj is the fraction of time that job m spends on type j, on the devices it requested there (g_mj). The policy is the
paper's default, heterogeneity-aware least attained service:
    maximise  min_m  g_m sum_j T_mj x_mj / T_equal(m),    sum_j x_mj <= 1,    sum_m g_mj x_mj <= devices_j,
T_equal(m) being the job's speed if every job had the same part of every type. Then rounds of 360 s, as in the paper's
mechanism: in order of x_mj over the fraction of time received on j since the fractions were last set, ties by what is
owed, each job takes its devices of a type where they fit. Fractions are set when jobs came or went, at the end of a
round and 1,000 s after the last time at the earliest; what a job is owed then is carried over. Deadline-blind.

Done better than in the artifact: a second program gives what the worst-off job cannot use to the others (the largest
sum of speeds at that minimum; the paper's water filling does so by iteration), and devices that come free inside a
round go to waiting jobs at once. Left out: packing two jobs onto one device (a device has one holder), priorities and
entities, and the other objectives (of which `themis` here is finish-time fairness). A job of determinism D1 stays with
the type it first ran on: its speeds on others are 0 from then on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import remaining_views
from springtide.policies.common.gangs import (
    Gang,
    Stock,
    answer_gangs,
    round_share,
    stock_all,
    stock_free,
    stretch_round_s,
    wake_if_waiting,
)
from springtide.policies.research.configurations import curves_of, give_configurations, held_gang

ROUND_S = 360.0
RESET_S = 1000.0  # the least time between two settings of the fractions (the artifact's)
NEVER = 1e9  # stands for the quotient of a job that has received nothing since

Floats = NDArray[np.float64]
Times = dict[JobId, dict[str, float]]  # of each job by device type


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the mechanism remembers: fractions since `set_s`, seconds received since then, and what is owed from before.

    `at_s` is when the seconds received were last counted.
    """

    set_s: float
    at_s: float
    fractions: Times
    received: Times
    owed: Times


def gavel(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs a round of the jobs that are furthest behind their fractions, each on its requested devices of one type."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    memory = snapshot.memory
    ledger = count_received(now_s, views, read_ledger(memory, now_s))
    ends_s = float(memory.get("round_ends_s", now_s))
    if now_s >= ends_s:
        ends_s = now_s + stretch_round_s(views, ROUND_S)
        if has_changed(now_s, views, ledger):
            ledger = settle(now_s, ledger, find_fractions(views, snapshot))
        chosen = fit_by_priority(now_s, views, ledger, stock_all(snapshot))
    else:
        chosen = {view.job.id: gang for view in views if (gang := held_gang(view))}
        waiting = [view for view in views if not view.share]
        chosen |= fit_by_priority(now_s, waiting, ledger, stock_free(snapshot))
    decision = give_configurations(answers, views, chosen)
    wake_at_s = wake_if_waiting(views, {job_id: gang.share for job_id, gang in chosen.items()}, ends_s)
    return Decision(
        answers=answers,
        shares=decision.shares,
        mixes=decision.mixes,
        wake_at_s=wake_at_s,
        memory={"round_ends_s": ends_s, "ledger": write_ledger(ledger)},
    )


def requested_gangs(view: JobView) -> list[Gang]:
    """What a job asks for on each type that it may run on."""
    return [Gang(name, round_share(curve, view.job.requested)) for name, curve in curves_of(view).items()]


def read_ledger(memory: Mapping[str, Any], now_s: float) -> Ledger:
    """The ledger that the last decision left."""
    stored = memory.get("ledger")
    return Ledger(*stored) if stored else Ledger(now_s, now_s, {}, {}, {})


def write_ledger(ledger: Ledger) -> list[Any]:
    """The ledger as JSON state."""
    return [ledger.set_s, ledger.at_s, ledger.fractions, ledger.received, ledger.owed]


def count_received(now_s: float, views: list[JobView], ledger: Ledger) -> Ledger:
    """The ledger with the time since it was last counted, and without the jobs that are gone."""
    here = {view.job.id for view in views}
    received = {job_id: dict(times) for job_id, times in ledger.received.items() if job_id in here}
    for view in views:
        gang = held_gang(view)
        if gang is not None:
            times = received.setdefault(view.job.id, {})
            since_s = max(ledger.at_s, view.progress.since_s)
            times[gang.device_type] = times.get(gang.device_type, 0.0) + max(now_s - since_s, 0.0)
    owed = {job_id: times for job_id, times in ledger.owed.items() if job_id in here}
    return Ledger(ledger.set_s, now_s, ledger.fractions, received, owed)


def has_changed(now_s: float, views: list[JobView], ledger: Ledger) -> bool:
    """Whether the fractions are to be set anew: jobs came or went, and they have been in force for a while."""
    in_force = bool(ledger.fractions) and now_s < ledger.set_s + RESET_S
    return not in_force and {view.job.id for view in views} != ledger.fractions.keys()


def settle(now_s: float, ledger: Ledger, fractions: Times) -> Ledger:
    """The ledger with new fractions: what was due and not received is owed, and everyone begins with half a round."""
    elapsed_s = max(now_s - ledger.set_s, 0.0) if ledger.fractions else 0.0
    owed = {
        job_id: {
            name: ledger.owed.get(job_id, {}).get(name, 0.0)
            + elapsed_s * ledger.fractions.get(job_id, {}).get(name, 0.0)
            - ledger.received.get(job_id, {}).get(name, 0.0)
            for name in shares
        }
        for job_id, shares in fractions.items()
    }
    received = {job_id: dict.fromkeys(shares, ROUND_S / 2.0) for job_id, shares in fractions.items()}
    return Ledger(now_s, now_s, fractions, received, owed)


def fit_by_priority(now_s: float, views: list[JobView], ledger: Ledger, stock: Stock) -> dict[JobId, Gang]:
    """The gangs that run if each (job, type) in order of priority takes its devices where enough are left.

    A job that came after the fractions were set has none yet: it goes before all others, as one that never ran. A
    fraction of 0 goes last, so that no device stays idle while somebody waits.
    """
    elapsed_s = max(now_s - ledger.set_s, 1.0) if ledger.fractions else 1.0

    def rank(view: JobView, gang: Gang) -> tuple[float, float, float, bool, int]:
        job_id, name = view.job.id, gang.device_type
        fraction = ledger.fractions.get(job_id, {}).get(name, 1.0 if job_id not in ledger.fractions else 0.0)
        received = ledger.received.get(job_id, {}).get(name, 0.0) / elapsed_s
        priority = fraction / received if received > 0 else fraction * NEVER
        owed = ledger.owed.get(job_id, {}).get(name, 0.0)
        return -priority, -owed, -fraction, gang != held_gang(view), view.job.index

    pairs = [(rank(view, gang), view.job.id, gang) for view in views for gang in requested_gangs(view)]
    chosen: dict[JobId, Gang] = {}
    for _, job_id, gang in sorted(pairs, key=lambda pair: pair[0]):
        if job_id not in chosen and gang.share <= min(stock.left.get(gang.device_type, 0), stock.left[""]):
            chosen[job_id] = stock.take(gang)
    return chosen


def find_fractions(views: list[JobView], snapshot: Snapshot) -> Times:
    """The fraction of time that each job should spend on each type."""
    if not views:
        return {}
    gangs = [requested_gangs(view) for view in views]
    types = list(dict.fromkeys(gang.device_type for row in gangs for gang in row))
    totals = {"": snapshot.cluster.total, **snapshot.cluster.totals}
    sizes, speeds = np.zeros((len(views), len(types))), np.zeros((len(views), len(types)))
    for row, (view, asked) in enumerate(zip(views, gangs, strict=True)):
        for gang in asked:
            column = types.index(gang.device_type)
            if gang.share <= totals.get(gang.device_type, 0):
                sizes[row, column] = gang.share
                speeds[row, column] = curves_of(view)[gang.device_type].rate(gang.share)
    fractions = balance_speeds(speeds, sizes, np.array([float(totals.get(name, 0)) for name in types]))
    return {
        view.job.id: {gang.device_type: float(row[types.index(gang.device_type)]) for gang in asked}
        for view, asked, row in zip(views, gangs, fractions, strict=True)
    }


def balance_speeds(speeds: Floats, sizes: Floats, devices: Floats) -> Floats:
    """The fractions x with the largest min_m g_m sum_j T_mj x_mj / T_equal(m), and of those the largest sum.

    Rows are jobs, columns types; a speed of 0 means that a job cannot run there.
    """
    usable = speeds > 0
    equal = np.where(usable, devices, 0.0) / np.maximum(len(speeds), 1)
    scale = sizes.max(axis=1)
    worth = speeds * scale[:, None] / np.maximum((speeds * equal).sum(axis=1), 1e-12)[:, None]
    return fill_level(sizes, float(devices[0])) if speeds.shape[1] == 1 else _solve(worth, sizes, devices)


def fill_level(sizes: Floats, devices: float) -> Floats:
    """The solution on one type, where worth is devices times time: the same of both for all, up to all of the time."""
    wanted = sizes[:, 0]
    if wanted.sum() <= devices:
        return np.ones_like(sizes)
    ordered = np.sort(wanted)
    # with the i smallest served whole, the others share what is left; the level is the first that does not overfill
    left = (devices - np.concatenate([[0.0], np.cumsum(ordered)[:-1]])) / np.arange(len(ordered), 0, -1)
    level = float(left[np.argmax(left <= ordered)])
    fractions: Floats = np.minimum(1.0, level / np.maximum(wanted, 1e-12))[:, None]
    return fractions


def _solve(worth: Floats, sizes: Floats, devices: Floats) -> Floats:
    """The two linear programs: the largest minimum t, then the largest sum that leaves it."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # not at start-up: the import takes a while
    from scipy.sparse import csr_array, hstack, vstack

    jobs, types = worth.shape
    rows, columns = np.repeat(np.arange(jobs), types), np.arange(jobs * types)
    times = csr_array((np.ones(jobs * types), (rows, columns)))
    room = csr_array((sizes.ravel(), (np.tile(np.arange(types), jobs), columns)))
    gains = csr_array((worth.ravel(), (rows, columns)))
    able = (worth.max(axis=1) > 0).astype(float)
    limits = np.concatenate([np.ones(jobs), devices])
    upper = (worth.ravel() > 0).astype(float)
    capacity = hstack([vstack([times, room]), csr_array((jobs + types, 1))])
    first = milp(
        np.concatenate([np.zeros(jobs * types), [-1.0]]),
        bounds=Bounds(0.0, np.concatenate([upper, [np.inf]])),
        constraints=[
            LinearConstraint(capacity, -np.inf, limits),
            LinearConstraint(hstack([gains, csr_array(-able[:, None])]), 0.0, np.inf),
        ],
    )
    assert first.x is not None, "no time for anybody is a solution"
    least = (1.0 - 1e-6) * float(first.x[-1])
    second = milp(
        -worth.ravel() / worth.max(initial=1e-12),
        bounds=Bounds(0.0, upper),
        constraints=[
            LinearConstraint(vstack([times, room]), -np.inf, limits),
            LinearConstraint(gains, least * able, np.inf),
        ],
    )
    assert second.x is not None, "the first solution is one of the second program"
    return np.clip(second.x.reshape(jobs, types), 0.0, 1.0)
