"""How soon an elastic job can end, which share ends it soonest, and in which order deadlines ask: the parts of EDF.

"Soonest" counts the pause that every change of share costs, so a job neither grows for a gain smaller than its pause
nor starts on more devices than its work is worth. Which jobs are admitted is none of its business.
"""

from bisect import bisect_right
from collections.abc import Iterable
from math import inf

from springtide.core.decisions import JobView, Progress
from springtide.core.jobs import Job

TOLERANCE_S = 1e-6  # a deadline is met up to this


def soonest_share(view: JobView, now_s: float, devices: int) -> tuple[int, float]:
    """The share within `devices` that ends a job soonest from now on, and when; (0, infinite) if none fits."""
    return find_soonest(view.job, view.share, view.progress, now_s, devices)


def find_soonest(job: Job, share: int, progress: Progress, now_s: float, devices: int) -> tuple[int, float]:
    """`soonest_share` of a job that holds `share` devices and stands at `progress`.

    Only shares worth holding are tried, never one beyond the throughput peak. The smallest wins a tie. A job that can
    keep its share does so, which costs no pause, unless a larger one ends it sooner.
    """
    levels = job.curve.levels
    best, finish_s = 0, inf
    if 0 < share <= devices:
        best, finish_s = share, progress.finish_s
        levels = levels[bisect_right(levels, share) :]
    if not levels or levels[0] > devices:
        return best, finish_s
    work_left = progress.work_left_at(now_s)
    for level in levels:
        if level > devices:
            break
        ready_s = job.overhead.resumes_s(now_s, level, not share, progress.paused_until_s)
        ends_s = ready_s + work_left / job.curve.rate(level)
        if ends_s < finish_s:
            best, finish_s = level, ends_s
    return best, finish_s


def in_time(view: JobView, now_s: float, devices: int) -> bool:
    """Whether a job can still meet its deadline with all devices to itself; never so without a deadline."""
    if view.job.best_effort:
        return False
    return soonest_share(view, now_s, devices)[1] <= view.job.deadline_s + TOLERANCE_S


def order_by_deadline(views: Iterable[JobView], now_s: float, devices: int) -> list[JobView]:
    """The jobs, most urgent first."""
    return sorted(views, key=lambda view: rank_urgency(view, now_s, devices))


def rank_urgency(view: JobView, now_s: float, devices: int) -> tuple[bool, float, int]:
    """The place of a job: deadlines that can still be met, then those that are late anyhow, then best effort."""
    return not in_time(view, now_s, devices), view.job.deadline_s, view.job.index
