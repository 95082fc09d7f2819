"""What only time brings: promises in danger or missed, budgets spent, offers, waits for a probe and graces run out.

A promise counts as missed the moment its deadline passes, not when the job ends: a job that never ends is late too.
"""

from dataclasses import replace
from math import inf

from springtide.control.scheduling import offers, sentences, transitions
from springtide.control.scheduling.effects import NO_DEVICE
from springtide.control.scheduling.expected_ends import expect_slowdown, predict
from springtide.control.scheduling.live_jobs import build_job
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines import nodes
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.core.decisions import JobView
from springtide.core.job_states import JobCondition, JobState
from springtide.core.jobs import JobId, Purpose

STALLED = str(JobCondition.STALLED)
SHORTEST_STANDSTILL_S = 10.0


def check_job(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Look at what is due of one job; returns whether that calls for a decision."""
    nodes.let_stand(staging, world, record)
    changed = check_promise(staging, world, record)
    check_steps(staging, world, staging.jobs[record.id])
    if check_budget(staging, world, staging.jobs[record.id]) or check_runtime(staging, world, staging.jobs[record.id]):
        return True
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
    if view is None or world.inventory.away or record.condition("recovering") is not None:
        return False
    at_risk = record.condition("at_risk")
    if not record.devices:  # a job that waits for its plan cannot fall behind it
        if at_risk is not None and at_risk.reason == transitions.LOST_CAPACITY and not record.endangered:
            tell_safe(staging, record)
        return False
    predicted_s = predict(record, view, staging.speeds, world, now_s)
    if predicted_s is None or (predicted_s <= record.deadline_s and at_risk is None):
        return False
    if predicted_s <= record.deadline_s:
        tell_safe(staging, record)
        return False
    slowdown, cause = expect_slowdown(record, view, world), transitions.find_cause(record)
    sentence = sentences.tell_at_risk(predicted_s, record.deadline_s)
    if slowdown > 1.0 and not record.endangered:
        cause, sentence = transitions.OUTSIDE_LOAD, sentence + sentences.tell_slowed(slowdown, now_s)
    changed = record.with_condition("at_risk", cause, sentence, now_s)
    event = EventRecord(now_s, "at_risk", sentence, record.id, {"predicted_s": predicted_s})
    staging.stage(Effects(changed, (event,) if at_risk is None else ()))
    if at_risk is None:
        offers.release(staging, world, f"the promise of {record.name} is in danger")
    return at_risk is None


def tell_safe(staging: Staging, record: JobRecord) -> None:
    """A promise is in danger no longer."""
    event = EventRecord(staging.now_s, "safe", "its promise is out of danger", record.id)
    staging.stage(Effects(record.without_condition("at_risk"), (event,)))


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


def check_budget(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Pause a job whose budget is spent: it checkpoints and gives its devices back."""
    view = world.jobs.get(JobId(record.id))
    if record.spec.budget_usd is None or view is None or view.job.purpose is Purpose.PROBE:
        return False
    unsettled_s = view.served_at(staging.now_s) - record.served
    cost_usd = record.cost_usd + world.find_price(record.devices) * unsettled_s / 3600.0
    if cost_usd - record.usd_before < record.spec.budget_usd:
        return False
    transitions.pause(staging, world, record.id, "budget", f"its budget of {record.spec.budget} is spent")
    return True


def check_runtime(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """End a job that has held devices for as long as its file allows."""
    most_s, view = record.spec.max_runtime_s, world.jobs.get(JobId(record.id))
    if most_s is None or view is None or view.job.purpose is Purpose.PROBE:
        return False
    if view.ran_at(staging.now_s) - record.ran_before_s < most_s:
        return False
    sentence = (
        f"it has held devices for its max_runtime of {record.spec.max_runtime}; "
        f"{'its last checkpoint stays, and ' if record.spec.elastic else ''}resume gives it as long again"
    )
    transitions.end_at_limit(staging, world, record.id, "max_runtime", sentence)
    return True


def check_steps(staging: Staging, world: PlatformWorld, record: JobRecord) -> None:
    """Say of a job that runs and makes no steps that it stands still, once that is longer than its steps explain."""
    view, now_s, stalled = world.jobs.get(JobId(record.id)), staging.now_s, record.condition(STALLED)
    if view is None or not find_standstill(record, view, now_s):
        if stalled is not None:
            event = EventRecord(now_s, "stepping", "it makes steps again, or was started again", record.id)
            staging.stage(Effects(record.without_condition(STALLED), (event,)))
        return
    if stalled is None and record.stepped_s is not None:
        sentence = sentences.tell_stalled(record.step, record.stepped_s, record.spec.patience)
        event = EventRecord(now_s, STALLED, sentence, record.id, {"step": record.step})
        staging.stage(Effects(record.with_condition(STALLED, "no_steps", sentence, now_s), (event,)))


def find_standstill(record: JobRecord, view: JobView, now_s: float) -> bool:
    """Whether a job should make steps and has made none for ten times as long as one takes, or ten seconds.

    A pause that was decided (a start, a rescale, a fault) is not a standstill.
    """
    is_stepping = record.state is JobState.RUNNING and record.devices and record.stepped_s is not None
    if not is_stepping or view.progress.paused_until_s > now_s or not view.progress.rate:
        return False
    if record.condition("rescaling") is not None or record.condition("recovering") is not None:
        return False
    return now_s - max(record.stepped_s or 0.0, record.settled_s) > max(SHORTEST_STANDSTILL_S, 10 / view.progress.rate)


def check_wait_for_probe(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Decline a waitlisted job that could not be measured by the time it was told; returns whether it was."""
    if staging.now_s < (record.answer_by_s or inf) or not transitions.end_probe(staging, world, record.id):
        return False
    unmeasured = staging.jobs[record.id]
    staging.stage(transitions.decline(unmeasured, NO_DEVICE, sentences.UNMEASURED_IN_TIME, staging.now_s))
    return True
