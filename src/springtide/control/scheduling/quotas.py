"""Limits of one user: active jobs, and the device-seconds that may be outstanding.

Outstanding is what is still planned for a user's promised jobs and reserved offers, and what those need that wait for
the next decision; it comes back as jobs end. A job is measured by the fewest device-seconds on which it can be done.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from springtide.control.scheduling import speeds
from springtide.control.scheduling.context import Context
from springtide.control.storage.records import JobRecord
from springtide.core.decisions import JobView, Plan, Status
from springtide.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason code and a sentence, where no policy needs to be asked."""

    reason: str
    sentence: str


def check_active(context: Context, name: str) -> str:
    """Why a user may have no further active job; empty if they may."""
    user, jobs = context.find_user(name), context.staging.jobs
    most = context.options.most_active if user is None or user.most_active is None else user.most_active
    active = sum(record.user == name for record in jobs.values()) if len(jobs) >= most else 0
    refused = len(jobs) >= most and active >= most
    return f"user {name} has {active} active jobs; the limit is {most}; wait for one to end" if refused else ""


def check_quota(context: Context, record: JobRecord) -> Refusal | None:
    """Why a job cannot be promised: it would exceed the device-seconds that its user may have outstanding.

    Nothing is said of jobs without a deadline, nor of those whose speed nobody knows yet.
    """
    user = context.find_user(record.user)
    if user is None or user.quota_device_s is None or record.deadline_s is None:
        return None
    if not is_measured(context, record):
        return None
    job = context.build_job(record)
    wanted = least_device_s(job, job.work - record.step)
    own = [view for view in context.world.jobs.values() if view.job.user == user.name and view.job.id != record.id]
    left = max(0.0, user.quota_device_s - outstanding_device_s(own, context.now_s))
    if wanted <= left:
        return None
    return Refusal(
        "quota_exceeded",
        f"it needs at least {wanted:.0f} device-seconds; of the quota of {user.quota_device_s:.0f}, "
        f"{left:.0f} are left for user {user.name}, which is enough for {most_work(job, left) / job.work:.0%} of it",
    )


def is_measured(context: Context, record: JobRecord) -> bool:
    """Whether a job's work and speed are known: measured, or told by a rigid job."""
    if not record.spec.elastic:
        return record.spec.duration is not None
    known = context.find_known(record)
    return speeds.is_measured(known) and speeds.find_total(known) is not None


def least_device_s(job: Job, work: float | None = None) -> float:
    """The fewest device-seconds on which a job, or so much of it, can be done."""
    left = job.work if work is None else work
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return min(share * (job.overhead.pause_s(share, starting=True) + left / rate) for share, rate in pairs)


def most_work(job: Job, device_s: float) -> float:
    """The most work that can be done on so many device-seconds."""
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return max(0.0, *(rate * (device_s / share - job.overhead.pause_s(share, starting=True)) for share, rate in pairs))


def outstanding_device_s(views: Iterable[JobView], now_s: float) -> float:
    """Device-seconds still planned for jobs, or the fewest they will be promised at the next decision."""
    return sum(count_outstanding(view, now_s) for view in views)


def count_outstanding(view: JobView, now_s: float) -> float:
    """Device-seconds still planned for a job, or the fewest it will be promised at the next decision."""
    if view.promise is not None:
        return planned_device_s(view.promise.plan, now_s)
    is_next = view.status is Status.PENDING and view.job.deadline_s < inf
    return least_device_s(view.job, view.progress.work_left) if is_next else 0.0


def planned_device_s(plan: Plan, now_s: float) -> float:
    """Device-seconds of a plan from now on."""
    ends = [*(segment.start_s for segment in plan.segments[1:]), plan.finish_s]
    return sum(
        segment.share * max(0.0, min(end_s, plan.finish_s) - max(segment.start_s, now_s))
        for segment, end_s in zip(plan.segments, ends, strict=True)
    )
