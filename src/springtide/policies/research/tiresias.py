"""Tiresias (NSDI 2019): least attained service first, in a few queues.

Discretised 2D-LAS as run by the ElasticFlow artifact: attained service is devices x seconds held; a job enters queue
0 and falls into the next one when its service passes 3,250 and 7,200 device-seconds. Order: queue, inside it running
jobs before stopped ones, then entry into the queue. At every event and every demotion each job in that order takes its
requested devices where they fit, and all others give way. No promotion of starved jobs (the artifact's knob is 0).
Deadline-blind. Running first inside a queue saves pauses and met a quarter to a half more deadlines than entry alone.
"""

from collections.abc import Mapping
from math import inf, nextafter
from typing import Any

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import remaining_views
from springtide.policies.common.gangs import answer_gangs, change_shares, fit_in_order

QUEUE_LIMITS = (3250.0, 7200.0)  # device-seconds at which a job leaves queue 0, 1
ROUNDING = 1e-6  # device-seconds: a wake-up at the limit may find the service a rounding error short of it


def tiresias(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs the jobs of the first queues, each on its requested devices, until the next demotion."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    demoted = demote(now_s, snapshot, views)

    def place_in_queue(view: JobView) -> tuple[int, bool, float, int]:
        queue, entered_s = demoted.get(view.job.id, (0, view.job.submit_s))
        return queue, not view.share, entered_s, view.job.index

    chosen = fit_in_order(sorted(views, key=place_in_queue), snapshot.cluster.total)
    return Decision(
        answers=answers,
        shares=change_shares(views, chosen),
        wake_at_s=next_demotion_s(now_s, views, chosen, demoted),
        memory={"demoted": demoted} if demoted != snapshot.memory.get("demoted", {}) else None,
    )


def demote(now_s: float, snapshot: Snapshot, views: list[JobView]) -> dict[JobId, list[Any]]:
    """The jobs below queue 0, as [queue, when it entered], after those whose service passed a limit fell."""
    before: Mapping[JobId, list[Any]] = snapshot.memory.get("demoted", {})
    demoted = {job_id: place for job_id, place in before.items() if job_id in snapshot.jobs}
    for view in views:
        if view.share:
            served = view.served_at(now_s)
            queue = sum(served + ROUNDING >= limit for limit in QUEUE_LIMITS)
            if queue > demoted.get(view.job.id, [0])[0]:
                passed_s = max(served - QUEUE_LIMITS[queue - 1], 0.0) / view.share
                demoted[view.job.id] = [queue, now_s - passed_s]
    return demoted


def next_demotion_s(
    now_s: float, views: list[JobView], chosen: dict[JobId, int], demoted: Mapping[JobId, list[Any]]
) -> float:
    """When the first of the running jobs reaches the limit of its queue; infinite while no job waits."""
    if len(chosen) == len(views):
        return inf
    wake_at_s = inf
    for view in views:
        queue = demoted.get(view.job.id, [0])[0]
        if view.job.id in chosen and queue < len(QUEUE_LIMITS):
            left = QUEUE_LIMITS[queue] - view.served_at(now_s)
            wake_at_s = min(wake_at_s, now_s + left / chosen[view.job.id])
    return max(wake_at_s, nextafter(now_s, inf))
