"""What only time brings: promises in danger or missed, budgets spent, offers, waits for a probe and graces run out.

A promise counts as missed the moment its deadline passes, not when the job ends: a job that never ends is late too.
"""

from dataclasses import replace
from math import inf

from springtide.control.scheduling import offers, sentences, transitions
from springtide.control.scheduling.effects import NO_DEVICE
from springtide.control.scheduling.live_jobs import build_job, is_spent, predict
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId, Purpose


def check_job(staging: Staging, world: PlatformWorld, record: JobRecord, price: float | None) -> bool:
    """Look at what is due of one job; returns whether that calls for a decision. `price` is a device-hour's."""
    changed = check_promise(staging, world, record)
    changed |= price is not None and check_budget(staging, world, staging.jobs[record.id], price)
    if record.state is JobState.OFFERED:
        changed |= offers.expire(staging, world, staging.jobs[record.id])
    elif record.state is JobState.WAITLISTED:
        changed |= check_wait_for_probe(staging, world, staging.jobs[record.id])
    return changed


def check_promise(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Notice that a promise is in danger, out of it, or missed."""
    if not record.promised or record.missed or record.deadline_s is None:
        return False
    now_s, view = staging.now_s, world.jobs.get(JobId(record.id))
    if now_s > record.deadline_s:
        return miss(staging, world, record)
    if view is None or not record.devices or record.condition("recovering") is not None:
        return False  # a job that waits for its plan cannot fall behind it
    predicted_s = predict(record, view, staging.speeds, world.inventory, now_s)
    at_risk = record.condition("at_risk")
    if predicted_s is None or (predicted_s <= record.deadline_s and at_risk is None):
        return False
    if predicted_s <= record.deadline_s:
        event = EventRecord(now_s, "safe", "its promise is out of danger", record.id)
        staging.stage(Effects(record.without_condition("at_risk"), (event,)))
        return False
    sentence = sentences.tell_at_risk(predicted_s, record.deadline_s)
    changed = record.with_condition("at_risk", transitions.find_cause(record), sentence, now_s)
    event = EventRecord(now_s, "at_risk", sentence, record.id, {"predicted_s": predicted_s})
    staging.stage(Effects(changed, (event,) if at_risk is None else ()))
    if at_risk is None:
        offers.release(staging, world, f"the promise of {record.name} is in danger")
    return at_risk is None


def miss(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Count a promise as missed; the job runs on as the first of the best-effort jobs."""
    cause = transitions.find_cause(record)
    record = replace(record.without_condition("at_risk"), missed=cause, plan=None)
    event = EventRecord(staging.now_s, "missed", sentences.tell_missed(cause), record.id, {"cause": cause})
    staging.stage(Effects(record, (event,)))
    view = world.jobs.get(JobId(record.id))
    if view is None:
        return False
    world.set_promise(view.job.id, None)
    world.revise(build_job(record, staging.speeds, world.inventory), staging.now_s)
    return True


def check_budget(staging: Staging, world: PlatformWorld, record: JobRecord, price: float) -> bool:
    """Pause a job whose budget is spent: it checkpoints and gives its devices back."""
    view = world.jobs.get(JobId(record.id))
    served = 0.0 if view is None or view.job.purpose is Purpose.PROBE else view.served_at(staging.now_s)
    if not is_spent(record.spec, served, price):
        return False
    transitions.pause(staging, world, record.id, "budget", f"its budget of {record.spec.budget} is spent")
    return True


def check_wait_for_probe(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Decline a waitlisted job that could not be measured by the time it was told; returns whether it was."""
    if staging.now_s < (record.answer_by_s or inf) or not transitions.end_probe(staging, world, record.id):
        return False
    unmeasured = staging.jobs[record.id]
    staging.stage(transitions.decline(unmeasured, NO_DEVICE, sentences.UNMEASURED_IN_TIME, staging.now_s))
    return True
