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

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import answer_arrivals, count_free, remaining_views, smallest_share
from springtide.policies.common.gangs import change_shares
from springtide.policies.research.configurations import Choice, distribute
from springtide.policies.research.restarts import remember, restart_factor

ROUND_S = 60.0
FLOOR = 1e-3  # keeps the power mean finite for a job without devices


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
