"""Pollux (OSDI 2021) with a fixed batch: shares that make the fair speed-ups of all jobs largest together.

Which variant: the fitness of the OSDI artifact, the power mean with p = -1 of `speedup * nodes / G + 1e-3` over jobs,
where speedup = T(share) / T(fair share), fair share = ceil(G / jobs). A job whose share would change is credited with
only max(age - restarts * d, 0) / (age + d) of its speed-up, d being its own pause (30 s there, the cost of a restart
in that simulator). Efficiency is 1: the traces fix the batch and count iterations, so goodput is throughput. A job
grows to at most twice the largest share it ever held and starts on one device, as Pollux learns its curve that way.
Decisions fall every 60 s; a newcomer between them gets one device if one is free. Deadline-blind.

The search is ours: with one speed per share (placement packs compactly) the fitness is a sum over jobs, so dynamic
programming over the devices handed out finds its exact optimum in O(jobs * shares * devices), where the artifact's
genetic search over a job x node matrix approximates it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import answer_arrivals, count_free, remaining_views, smallest_share
from springtide.policies.common.gangs import change_shares

ROUND_S = 60.0
FLOOR = 1e-3  # keeps the power mean finite for a job without devices

Choice = tuple[int, float]  # a share, and its part of the sum of inverse speed-ups to be made small


def pollux(now_s: float, snapshot: Snapshot) -> Decision:
    """Shares of largest fitness every minute; between, one free device for each newcomer."""
    answers = answer_arrivals(snapshot, smallest_share)
    views = list(remaining_views(snapshot, answers))
    memory = snapshot.memory
    ends_s = float(memory.get("round_ends_s", now_s))
    if now_s >= ends_s:
        ends_s = now_s + ROUND_S
        chosen = search(now_s, views, snapshot)
    else:
        chosen = {view.job.id: view.share for view in views if view.share} | welcome(views, count_free(snapshot))
    shares = change_shares(views, chosen)
    return Decision(
        answers=answers,
        shares=shares,
        wake_at_s=ends_s if may_change(views, chosen) else inf,
        memory={"round_ends_s": ends_s, "jobs": remember(views, shares, memory.get("jobs", {}))},
    )


def welcome(views: list[JobView], free: int) -> dict[JobId, int]:
    """The smallest share for each job that never ran, in order of arrival, while devices last."""
    chosen: dict[JobId, int] = {}
    for view in views:
        share = smallest_share(view.job)
        if view.first_start_s == inf and share <= free:
            chosen[view.job.id] = share
            free -= share
    return chosen


def may_change(views: list[JobView], chosen: dict[JobId, int]) -> bool:
    """Whether another round could decide otherwise although nobody comes or goes: some job is below its peak."""
    return any(chosen.get(view.job.id, 0) < view.job.curve.peak for view in views)


def remember(views: list[JobView], shares: dict[JobId, int], before: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """For each job that ever ran [largest share held, times restarted], after the shares change."""
    after: dict[str, list[int]] = {}
    for view in views:
        largest, restarts = before.get(view.job.id, (0, 0))
        share = shares.get(view.job.id, 0)
        if share:
            after[view.job.id] = [max(largest, share), restarts + (largest > 0)]
        elif largest:
            after[view.job.id] = [largest, restarts]
    return after


@dataclass(frozen=True, slots=True)
class Round:
    """What all jobs have in common when shares are searched for, and [largest share, restarts] of each."""

    now_s: float
    fair: int
    weight: float
    history: Mapping[str, list[int]]


def search(now_s: float, views: list[JobView], snapshot: Snapshot) -> dict[JobId, int]:
    """The shares of largest fitness; jobs that hold nothing in it are absent."""
    if not views:
        return {}
    devices = snapshot.cluster.total
    weight = len(snapshot.free_masks) / devices
    this = Round(now_s, ceil(devices / len(views)), weight, snapshot.memory.get("jobs", {}))
    shares = distribute([list_choices(this, view) for view in views], devices)
    return {view.job.id: share for view, share in zip(views, shares, strict=True) if share}


def list_choices(this: Round, view: JobView) -> list[Choice]:
    """The shares a job may get, each with the inverse of its weighted speed-up after the penalty for a restart."""
    curve = view.job.curve
    largest, restarts = this.history.get(view.job.id, (0, 0))
    fair_rate = curve.rate(curve.level_within(this.fair) or curve.shares[0])
    choices = [(0, 1.0 / FLOOR)]
    for share in curve.levels:
        if share <= max(2 * largest, curve.shares[0]):
            speedup = this.weight * curve.rate(share) / fair_rate
            if share != view.share:
                speedup *= restart_factor(this.now_s, view, share, restarts)
            choices.append((share, 1.0 / (speedup + FLOOR)))
    return choices


def restart_factor(now_s: float, view: JobView, share: int, restarts: int) -> float:
    """What a change of share leaves of a job's speed-up; nothing is lost by the first start."""
    if view.first_start_s == inf:
        return 1.0
    age_s = now_s - view.job.submit_s
    pause_s = view.job.overhead.pause_s(share, starting=not view.share)
    return max(age_s - restarts * pause_s, 0.0) / (age_s + pause_s) if age_s + pause_s > 0 else 1.0


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
