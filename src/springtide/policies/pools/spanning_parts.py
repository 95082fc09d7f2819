"""Promises that span device types: what each pool sees of one.

Such a job holds a fixed block of each type from its admission to its end. Inside a pool its part is an ordinary
promised job of one share, at the speed of the whole mix and with the end of its plan as its deadline: no pool can
shrink or delay it, and a pool that moves it spends the one reserve that all of them hold. What one pool has changed
(`Word`) the next one knows before it decides. Which job gets which block is settled in `spans`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from springtide.core.curves import Curve
from springtide.core.decisions import Decision, JobView, Plan, Progress, Promise, Segment, Status
from springtide.core.devices import count_devices
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.typed_curves import Mix
from springtide.placement.type_pools import Pool
from springtide.policies.planning.filling import GUARD_S


class PartDecision(NamedTuple):
    """What a pool has decided about its part: the plan from now on, and whether the job pauses for a move."""

    plan: Plan
    moved: bool


def is_spanning(view: JobView) -> bool:
    """Whether a job is promised its finish on several types at once."""
    return view.promise is not None and view.mix is not None and len(view.mix) > 1


def narrow_part(pool: Pool, view: JobView, now_s: float, word: PartDecision | None) -> JobView:
    """The part of a running job in a pool, as the pools before it left the job."""
    assert view.promise is not None and view.mix is not None
    plan = view.promise.plan if word is None else word.plan
    devices = pool.narrow(view.devices)
    share = count_devices(devices)
    progress = view.progress
    if word is not None and word.moved:
        ready_s = view.job.overhead.resumes_s(now_s, view.share, False, progress.paused_until_s)
        progress = Progress(progress.work_left_at(now_s), progress.rate, now_s, ready_s)
    job = draw_part(view.job, view.mix, pool.device_type, plan.held_until_s)
    promise = Promise(plan.held_until_s, with_share(plan, share))
    return replace(view, job=job, progress=progress, devices=devices, share=share, promise=promise, mix=None)


def narrow_newcomer(view: JobView, mix: Mix, device_type: str, now_s: float, word: PartDecision | None) -> JobView:
    """The part in a pool of a job that is to start on a mix now; it must end when it ends in the pools before it."""
    until_s = find_end_s(view, mix, now_s) if word is None else word.plan.held_until_s
    job = draw_part(view.job, mix, device_type, until_s)
    return replace(view, job=job, status=Status.ADMITTED, devices=(), share=0, promise=None, mix=None)


def find_end_s(view: JobView, mix: Mix, now_s: float) -> float:
    """When a job that starts on a mix now is done, with the reserve for one move if the deadline leaves room for it."""
    assert view.job.typed is not None
    overhead, devices = view.job.overhead, sum(mix.values())
    work_s = view.progress.work_left_at(now_s) / view.job.typed.rate(mix)
    end_s = now_s + overhead.pause_s(devices, starting=True) + work_s + GUARD_S
    reserved_s = end_s + overhead.pause_s(devices)
    return reserved_s if reserved_s <= view.job.deadline_s else end_s


def draw_part(job: Job, mix: Mix, device_type: str, until_s: float) -> Job:
    """A job of one share: what it holds of one type, at the speed and the pause of the whole mix."""
    assert job.typed is not None
    overhead = Overhead(job.overhead.pause_s(sum(mix.values())), start_s=job.overhead.start_s)
    curve = Curve((mix[device_type],), (job.typed.rate(mix),))
    return replace(job, curve=curve, deadline_s=until_s, overhead=overhead, typed=None)


def with_share(plan: Plan, share: int) -> Plan:
    """The plan of a block with another number of devices in it."""
    return replace(plan, segments=tuple([Segment(segment.start_s, share) for segment in plan.segments]))


def hear(decision: Decision, views: Mapping[JobId, JobView], job_id: JobId) -> PartDecision | None:
    """What a pool has decided about a part, None if nothing."""
    promise = decision.promises.get(job_id)
    return (
        None
        if promise is None
        else PartDecision(promise.plan, bool(views[job_id].share) and job_id in decision.allocations)
    )


def widen_promise(job: Job, mix: Mix, promise: Promise) -> Promise:
    """The promise of a whole job from that of its part in the pool that decided last."""
    return Promise(job.deadline_s, with_share(promise.plan, sum(mix.values())), "+".join(mix))
