"""What only time brings: promises in danger or missed, budgets spent, offers, waits for a probe and graces run out.

A promise counts as missed the moment its deadline passes, not when the job ends: a job that never ends is late too.
"""

from dataclasses import replace
from math import inf

from springtide.control.scheduling import nodes, offers, sentences, transitions
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.effects import NO_DEVICE, is_waiting_for_probe
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId, Purpose


def check_time(context: Context) -> bool:
    """Look at everything that is due; returns whether something calls for a decision."""
    changed = False
    jobs = context.staging.jobs
    for record in context.staging.list_active():
        changed |= check_promise(context, record)
        changed |= check_budget(context, jobs[record.id])
        if record.state is JobState.OFFERED:
            changed |= offers.expire(context, jobs[record.id])
        elif is_waiting_for_probe(record):
            changed |= check_wait_for_probe(context, jobs[record.id])
    nodes.end_graces(context)
    return changed


def check_promise(context: Context, record: JobRecord) -> bool:
    """Notice that a promise is in danger, out of it, or missed."""
    if not record.promised or record.missed or record.deadline_s is None:
        return False
    if context.now_s > record.deadline_s:
        return miss(context, record)
    if not record.devices or record.condition("recovering") is not None:
        return False  # a job that waits for its plan cannot fall behind it
    predicted_s = context.predict(record, context.world.jobs.get(JobId(record.id)))
    at_risk = record.condition("at_risk")
    if predicted_s is None or (predicted_s <= record.deadline_s and at_risk is None):
        return False
    if predicted_s <= record.deadline_s:
        event = EventRecord(context.now_s, "safe", "its promise is out of danger", record.id)
        context.staging.stage(Effects(record.without_condition("at_risk"), (event,)))
        return False
    sentence = sentences.tell_at_risk(predicted_s, record.deadline_s)
    changed = record.with_condition("at_risk", transitions.find_cause(record), sentence, context.now_s)
    event = EventRecord(context.now_s, "at_risk", sentence, record.id, {"predicted_s": predicted_s})
    context.staging.stage(Effects(changed, (event,) if at_risk is None else ()))
    if at_risk is None:
        offers.release(context, f"the promise of {record.name} is in danger")
    return at_risk is None


def miss(context: Context, record: JobRecord) -> bool:
    """Count a promise as missed; the job runs on as the first of the best-effort jobs."""
    cause = transitions.find_cause(record)
    record = replace(record.without_condition("at_risk"), missed=cause, plan=None)
    event = EventRecord(context.now_s, "missed", sentences.tell_missed(cause), record.id, {"cause": cause})
    context.staging.stage(Effects(record, (event,)))
    view = context.world.jobs.get(JobId(record.id))
    if view is None:
        return False
    context.world.set_promise(view.job.id, None)
    context.world.revise(context.build_job(record), context.now_s)
    return True


def check_budget(context: Context, record: JobRecord) -> bool:
    """Pause a job whose budget is spent: it checkpoints and gives its devices back."""
    price, budget_usd = context.options.price_per_device_hour, record.spec.budget_usd
    view = context.world.jobs.get(JobId(record.id))
    if price is None or budget_usd is None or view is None or view.job.purpose is Purpose.PROBE:
        return False
    if view.served_at(context.now_s) / 3600.0 * price < budget_usd:
        return False
    transitions.pause(context, record.id, "budget", f"its budget of {record.spec.budget} is spent")
    return True


def check_wait_for_probe(context: Context, record: JobRecord) -> bool:
    """Decline a job that could not be measured by the time it was told; returns whether it was."""
    if context.now_s < (record.answer_by_s or inf):
        return False
    transitions.end_probe(context, record.id)
    record = context.staging.jobs[record.id]
    declined = transitions.decline(record, NO_DEVICE, sentences.UNMEASURED_IN_TIME, context.now_s)
    context.staging.stage(declined)
    return True
