"""What only time brings: promises in danger or missed, offers that expire, budgets that are spent.

A promise counts as missed the moment its deadline passes, not when the job ends: a job that never ends is late too.
"""

from math import inf

from springtide.control.scheduling import effects, offers, probes
from springtide.control.scheduling.context import Context
from springtide.control.storage.records import JobRecord, State
from springtide.core.decisions import Decision, Status
from springtide.core.durations import show_instant, show_span
from springtide.core.job_file import JobFile
from springtide.core.jobs import Job, JobId

PREDICTION_STEP_S = 0.5  # smaller changes of a prediction are not worth writing down


def watch(platform: Context) -> bool:
    """Look at every active job; returns whether something calls for a decision."""
    changed = False
    for record in platform.book.active():
        changed |= watch_promise(platform, record)
        changed |= watch_budget(platform, platform.book.jobs[record.id])
        changed |= offers.watch(platform, platform.book.jobs[record.id])
        changed |= probes.watch(platform, platform.book.jobs[record.id])
    return changed


def watch_promise(platform: Context, record: JobRecord) -> bool:
    """Notice that a promise is in danger, out of it, or missed."""
    if not record.promised or record.missed or record.deadline_s is None:
        return False
    now_s = platform.clock.now_s()
    if now_s > record.deadline_s:
        return miss(platform, record)
    if not record.devices or record.condition("recovering") is not None:
        return False  # a job that waits for its plan cannot fall behind it
    predicted_s = platform.predict(record.id)
    if predicted_s is None:
        return False
    if predicted_s <= record.deadline_s:
        if platform.book.clear_condition(record.id, "at_risk"):
            platform.book.note("safe", "its promise is out of danger", record.id)
        return False
    late_s = predicted_s - record.deadline_s
    sentence = f"expected to end {show_span(late_s)} after its deadline, at {show_instant(predicted_s)}"
    is_new = platform.book.set_condition(record.id, "at_risk", effects.tell_cause(record), sentence)
    if is_new:
        platform.book.note("at_risk", sentence, record.id, predicted_s=predicted_s)
        offers.release(platform, f"the promise of {record.name} is in danger")
    return is_new


def miss(platform: Context, record: JobRecord) -> bool:
    """Count a promise as missed; the job runs on as the first of the best-effort jobs."""
    cause = effects.tell_cause(record)
    sentence = f"its deadline passed before it ended ({cause}); it runs on as the first of the best-effort jobs"
    platform.book.clear_condition(record.id, "at_risk")
    platform.book.change(record.id, missed=cause, plan=None)
    platform.book.note("missed", sentence, record.id, cause=cause)
    view = platform.world.jobs.get(JobId(record.id))
    if view is None:
        return False
    platform.world.set_promise(view.job.id, None)
    platform.world.revise(platform.build_job(platform.book.jobs[record.id]), platform.clock.now_s())
    return True


def watch_budget(platform: Context, record: JobRecord) -> bool:
    """Pause a job whose budget is spent: it checkpoints and gives its devices back."""
    price = platform.options.price_per_device_hour
    view = platform.world.jobs.get(JobId(record.id))
    if price is None or view is None or "budget" not in record.spec:
        return False
    budget_usd = JobFile.model_validate(record.spec).budget_usd
    spent_usd = view.served_at(platform.clock.now_s()) / 3600.0 * price
    if budget_usd is None or spent_usd < budget_usd:
        return False
    effects.pause(platform, record.id, "budget", f"its budget of {record.spec['budget']} is spent")
    return True


def is_admitted(decision: Decision, job: Job) -> bool:
    """Whether a rehearsed decision admits a job, with a plan that meets its deadline where there is one."""
    answer = decision.answers.get(job.id)
    return answer is not None and answer.status is Status.ADMITTED


def update_predictions(platform: Context, decision: Decision) -> None:
    """Write down when each running job, and each whose plan has changed, is now expected to end."""
    for record in platform.book.active():
        if record.state is State.OFFERED or (not record.devices and record.id not in decision.promises):
            continue
        predicted_s = platform.predict(record.id)
        if predicted_s is None or predicted_s == inf:
            continue
        if record.predicted_s is None or abs(predicted_s - record.predicted_s) > PREDICTION_STEP_S:
            platform.book.change(record.id, predicted_s=predicted_s)
