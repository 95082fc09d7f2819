"""Limits of one user: active jobs, and the device-seconds that may be outstanding.

Outstanding is what is still planned for a user's promised jobs and reserved offers, and what those need that wait for
the next decision; it comes back as jobs end. A job is measured by the fewest device-seconds on which it can be done.
"""

from math import inf

from springtide.control.scheduling import effects, speeds
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.submissions import Refusal
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.decisions import JobView, Plan, Status
from springtide.core.jobs import Job, JobId


def find_user(platform: Context, name: str) -> UserRecord | None:
    """The user of a name; None if there is none, or none any more."""
    return next((user for user in platform.book.store.users() if user.name == name), None)


def find_limit(platform: Context, name: str) -> int:
    """How many active jobs a user may have."""
    user = find_user(platform, name)
    own = user.most_active if user is not None else None
    return own if own is not None else platform.options.most_active


def check_active(platform: Context, name: str) -> str:
    """Why a user may have no further active job; empty if they may."""
    most = find_limit(platform, name)
    if len(platform.book.jobs) < most:
        return ""
    active = sum(record.user == name for record in platform.book.jobs.values())
    return f"user {name} has {active} active jobs; the limit is {most}; wait for one to end" if active >= most else ""


def check_quota(platform: Context, record: JobRecord) -> Refusal | None:
    """Why a job cannot be promised: it would exceed the device-seconds that its user may have outstanding.

    Nothing is said of jobs without a deadline, nor of those whose speed nobody knows yet.
    """
    user = find_user(platform, record.user)
    if user is None or user.quota_device_s is None or record.deadline_s is None:
        return None
    if not is_measured(platform, record):
        return None
    job = platform.build_job(record)
    wanted = least_device_s(job, job.work - record.step)
    left = max(0.0, user.quota_device_s - outstanding_device_s(platform, user.name, but=record.id))
    if wanted <= left:
        return None
    return Refusal(
        "quota_exceeded",
        f"it needs at least {wanted:.0f} device-seconds; of the quota of {user.quota_device_s:.0f}, "
        f"{left:.0f} are left for user {user.name}, which is enough for {most_work(job, left) / job.work:.0%} of it",
    )


def is_measured(platform: Context, record: JobRecord) -> bool:
    """Whether a job's work and speed are known: measured, or told by a rigid job."""
    if not record.spec.get("elastic", True):
        return "duration" in record.spec
    known = platform.known(record)
    return speeds.is_measured(known) and speeds.find_total(known) is not None


def enforce(platform: Context, job_id: str) -> None:
    """Decline a job that has just been measured, if its user's quota does not cover it."""
    refusal = check_quota(platform, platform.book.jobs[job_id])
    if refusal is not None:
        platform.world.finish(JobId(job_id), platform.clock.now_s())
        effects.decline(platform, job_id, refusal.reason, refusal.sentence)


def least_device_s(job: Job, work: float | None = None) -> float:
    """The fewest device-seconds on which a job, or so much of it, can be done."""
    left = job.work if work is None else work
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return min(share * (job.overhead.pause_s(share, starting=True) + left / rate) for share, rate in pairs)


def most_work(job: Job, device_s: float) -> float:
    """The most work that can be done on so many device-seconds."""
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return max(0.0, *(rate * (device_s / share - job.overhead.pause_s(share, starting=True)) for share, rate in pairs))


def outstanding_device_s(platform: Context, user: str, but: str = "") -> float:
    """Device-seconds still planned for a user's jobs, one of them left out."""
    now_s = platform.clock.now_s()
    own = [view for view in platform.world.jobs.values() if view.job.user == user and view.job.id != but]
    return sum(count_outstanding(view, now_s) for view in own)


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
