"""What elastic jobs may hold on one device type at a time, and the best choice of one configuration for each.

A configuration is a number of devices of one type, of any type where a job has no speeds by type. What a configuration
is worth is the policy's affair; here is which there are, which set of them costs least, and the decision that follows.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, JobView, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix
from springtide.policies.common.gangs import Gang

NODE_LIMIT = 200  # of branch and bound: unlike a time limit it gives the same answer on every machine


Choice = tuple[int, float]  # a share, and its part of a sum over jobs that is to be made small


class PricedGang(NamedTuple):
    """A configuration that a job may get, and its part of the sum over jobs that is to be made small."""

    gang: Gang
    cost: float


def curves_of(view: JobView) -> Mapping[str, Curve]:
    """The speeds of a job on each type that it may still run on, under the empty name where types make no difference.

    Determinism D1 keeps a job on the type it first ran on.
    """
    typed, first = view.job.typed, view.first_device_type
    if typed is None:
        return {"": view.job.curve}
    return typed.curves if typed.movable or not first else {first: typed.curves[first]}


def list_configurations(view: JobView, totals: Mix) -> list[Gang]:
    """Every number of devices of one type that is worth holding and that the cluster has, the smallest first."""
    gangs = [
        Gang(device_type, share)
        for device_type, curve in curves_of(view).items()
        for share in curve.levels
        if share <= totals.get(device_type, 0)
    ]
    return sorted(gangs, key=lambda gang: gang.share)


def rate_of(view: JobView, gang: Gang) -> float:
    """Steps per second of a job in a configuration."""
    return curves_of(view)[gang.device_type].rate(gang.share)


def held_gang(view: JobView) -> Gang | None:
    """The configuration that a job is in; None if it holds nothing, or devices of several types."""
    if view.mix is None:
        return Gang("", view.share) if view.share else None
    return Gang(*next(iter(view.mix.items()))) if len(view.mix) == 1 else None


def count_totals(snapshot: Snapshot) -> dict[str, int]:
    """All devices by type, and under the empty name in all."""
    return {**snapshot.cluster.totals, "": snapshot.cluster.total}


def smallest_gang_size(job: Job) -> int:
    """The fewest devices of any type on which a job runs."""
    return min(curve.shares[0] for curve in job.typed.curves.values()) if job.typed else job.curve.shares[0]


def give_configurations(
    answers: Mapping[JobId, Answer], views: Iterable[JobView], chosen: Mapping[JobId, Gang]
) -> Decision:
    """The decision after which exactly the chosen jobs hold devices, each its configuration."""
    shares: dict[JobId, int] = {}
    mixes: dict[JobId, Mix] = {}
    for view in views:
        job_id, gang = view.job.id, chosen.get(view.job.id)
        if gang == held_gang(view) and (gang is not None or not view.share):
            continue
        if view.job.typed is None:
            shares[job_id] = gang.share if gang else 0
        else:
            mixes[job_id] = {gang.device_type: gang.share} if gang else {}
    return Decision(answers=answers, shares=shares, mixes=mixes)


def choose_cheapest(choices: Sequence[Sequence[PricedGang]], idle: Sequence[float], totals: Mix) -> list[Gang | None]:
    """One configuration per job, or none at its cost in `idle`, with the least sum and within the devices of each type.

    Devices of one type are handed out by dynamic programming, exactly, in O(jobs * configurations * devices). Several
    types make it an integer program (multi-dimensional knapsack), which branch and bound solves within NODE_LIMIT.
    """
    types = {gang.device_type for options in choices for gang, _ in options}
    if len(types) > 1:
        return _solve(choices, idle, totals)
    (device_type,) = types or {""}
    priced = [
        [(0, cost), *[(gang.share, each) for gang, each in options]]
        for cost, options in zip(idle, choices, strict=True)
    ]
    return [Gang(device_type, share) if share else None for share in distribute(priced, totals.get(device_type, 0))]


def distribute(choices: list[list[Choice]], devices: int) -> list[int]:
    """One share per job with the least sum of values and at most `devices` in all, the exact optimum.

    best[d] is the least sum for the jobs so far on at most d devices; ties go to the share listed first.
    """
    best: NDArray[np.float64] = np.zeros(devices + 1)
    taken = np.zeros((len(choices), devices + 1), dtype=np.int64)
    for row, options in enumerate(choices):
        before = best
        best = np.full(devices + 1, inf)
        for share, value in options:
            if share > devices:
                continue
            candidate = before[: devices + 1 - share] + value
            better = candidate < best[share:]
            best[share:][better] = candidate[better]
            taken[row, share:][better] = share
    shares = [0] * len(choices)
    left = devices
    for row in range(len(choices) - 1, -1, -1):
        shares[row] = int(taken[row, left])
        left -= shares[row]
    return shares


def _solve(choices: Sequence[Sequence[PricedGang]], idle: Sequence[float], totals: Mix) -> list[Gang | None]:
    """minimise sum_jc (cost_jc - idle_j) x_jc, x binary, sum_c x_jc <= 1, sum of devices of each type <= what there is.

    With no answer within the limit nobody gets anything: it has not been seen, since that is itself a solution.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # not at start-up: the import takes a while
    from scipy.sparse import csr_array

    flat = [(row, gang, cost - idle[row]) for row, options in enumerate(choices) for gang, cost in options]
    types = list(totals)
    jobs = np.array([row for row, _, _ in flat])
    kinds = np.array([types.index(gang.device_type) for _, gang, _ in flat]) + len(choices)
    devices = np.array([float(gang.share) for _, gang, _ in flat])
    columns = np.arange(len(flat))
    matrix = csr_array(
        (
            np.concatenate([np.ones(len(flat)), devices]),
            (np.concatenate([jobs, kinds]), np.concatenate([columns, columns])),
        ),
        shape=(len(choices) + len(types), len(flat)),
    )
    limits = np.concatenate([np.ones(len(choices)), [float(totals[name]) for name in types]])
    solution = milp(
        np.array([cost for _, _, cost in flat]),
        integrality=np.ones(len(flat), dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, -inf, limits),
        options={"node_limit": NODE_LIMIT, "mip_rel_gap": 1e-4},
    )
    chosen: list[Gang | None] = [None] * len(choices)
    if solution.x is not None:
        for (row, gang, _), value in zip(flat, solution.x, strict=True):
            if value > 0.5:
                chosen[row] = gang
    return chosen
