"""What a restart costs a job in the eyes of Pollux and Sia, and what they remember of each job to know it."""

from collections.abc import Mapping
from math import inf

from springtide.core.decisions import JobView
from springtide.core.jobs import JobId


def restart_factor(now_s: float, view: JobView, share: int, restarts: int) -> float:
    """What a change of share leaves of a job's speed-up; nothing is lost by the first start."""
    if view.first_start_s == inf:
        return 1.0
    age_s = now_s - view.job.submit_s
    pause_s = view.job.overhead.pause_s(share, starting=not view.share)
    return max(age_s - restarts * pause_s, 0.0) / (age_s + pause_s) if age_s + pause_s > 0 else 1.0


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
