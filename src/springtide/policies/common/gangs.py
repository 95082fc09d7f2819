"""Jobs that run on as many devices as they asked for, or not at all: what the rigid policies share.

It says how large a gang is, of which device type, how long it still needs, and which gangs fit; in which order they
are asked is the policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, JobView, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.policies.common.answers import answer_arrivals


class Gang(NamedTuple):
    """What a rigid job runs on: devices of one type; of any where the job has no speeds by type."""

    device_type: str
    share: int


@dataclass(slots=True)
class Stock:
    """Devices left to hand out, by type, and under the empty name in all."""

    left: dict[str, int]

    def find(self, view: JobView) -> Gang | None:
        """The best gang of a job for which there is room."""
        return next((gang for gang in list_gangs(view) if gang.share <= self.left.get(gang.device_type, 0)), None)

    def take(self, gang: Gang) -> Gang:
        """Hand out a gang."""
        self.left[""] -= gang.share
        if gang.device_type:
            self.left[gang.device_type] -= gang.share
        return gang


def stock_free(snapshot: Snapshot) -> Stock:
    """The devices that no job holds."""
    counts = [mask.bit_count() for mask in snapshot.free_masks]
    left = {"": sum(counts)}
    for device_type, count in zip(snapshot.cluster.node_types, counts, strict=True):
        left[device_type] = left.get(device_type, 0) + count
    return Stock(left)


def stock_all(snapshot: Snapshot) -> Stock:
    """All devices there are."""
    return Stock({**snapshot.cluster.totals, "": snapshot.cluster.total})


def list_gangs(view: JobView) -> list[Gang]:
    """The gangs a job may run as: on the type it first ran on, else the one it prefers, else any, the fastest first."""
    typed, requested = view.job.typed, view.job.requested
    if typed is None:
        return [Gang("", view.share or gang_share(view.job))]
    only = view.first_device_type or typed.preferred
    if only:
        return [Gang(only, _round_share(typed.curves[only], requested))]
    gangs = [Gang(device_type, _round_share(curve, requested)) for device_type, curve in typed.curves.items()]
    return sorted(gangs, key=lambda gang: -typed.curves[gang.device_type].rate(gang.share))


def _round_share(curve: Curve, requested: int) -> int:
    return curve.share_within(requested) or curve.shares[0]


def gang_share(job: Job) -> int:
    """The share a rigid policy gives: the requested one, else the nearest permitted one below it, else the smallest."""
    return _round_share(job.curve, job.requested)


def answer_gangs(snapshot: Snapshot) -> dict[JobId, Answer]:
    """Admitted without a promise for each newcomer; declined where it asks for more devices than there are."""
    return answer_arrivals(snapshot, lambda job: max(job.requested, gang_share(job)))


def needed_s(view: JobView, now_s: float) -> float:
    """Seconds to the finish of a job that runs from now on: the rest of its pause, or a whole one, and its work."""
    if view.share:
        return max(view.progress.finish_s - now_s, 0.0)
    job = view.job
    device_type, share = list_gangs(view)[0]
    curve = job.curve if job.typed is None else job.typed.curves[device_type]
    return job.overhead.pause_s(share, starting=True) + view.progress.work_left / curve.rate(share)


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


def choose_gangs(views: Iterable[JobView], stock: Stock) -> dict[JobId, Gang]:
    """The gangs that run if each job in turn takes one where there is room; others are passed over."""
    chosen: dict[JobId, Gang] = {}
    for view in views:
        if stock.left[""] <= 0:
            break
        gang = stock.find(view)
        if gang is not None:
            chosen[view.job.id] = stock.take(gang)
    return chosen


def give_gangs(
    answers: dict[JobId, Answer], views: Iterable[JobView], chosen: Mapping[JobId, Gang], preempt: bool = False
) -> Decision:
    """The decision that starts the chosen gangs; with `preempt` it stops all others."""
    shares: dict[JobId, int] = {}
    mixes: dict[JobId, dict[str, int]] = {}
    for view in views:
        job_id = view.job.id
        gang = chosen.get(job_id)
        if gang is None and not (preempt and view.share):
            continue
        share = gang.share if gang else 0
        if share == view.share:
            continue
        if view.job.typed is None:
            shares[job_id] = share
        else:
            mixes[job_id] = {gang.device_type: share} if gang else {}
    return Decision(answers=answers, shares=shares, mixes=mixes)
