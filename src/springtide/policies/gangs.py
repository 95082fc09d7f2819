"""Jobs that run on as many devices as they asked for, or not at all: what the rigid policies share.

It says how large a gang is, how long it still needs, and which gangs fit; in which order they are asked is the policy.
"""

from collections.abc import Iterable
from math import inf

from springtide.core.decisions import Answer, JobView, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.policies.answers import answer_arrivals


def gang_share(job: Job) -> int:
    """The share a rigid policy gives: the requested one, else the nearest permitted one below it, else the smallest."""
    return job.curve.share_within(job.requested) or job.curve.shares[0]


def answer_gangs(snapshot: Snapshot) -> dict[JobId, Answer]:
    """Admitted without a promise for each newcomer; declined where it asks for more devices than there are."""
    return answer_arrivals(snapshot, lambda job: max(job.requested, gang_share(job)))


def needed_s(view: JobView, now_s: float) -> float:
    """Seconds to the finish of a job that runs from now on: the rest of its pause, or a whole one, and its work."""
    if view.share:
        return max(view.progress.finish_s - now_s, 0.0)
    share = gang_share(view.job)
    return view.job.overhead.pause_s(share, starting=True) + view.progress.work_left / view.job.curve.rate(share)


def fit_in_order(views: Iterable[JobView], devices: int) -> dict[JobId, int]:
    """The gangs that run if each in turn takes its share where enough devices are left; others are passed over."""
    chosen: dict[JobId, int] = {}
    for view in views:
        if devices <= 0:
            break
        share = view.share or gang_share(view.job)
        if share <= devices:
            chosen[view.job.id] = share
            devices -= share
    return chosen


def change_shares(views: Iterable[JobView], chosen: dict[JobId, int]) -> dict[JobId, int]:
    """The shares that change when exactly the chosen jobs run."""
    wanted = ((view, chosen.get(view.job.id, 0)) for view in views)
    return {view.job.id: share for view, share in wanted if share != view.share}


def wake_if_waiting(views: Iterable[JobView], chosen: dict[JobId, int], at_s: float) -> float:
    """When to be called again: at `at_s` while some job waits, else only when something happens."""
    return at_s if any(view.job.id not in chosen for view in views) else inf


def stretch_round_s(views: Iterable[JobView], round_s: float) -> float:
    """A round of `round_s`, doubled until it is ten times the longest pause.

    Jobs that take turns would otherwise spend their turns pausing. The default rescale cost never stretches a round.
    """
    longest_s = max((view.job.overhead.pause_s(gang_share(view.job), starting=True) for view in views), default=0.0)
    while round_s < 10.0 * longest_s:
        round_s *= 2.0
    return round_s
