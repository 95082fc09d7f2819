"""Whether a job can be paid for: out of its own budget, and out of what its user may have outstanding.

The device-seconds that may be outstanding are limited. Outstanding is what is still planned for a user's promised jobs
and reserved offers, and the fewest that all their other jobs, best effort too, still need; it comes back as jobs end. A
job is measured by the fewest device-seconds on which it can be done. A job of unknown work counts as all that is left,
so there is one of these at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from springtide.control.scheduling.live_jobs import JobFacts, look_up, make_job, needs_probe
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.control.storage.staging import Staging
from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Plan
from springtide.core.job_states import JobState
from springtide.core.jobs import Job

#: States in which work is still to be done, promised or not.
WORKING = frozenset({JobState.WAITLISTED, JobState.ADMITTED, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason code and a sentence, where no policy needs to be asked."""

    reason: str
    sentence: str


def check_means(staging: Staging, world: PlatformWorld, record: JobRecord, user: UserRecord | None) -> Refusal | None:
    """Why a job cannot be paid for: out of its own budget, or out of what its user may have outstanding."""
    return check_affordable(staging, world, record) or check_quota(staging, world, record, user)


def check_quota(staging: Staging, world: PlatformWorld, record: JobRecord, user: UserRecord | None) -> Refusal | None:
    """Why a job cannot be taken: it would exceed the device-seconds that its user may have outstanding.

    One whose size nobody knows fits into whatever is left, and then nothing is.
    """
    for quota in list_quotas(staging, record, user):
        refusal = check_against(staging, world, record, quota)
        if refusal is not None:
            return refusal
    return None


@dataclass(frozen=True, slots=True)
class OutstandingQuota:
    """Device-seconds that may be outstanding, of whose jobs, and what these people are called."""

    whose: str
    device_s: float
    owners: frozenset[str]


def list_quotas(staging: Staging, record: JobRecord, user: UserRecord | None) -> Iterator[OutstandingQuota]:
    """What a job counts against: its user's quota, then that of its user's project."""
    if user is not None and user.quota_device_s is not None:
        yield OutstandingQuota(f"user {user.name}", user.quota_device_s, frozenset({user.id}))
    project = staging.store.find_project(record.project) if record.project else None
    if project is not None and project.quota_device_s is not None:
        members = frozenset(one.id for one in staging.store.users() if one.project == project.name)
        yield OutstandingQuota(f"project {project.name}", project.quota_device_s, members | {record.owner})


def check_against(staging: Staging, world: PlatformWorld, record: JobRecord, quota: OutstandingQuota) -> Refusal | None:
    """Why a job does not fit into one quota, if it does not."""
    own = [view for view in world.jobs.values() if view.job.user in quota.owners and view.job.id != record.id]
    counted = {view.job.id: count_outstanding(staging, world.inventory, view) for view in own}
    endless = next((staging.jobs[job_id] for job_id, device_s in counted.items() if device_s == inf), None)
    if endless is not None:
        return Refusal("quota_exceeded", tell_endless(quota, endless))
    left = max(0.0, quota.device_s - sum(counted.values()))
    facts = look_up(record, staging.speeds, world.inventory)
    if not is_known(record, facts):
        return None if left > 0 else Refusal("quota_exceeded", tell_spent(quota))
    job = make_job(record, facts, world.inventory)
    wanted = least_device_s(job, job.work - record.step)
    if wanted <= left:
        return None
    return Refusal(
        "quota_exceeded",
        f"it needs at least {wanted:.0f} device-seconds; of the quota of {quota.device_s:.0f}, "
        f"{left:.0f} are left for {quota.whose}, which is enough for {most_work(job, left) / job.work:.0%} of it",
    )


def grant_anew(record: JobRecord) -> JobRecord:
    """A job that goes on: what it has used of a limit that it had reached counts no longer."""
    budget_usd, most_s = record.spec.budget_usd, record.spec.max_runtime_s
    if budget_usd is not None and record.cost_usd - record.usd_before >= budget_usd:
        record = replace(record, usd_before=record.cost_usd)
    if most_s is not None and record.ran_s - record.ran_before_s >= most_s:
        record = replace(record, ran_before_s=record.ran_s)
    return record


def tell_grant(record: JobRecord) -> str:
    """What a resume grants a job that has a budget: what is left of it, or all of it again once it is spent."""
    if record.spec.budget_usd is None:
        return ""
    left_usd = record.spec.budget_usd - (record.cost_usd - record.usd_before)
    if left_usd > 0:
        return f"; {left_usd:.2f} USD of its budget of {record.spec.budget} are left"
    return f"; its budget of {record.spec.budget} was spent and is granted once more"


def check_affordable(staging: Staging, world: PlatformWorld, record: JobRecord) -> Refusal | None:
    """Why a job cannot be promised: even on its cheapest share it would cost more than is left of its budget.

    Nothing is said of jobs whose speed nobody knows yet.
    """
    budget_usd = record.spec.budget_usd
    if budget_usd is None or record.deadline_s is None:
        return None
    facts = look_up(record, staging.speeds, world.inventory)
    if not is_known(record, facts):
        return None
    job = make_job(record, facts, world.inventory)
    rest, left_usd = job.work - record.step, max(0.0, budget_usd - (record.cost_usd - record.usd_before))
    cost_usd, price, curve = find_cheapest(job, rest, world.inventory)
    if cost_usd <= left_usd:
        return None
    paid = most_work(replace(job, curve=curve), 3600.0 * left_usd / price)
    fitting = f"{int(paid)} of its {rest:.0f} steps" if record.spec.elastic else "less"
    return Refusal(
        "budget_too_small",
        f"it would cost at least {cost_usd:.2f} USD here; what is left of its budget of {record.spec.budget}, "
        f"{left_usd:.2f} USD, pays for {fitting}",
    )


def find_cheapest(job: Job, work: float, inventory: Inventory) -> tuple[float, float, Curve]:
    """The dollars for so much of a job on the device type where it costs least, its price per hour, and the speeds."""
    curves = {inventory.device_types[0]: job.curve} if job.typed is None else job.typed.curves
    priced = ((inventory.prices.find(device_type), curve) for device_type, curve in curves.items())
    return min(
        ((price * least_device_s(replace(job, curve=curve), work) / 3600.0, price, curve) for price, curve in priced),
        key=lambda found: found[0],
    )


def is_known(record: JobRecord, facts: JobFacts) -> bool:
    """Whether it is known how much work a job is, and how fast that is done."""
    return bool(facts.measured) and facts.steps is not None if record.spec.elastic else record.spec.duration is not None


def tell_spent(quota: OutstandingQuota) -> str:
    """That nothing is left of a quota."""
    return f"the quota of {quota.device_s:.0f} device-seconds of {quota.whose} is taken up by their other jobs"


def tell_endless(quota: OutstandingQuota, record: JobRecord) -> str:
    """That a quota is taken up by a job whose size nobody knows, and what would tell it."""
    size = "steps: in its file, once its speed was measured," if record.spec.elastic else "duration: in its file"
    return (
        f"the quota of {quota.device_s:.0f} device-seconds of {quota.whose} is taken up by job {record.name}, of which "
        f"nobody knows how long it takes; wait for its end; {size} would tell"
    )


def least_device_s(job: Job, work: float | None = None) -> float:
    """The fewest device-seconds on which a job, or so much of it, can be done."""
    left = job.work if work is None else work
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return min(share * (job.overhead.pause_s(share, starting=True) + left / rate) for share, rate in pairs)


def most_work(job: Job, device_s: float) -> float:
    """The most work that can be done on so many device-seconds."""
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return max(0.0, *(rate * (device_s / share - job.overhead.pause_s(share, starting=True)) for share, rate in pairs))


def count_outstanding(staging: Staging, inventory: Inventory, view: JobView) -> float:
    """Device-seconds still planned for a job, or the fewest on which what is left of it can be done.

    Infinite if nobody knows how much that is. One that is put to the check again once it is measured counts from then;
    one that was declined, or is only measured, does not.
    """
    if view.promise is not None:
        return planned_device_s(view.promise.plan, staging.now_s)
    record = staging.jobs.get(view.job.id)
    if record is None or record.state not in WORKING:
        return 0.0
    facts = look_up(record, staging.speeds, inventory)
    if not is_known(record, facts):
        return 0.0 if needs_probe(record, facts) else inf
    return least_device_s(view.job, view.progress.work_left_at(staging.now_s))


def planned_device_s(plan: Plan, now_s: float) -> float:
    """Device-seconds of a plan from now on."""
    ends = [*(segment.start_s for segment in plan.segments[1:]), plan.finish_s]
    return sum(
        segment.share * max(0.0, min(end_s, plan.finish_s) - max(segment.start_s, now_s))
        for segment, end_s in zip(plan.segments, ends, strict=True)
    )
