"""Decisions worked into the book: answers, promises, devices and ends, each as a record, an event, an instruction.

Everything here is staged; nothing is done until the book is committed.
"""

from collections.abc import Sequence
from math import inf

from springtide.control.scheduling import device_types, sentences, speeds, submissions
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.instructions import make_cancel, make_order, make_probe, make_stop
from springtide.control.scheduling.live_world import write_plan
from springtide.control.storage.records import JobRecord, OrderRecord, State
from springtide.core.decisions import Answer, Decision, JobView, Reason, Status
from springtide.core.durations import show_span
from springtide.core.job_file import JobFile
from springtide.core.jobs import JobId
from springtide.core.typed_curves import TypedCurves
from springtide.executors.protocol import Instruction, Resize, Running, Start


def stage_decision(platform: Context, decision: Decision, now_s: float) -> list[tuple[JobView, Answer]]:
    """Apply a decision to the world and stage what follows from it; returns the jobs that were declined."""
    book, world = platform.book, platform.world
    declined: list[tuple[JobView, Answer]] = []
    views = {job_id: world.jobs[job_id] for job_id in decision.answers}
    moved = world.apply(decision, now_s)
    for job_id, answer in decision.answers.items():
        if job_id.startswith(submissions.PROBE_PREFIX):
            continue
        if answer.status is Status.DECLINED:
            declined.append((views[job_id], answer))
        stage_answer(platform, views[job_id], answer, decision)
    for job_id, promise in decision.promises.items():
        if job_id in book.jobs and not job_id.startswith(submissions.PROBE_PREFIX):
            plan = write_plan(promise)
            if book.jobs[job_id].plan != plan:
                book.change(job_id, plan=plan)
    for before, after in moved:
        if after is not before:
            stage_devices(platform, before, after, tell_reason(platform, decision.reasons.get(before.job.id)))
    if decision.memory is not None:
        book.put_fact("memory", dict(decision.memory))
    return declined


def tell_reason(platform: Context, reason: Reason | None) -> str:
    """Why the devices of a job change, with the name of the job they change for."""
    other = None if reason is None or reason.other is None else platform.book.jobs.get(str(reason.other))
    return "" if reason is None else sentences.tell_reason(reason, other, platform.clock.now_s())


def stage_answer(platform: Context, view: JobView, answer: Answer, decision: Decision) -> None:
    """Write an answer into a job's record."""
    book, now_s = platform.book, platform.clock.now_s()
    record = book.jobs[view.job.id]
    reason = sentences.name_reason(answer.reason)
    if answer.status is Status.ADMITTED:
        promise = decision.promises.get(view.job.id)
        margin = speeds.has_margin(platform.known(record))
        plan = promise.plan if promise is not None else None
        sentence = sentences.tell_admitted(record, answer, plan, margin, now_s)
        promised = answer.promised
        expected_s = plan.finish_s if plan is not None and plan.finish_s < inf else None
        book.change(record.id, state=State.ADMITTED, promised=promised, expected_s=expected_s, predicted_s=expected_s)
        reason = "promised" if promised else "best_effort" if record.deadline_s is None else reason
    elif answer.status is Status.WAITLISTED:
        sentence = sentences.tell_waitlisted(answer, now_s)
        by_s = None if answer.answer_by_s == inf else answer.answer_by_s
        book.change(record.id, state=State.WAITLISTED, answer_by_s=by_s)
    else:
        sentence = sentences.tell_declined(record, view.job, answer, now_s)
        book.change(record.id, state=State.DECLINED, finished_s=now_s)
    book.change(record.id, reason=reason, sentence=sentence, answered_s=now_s)
    book.note(str(answer.status), sentence, record.id, reason=reason)


def stage_devices(platform: Context, before: JobView, after: JobView, why: str) -> None:
    """Write a change of devices into a job's record, and the instruction that carries it out."""
    book, site = platform.book, platform.site
    is_probe = before.job.id.startswith(submissions.PROBE_PREFIX)
    record = book.jobs[before.job.id.removeprefix(submissions.PROBE_PREFIX)]
    held, given = record.devices, site.name_devices(after.devices)
    order: Instruction
    if is_probe and given and not held:
        order = make_probe(record, given, platform.home, platform.find_run_as(record.user))
        platform.world.revise(submissions.fix_share(after.job, site.count_types(given)), platform.clock.now_s())
    else:
        workers = device_types.deal_workers(after.job.typed, site, given)
        order = make_order(record, held, given, workers, platform.home, platform.find_run_as(record.user))
    book.order(order)
    record = book.change(record.id, generation=order.generation, devices=given)
    if given and not is_probe:
        first_s = platform.clock.now_s() if record.first_start_s is None else record.first_start_s
        record = book.change(
            record.id, first_start_s=first_s, first_device_type=record.first_device_type or site.type_of(given[0])
        )
    platform.settle(record.id, after)
    if is_probe:
        note_probe(platform, record, given)
    else:
        note_change(platform, record, order, held, why)


def deal_again(platform: Context, record: JobRecord, before: TypedCurves | None) -> None:
    """Move single logical workers between the devices of a job, if its speeds on them call for another mapping."""
    view = platform.world.jobs[JobId(record.id)]
    old, new = (device_types.deal_workers(typed, platform.site, record.devices) for typed in (before, view.job.typed))
    if new and new != old:
        stage_devices(platform, view, view, "its logical workers are dealt out by what was measured")


def note_probe(platform: Context, record: JobRecord, given: tuple[str, ...]) -> None:
    """Tell that a probe starts, or lost its devices."""
    sentence = (
        f"measures its speed on {', '.join(given)}" if given else "its probe gave way to a promise; it will go on"
    )
    platform.book.note("probing", sentence, record.id, devices=list(given))


def note_change(platform: Context, record: JobRecord, order: Instruction, held: tuple[str, ...], why: str) -> None:
    """Tell how a job's devices change and why, as state, condition and event."""
    book, given = platform.book, record.devices
    workers = list(order.workers) if isinstance(order, Start | Resize) else []
    data = {"from": len(held), "to": len(given), "devices": list(given), "workers": workers}
    if held and given:
        verb = "grows" if len(given) > len(held) else "shrinks" if len(given) < len(held) else "moves"
        sentence = f"{verb} from {platform.site.describe(held)} to {platform.site.describe(given)}"
        sentence += f": {why}" if why else ""
        book.change(record.id, rescales=record.rescales + 1)
        book.set_condition(record.id, "rescaling", verb, sentence)
        book.note(verb, sentence, record.id, **data)
    elif given:
        book.note("placed", f"gets {', '.join(given)}" + (f": {why}" if why else ""), record.id, **data)
    else:
        book.clear_condition(record.id, "rescaling")
        book.change(record.id, state=State.ADMITTED)
        book.note("suspended", "gives its devices to others for now" + (f": {why}" if why else ""), record.id, **data)


def end_job(platform: Context, job_id: str, state: State, reason: str, sentence: str, at_s: float) -> None:
    """Take a job out of the world and close its record."""
    book = platform.book
    record = book.jobs[job_id]
    view = platform.view(job_id)
    if view is not None:
        platform.settle(job_id, view)
        platform.world.finish(view.job.id, platform.clock.now_s())
    missed = record.missed
    if record.promised and not missed and (record.deadline_s or inf) < at_s:
        missed = tell_cause(record)
    book.change(
        job_id,
        state=state,
        reason=reason,
        sentence=sentence,
        finished_s=at_s,
        devices=(),
        conditions=(),
        missed=missed,
        predicted_s=None,
    )
    book.note(str(state), sentence + tell_margin(book.jobs[job_id]), job_id, reason=reason)


def tell_margin(record: JobRecord) -> str:
    """How a finish compares with its promise."""
    if not record.promised or record.deadline_s is None or record.finished_s is None:
        return ""
    if record.state is not State.SUCCEEDED:
        return ""
    early_s = record.deadline_s - record.finished_s
    return f"; {show_span(early_s)} before its deadline" if early_s >= 0 else f"; {show_span(-early_s)} late"


def tell_cause(record: JobRecord) -> str:
    """Why a promise was missed, in a word: lost capacity, faults, or a job slower than it was measured."""
    risk = record.condition("at_risk")
    if risk is not None and risk.reason == "lost_capacity":
        return risk.reason
    return "faults" if record.faults else "slower_than_measured"


def leave_devices(platform: Context, job_id: str) -> None:
    """A job gave its devices back by itself: correct the world and the record. A probe that ended becomes a job."""
    book, world, now_s = platform.book, platform.world, platform.clock.now_s()
    if end_probe(platform, job_id):
        arrive(platform, job_id)
        return
    world.apply(Decision(allocations={JobId(job_id): ()}), now_s)
    platform.settle(job_id, world.jobs[JobId(job_id)])
    book.change(job_id, devices=(), state=State.ADMITTED)


def end_probe(platform: Context, job_id: str) -> bool:
    """Take a job's probe out of the world, with the devices it held; returns whether there was one."""
    probe = JobId(submissions.PROBE_PREFIX + job_id)
    if probe not in platform.world.jobs:
        return False
    platform.world.finish(probe, platform.clock.now_s())
    platform.book.change(job_id, devices=())
    return True


def arrive(platform: Context, job_id: str) -> None:
    """Put a job before the policy: itself if its speed is known or nothing is promised, else a probe."""
    book, now_s = platform.book, platform.clock.now_s()
    record = book.jobs[job_id]
    job = JobFile.model_validate(record.spec)
    known = platform.known(record)
    steps = submissions.count_steps(record, job, known)
    measured = steps is not None and speeds.is_measured(known)
    if record.deadline_s is not None and job.elastic and not measured:
        arrive_probe(platform, job_id, device_types.list_device_types(record, platform.site))
        return
    workers = record.logical_workers or speeds.find_workers(known)
    book.change(job_id, total_steps=steps if job.elastic else None, logical_workers=workers)
    platform.world.arrive(platform.build_job(book.jobs[job_id]), now_s)


def arrive_probe(platform: Context, job_id: str, where: Sequence[str]) -> None:
    """Put the probe of a job before the policy, to be measured on one of these device types."""
    book = platform.book
    sentence = "its speed is not known yet; a probe of at most 15 s measures it"
    record = book.change(job_id, state=State.PROBING, reason="unknown_speed", sentence=sentence)
    platform.world.arrive(submissions.make_probe_job(record, platform.site, where), platform.clock.now_s())


def decline(platform: Context, job_id: str, reason: str, sentence: str) -> None:
    """Decline a job without asking a policy."""
    book, now_s = platform.book, platform.clock.now_s()
    book.change(job_id, state=State.DECLINED, reason=reason, sentence=sentence, answered_s=now_s, finished_s=now_s)
    book.note("declined", sentence, job_id, reason=reason)


def cancel(platform: Context, job_id: str, sentence: str) -> None:
    """End a job because its owner said so."""
    book = platform.book
    record = book.jobs[job_id]
    if record.generation:
        order = make_cancel(job_id, record.generation + 1, "cancelled")
        book.order(order)
        book.change(job_id, generation=order.generation)
    end_job(platform, job_id, State.CANCELLED, "cancelled", sentence, platform.clock.now_s())


def start_again(platform: Context, job_id: str) -> None:
    """Start what should be running under a new generation, from its last checkpoint, on the same devices."""
    book = platform.book
    record = book.jobs[job_id]
    if record.state is State.PROBING:
        order: Instruction = make_probe(record, record.devices, platform.home, platform.find_run_as(record.user))
    else:
        view = platform.view(job_id)
        workers = device_types.deal_workers(view.job.typed if view is not None else None, platform.site, record.devices)
        order = make_order(record, (), record.devices, workers, platform.home, platform.find_run_as(record.user))
        book.set_condition(job_id, "recovering", "lost", "the executor lost it; it starts again")
        book.change(job_id, faults=record.faults + 1)
    book.order(order)
    book.change(job_id, generation=order.generation)


def end_stray(platform: Context, name: str, running: Running) -> None:
    """Cancel what runs although it has ended or was never ours."""
    record = platform.book.jobs.get(name)
    if record is not None and (record.devices or running.state == "stopping"):
        return
    if record is not None and running.generation >= record.generation:
        return
    if record is None and running.state != "stopping":
        known = platform.book.store.job(name)
        if known is None or not known.active:
            generation = max(running.generation, 0 if known is None else known.generation) + 1
            platform.book.order(make_cancel(name, generation, "stray"))


def pause(platform: Context, job_id: str, reason: str, sentence: str) -> None:
    """Checkpoint a job and take it out of the world until it is resumed."""
    book = platform.book
    record = book.jobs[job_id]
    view = platform.view(job_id)
    if view is not None:
        platform.settle(job_id, view)
        platform.world.finish(view.job.id, platform.clock.now_s())
    if record.devices:
        order = make_stop(record, reason)
        book.order(order)
        book.change(job_id, generation=order.generation, devices=())
    book.change(job_id, state=State.PAUSED, reason=reason, sentence=sentence, predicted_s=None)
    book.note("paused", sentence, job_id, reason=reason)


def give_up(platform: Context, order: OrderRecord, why: str) -> None:
    """An instruction is refused again and again: its job fails with the executor's words, its devices are free."""
    sentence = f"the executor refuses to {order.body.get('kind', 'obey')} it: {why}"
    platform.book.note("order_refused", sentence, order.job, generation=order.generation)
    record = platform.book.jobs.get(order.job)
    if record is not None and record.active and record.devices:
        end_job(platform, order.job, State.FAILED, "refused_by_executor", sentence, platform.clock.now_s())
