"""The turns in the life of one job: it arrives, is answered, gets or leaves devices, is paused, cancelled, or ends.

Each brings the world, the record, the events and the instructions in line, all staged together. Who turns is decided
elsewhere: by the policy (`effects`), by time (`timers`), by the executor (`events`), by its owner (`operations`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from springtide.control.scheduling import sentences
from springtide.control.scheduling.instructions import make_cancel, make_change, make_probe, make_stop, make_stop_of
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_jobs import (
    deal_workers,
    find_slowdown,
    fix_share,
    list_device_types,
    look_up,
    make_job,
    make_probe_job,
    needs_probe,
)
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.storage.records import EventRecord, JobRecord, PlanRecord, UsageRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.decisions import Answer, Decision, JobView, Promise, Reason, Status
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId, Purpose
from springtide.core.typed_curves import TypedCurves
from springtide.executors.protocol import Instruction, Resize, Running, Start

UNMEASURED = "unknown_speed"
QUARANTINED = "quarantined"  # why a job is held
NO_SECRETS = "no_secrets"  # why a job is paused
DRAINED = "drained"  # why devices change, where it is not the policy that says so
LOST_CAPACITY, OUTSIDE_LOAD = "lost_capacity", "outside_load"  # why a promise is in danger


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that the world has taken in; the jobs it answers as they were, those it moves before and after."""

    decision: Decision
    asked: Mapping[JobId, JobView]
    moved: Sequence[tuple[JobView, JobView]]


@dataclass(frozen=True, slots=True)
class Why:
    """Why the devices of a job change, in words and as data."""

    sentence: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: its last state, a reason code, and what is told."""

    state: JobState
    reason: str
    sentence: str


def stage_changes(staging: Staging, world: PlatformWorld, state_dir: StateDir, decided: Decided) -> bool:
    """Stage answers, promises and devices: one change for each job, those that move in the order of the decision.

    Jobs that would start without their secrets wait for them instead; returns whether that frees devices.
    """
    changes, decision = dict[str, Effects](), decided.decision
    for job_id, view in decided.asked.items():
        if view.job.purpose is Purpose.TRAIN:
            answer, asked = decision.answers[job_id], decision.promises.get(job_id)
            changes[job_id] = answer_job(staging, view.job, answer, asked, world.inventory)
    for job_id, promise in decision.promises.items():
        effects = changes.get(job_id) or Effects(staging.jobs[job_id])
        plan = write_plan(promise)
        if effects.record.plan != plan:
            changes[job_id] = replace(effects, record=replace(effects.record, plan=plan))
    unprovided = find_unprovided(staging, state_dir, decided)
    for before, after in decided.moved:
        if after is not before and after.job.id not in unprovided:
            effects = changes.pop(before.job.id, Effects(staging.jobs[before.job.id]))
            left = find_left(world.inventory, effects.record, after)
            told = decision.reasons.get(before.job.id)
            why = tell_drained(left) if left else tell_reason(staging, effects.record, told)
            changes[before.job.id] = change_devices(staging, world, state_dir, effects, after, why)
    for effects in changes.values():
        staging.stage(effects)
    for job_id in unprovided:
        await_secrets(staging, world, job_id)
    if decision.memory is not None:
        staging.put_fact("memory", dict(decision.memory))
    return bool(unprovided)


def find_unprovided(staging: Staging, state_dir: StateDir, decided: Decided) -> list[JobId]:
    """The jobs that a decision starts and whose secrets are not here."""
    started = [after.job.id for _, after in decided.moved if after.devices and not staging.jobs[after.job.id].devices]
    return [job_id for job_id in started if lacks_secrets(staging, state_dir, job_id)]


def lacks_secrets(staging: Staging, state_dir: StateDir, job_id: str) -> bool:
    """Whether a job's secrets are not here: they are in no database, but in the home of the server that took them."""
    if not staging.jobs[job_id].spec.secrets or job_id in staging.secrets:
        return False
    return not any(place.exists() for place in (state_dir.secrets_file(job_id), state_dir.new_secrets / job_id))


def await_secrets(staging: Staging, world: PlatformWorld, job_id: str) -> None:
    """Let a job whose secrets are not here wait for its owner, who has them: to start it would be to fail it."""
    pause(staging, world, job_id, NO_SECRETS, sentences.tell_no_secrets(job_id))


def answer_job(staging: Staging, job: Job, answer: Answer, promise: Promise | None, inventory: Inventory) -> Effects:
    """What follows for a job from its answer; only of a promise it matters how sure its speed is."""
    record, now_s = staging.jobs[job.id], staging.now_s
    reason = sentences.REASONS.get(answer.reason, answer.reason)
    if answer.status is Status.ADMITTED:
        plan = promise.plan if promise is not None else None
        has_margin = answer.promised and look_up(record, staging.speeds, inventory).has_margin
        sentence = sentences.tell_admitted(record, answer, plan, has_margin)
        expected_s = plan.finish_s if plan is not None and plan.finish_s < inf else None
        reason = "promised" if answer.promised else "best_effort" if record.deadline_s is None else reason
        # a job may have run on spare devices while its answer was open
        state = JobState.RUNNING if record.state is JobState.RUNNING else JobState.ADMITTED
        record = replace(record, state=state, promised=answer.promised, expected_s=expected_s, predicted_s=expected_s)
    elif answer.status is Status.WAITLISTED:
        sentence = sentences.tell_waitlisted(answer)
        by_s = None if answer.answer_by_s == inf else answer.answer_by_s
        record = replace(record, state=JobState.WAITLISTED, answer_by_s=by_s)
    else:
        sentence = sentences.tell_declined(record, job, answer, now_s)
        record = replace(record, state=JobState.DECLINED, finished_s=now_s)
    if record.deadline_s is not None:
        sentence += sentences.tell_slowed(find_slowdown(job, inventory), now_s)
    record = replace(record, reason=reason, sentence=sentence, answered_s=now_s)
    return Effects(record, (EventRecord(now_s, str(answer.status), sentence, record.id, {"reason": reason}),))


def write_plan(promise: Promise) -> PlanRecord:
    """The plan of a promise as it is stored."""
    plan = promise.plan
    segments = tuple((segment.start_s, segment.share) for segment in plan.segments)
    return PlanRecord(segments, plan.finish_s, plan.held_until_s, promise.device_type)


def tell_reason(staging: Staging, record: JobRecord, reason: Reason | None) -> Why:
    """Why the devices of a job change; `other` is the job they change for."""
    if reason is None:
        return Why()
    other = None if reason.other is None else staging.jobs.get(str(reason.other))
    why = sentences.tell_reason(reason, other, record.owner)
    named = {} if other is None else {"other": other.id, "other_name": other.name, "other_user": other.owner}
    return Why(why, {"cause": str(reason.cause), "why": why, **named})


def find_left(inventory: Inventory, record: JobRecord, view: JobView) -> list[str]:
    """The drained nodes that a job leaves, if it is not to have more devices than it had: they are why it changes.

    A policy does not know of them. It decides for the devices that are left, and its reason is one for those.
    """
    given = inventory.name_devices(view.devices)
    gone = set(record.devices).difference(given)
    if len(given) > len(record.devices):
        return []
    return [node for node in inventory.nodes if node in inventory.drained and gone & set(inventory.names_of(node))]


def tell_drained(nodes: Sequence[str]) -> Why:
    """Why the devices of a job change that was on drained nodes."""
    named = " and ".join(map(sentences.name_node, nodes))
    why = f"{named} {'is' if len(nodes) == 1 else 'are'} drained"
    return Why(why, {"cause": DRAINED, "why": why, "nodes": list(nodes)})


def change_devices(
    staging: Staging, world: PlatformWorld, state_dir: StateDir, effects: Effects, view: JobView, why: Why
) -> Effects:
    """What follows when a job is to have the devices of its view: the instruction, the record, the event."""
    record, inventory, now_s = effects.record, world.inventory, staging.now_s
    given = inventory.name_devices(view.devices)
    run_as = staging.store.find_run_as(record.owner) if given and not record.devices else None
    is_probe = view.job.purpose is Purpose.PROBE
    instruction: Instruction
    if is_probe and given and not record.devices:
        instruction = make_probe(record, given, state_dir, run_as)
        world.revise(fix_share(view.job, inventory.count_types(given)), now_s)
    else:
        workers = () if view.job.typed is None else deal_workers(view.job.typed, inventory, given)
        instruction = make_change(record, given, workers, state_dir, run_as)
    if is_probe:
        sentence = f"measures its speed on {', '.join(given)}" if given else sentences.PROBE_YIELDS
        event = EventRecord(now_s, "probing", sentence, record.id, {"devices": list(given)})
    else:
        record, event = tell_change(record, instruction, given, inventory, why, now_s)
    record = account(staging, world, record, view)
    hourly_usd = None if world.prices.is_empty else len(given) * world.find_price(given)
    record = replace(record, generation=instruction.generation, devices=given, hourly_usd=hourly_usd)
    return Effects(record, (*effects.events, event), instruction, effects.offers)


def tell_change(
    record: JobRecord, instruction: Instruction, given: tuple[str, ...], inventory: Inventory, why: Why, now_s: float
) -> tuple[JobRecord, EventRecord]:
    """How a job's devices change and why, as state and condition of its record and as an event."""
    held, because = record.devices, f": {why.sentence}" if why.sentence else ""
    workers = list(instruction.workers) if isinstance(instruction, Start | Resize) else []
    facts = {"from": len(held), "to": len(given), "devices": list(given), "workers": workers, **why.data}
    if held and given:
        verb = "grows" if len(given) > len(held) else "shrinks" if len(given) < len(held) else "moves"
        sentence = f"{verb} from {inventory.describe(held)} to {inventory.describe(given)}{because}"
        record = record.with_condition("rescaling", verb, sentence, now_s)
        record = replace(record, rescales=record.rescales + 1)
    elif given:
        verb, sentence = "placed", f"gets {', '.join(given)}{because}"
    else:
        verb, sentence = "suspended", f"gives its devices to others for now{because}"
        state = JobState.WAITLISTED if record.unanswered else JobState.ADMITTED
        state = record.state if record.state is JobState.DECLINED else state
        record = replace(record.without_condition("rescaling"), state=state)
    if given:
        first_s = now_s if record.first_start_s is None else record.first_start_s
        first_type = record.first_device_type or inventory.types_by_name[given[0]]
        record = replace(record, first_start_s=first_s, first_device_type=first_type)
    return record, EventRecord(now_s, verb, sentence, record.id, facts)


def deal_anew(
    staging: Staging, world: PlatformWorld, state_dir: StateDir, record: JobRecord, before: TypedCurves | None
) -> None:
    """Move single logical workers between the devices of a job, if its speeds on them call for another mapping."""
    view = world.jobs[JobId(record.id)]
    old, new = (deal_workers(typed, world.inventory, record.devices) for typed in (before, view.job.typed))
    if new and new != old:
        dealt = change_devices(staging, world, state_dir, Effects(record), view, Why(sentences.DEALT_ANEW))
        staging.stage(dealt)


def arrive(staging: Staging, world: PlatformWorld, record: JobRecord) -> None:
    """Put a job before the policy: itself if its speed is known or nothing is promised, else a probe."""
    facts = look_up(record, staging.speeds, world.inventory)
    if needs_probe(record, facts):
        arrive_probe(staging, world, record, list_device_types(record, world.inventory))
        return
    if JobId(record.id) in world.jobs:
        return  # it came with its array
    coming = find_array(staging, world, record)
    if not coming:
        told = {"reason": "array_unmeasured", "sentence": sentences.WAITS_FOR_ARRAY}
        staging.change(record.id, state=JobState.WAITLISTED, **told)
        return
    for one in coming:
        facts = look_up(one, staging.speeds, world.inventory)
        steps = facts.steps if one.spec.elastic else None
        one = staging.change(one.id, total_steps=steps, logical_workers=facts.workers)
        world.arrive(make_job(one, facts, world.inventory), staging.now_s)


def find_array(staging: Staging, world: PlatformWorld, record: JobRecord) -> list[JobRecord]:
    """The jobs that are put before the policy together with one: itself, or all of an array that is promised whole.

    None as long as one of that array is not measured; an array once answered is not put together again.
    """
    place = record.array_place
    if place is None or not place.whole or record.deadline_s is None or record.answered_s is not None:
        return [record]
    active = [one for one in staging.list_active() if one.array_place is not None and one.array_place.id == place.id]
    is_measured = all(not needs_probe(one, look_up(one, staging.speeds, world.inventory)) for one in active)
    if not is_measured or len(active) < place.count:
        return []
    return [one for one in active if JobId(one.id) not in world.jobs]


def arrive_probe(staging: Staging, world: PlatformWorld, record: JobRecord, where: Sequence[str]) -> None:
    """Put the probe of a job before the policy, to be measured on one of these device types."""
    staging.change(record.id, state=JobState.PROBING, reason=UNMEASURED, sentence=sentences.PROBING)
    world.arrive(make_probe_job(record, world.inventory, where), staging.now_s)


def account(staging: Staging, world: PlatformWorld, record: JobRecord, view: JobView) -> JobRecord:
    """A record with what its job has used up to now, and paid; the stretch on these devices is noted.

    A probe is not charged for.
    """
    now_s, (served, ran_s) = staging.now_s, view.used_at(staging.now_s)
    used_s = served - record.served
    usd = 0.0
    if used_s > 0 and view.job.purpose is Purpose.TRAIN:
        usd = world.find_price(record.devices) * used_s / 3600.0
        whose = record.id, record.owner, record.user, record.project
        staging.batch.usage.append(UsageRecord(*whose, record.settled_s, now_s, used_s, usd))
    return replace(record, served=served, ran_s=ran_s, settled_s=now_s, cost_usd=record.cost_usd + usd)


def end_probe(staging: Staging, world: PlatformWorld, job_id: str) -> bool:
    """Take a job's probe out of the world, with the devices it held; returns whether there was one."""
    view = world.jobs.get(JobId(job_id))
    if view is None or view.job.purpose is not Purpose.PROBE:
        return False
    world.finish(view.job.id, staging.now_s)
    staging.change(job_id, devices=())
    return True


def leave_devices(staging: Staging, world: PlatformWorld, job_id: str) -> None:
    """A job gave its devices back by itself: correct world and record. One whose probe ended is put to the policy."""
    if end_probe(staging, world, job_id):
        arrive(staging, world, staging.jobs[job_id])
        return
    world.apply(Decision(allocations={JobId(job_id): ()}), staging.now_s)
    record = account(staging, world, staging.jobs[job_id], world.jobs[JobId(job_id)])
    staging.stage(Effects(replace(record, devices=(), state=JobState.ADMITTED)))


def leave_world(staging: Staging, world: PlatformWorld, record: JobRecord) -> JobRecord:
    """Take a job, or its probe, out of the world; returns its record with all that it has used."""
    view = world.jobs.get(JobId(record.id))
    if view is None:
        return record
    world.finish(view.job.id, staging.now_s)
    return account(staging, world, record, view)


def end_job(staging: Staging, world: PlatformWorld, job_id: str, ending: Ending, at_s: float | None = None) -> None:
    """Take a job out of the world and close its record, as of now or of an instant before."""
    record = leave_world(staging, world, staging.jobs[job_id])
    staging.stage(close(record, ending, staging.now_s if at_s is None else at_s, staging.now_s))


def close(record: JobRecord, ending: Ending, at_s: float, now_s: float) -> Effects:
    """What follows when a job has ended; one that ends after its deadline has missed its promise."""
    missed = record.missed
    if record.promised and not missed and (record.deadline_s or inf) < at_s:
        missed = find_cause(record)
    record = replace(record, state=ending.state, reason=ending.reason, sentence=ending.sentence, missed=missed)
    record = replace(record, finished_s=at_s, predicted_s=None, devices=(), conditions=())
    told = ending.sentence + sentences.tell_margin(record)
    data = {"reason": ending.reason} | ({"weights_sha256": record.weights} if record.weights else {})
    return Effects(record, (EventRecord(now_s, str(ending.state), told, record.id, data),))


def find_cause(record: JobRecord) -> str:
    """Why a promise was missed, in a word: lost capacity, outside load, faults, or a job slower than measured."""
    risk = record.condition("at_risk")
    if record.endangered or (risk is not None and risk.reason == LOST_CAPACITY):
        return LOST_CAPACITY
    if risk is not None and risk.reason == OUTSIDE_LOAD:
        return OUTSIDE_LOAD
    return "faults" if record.faults else "slower_than_measured"


def decline(record: JobRecord, reason: str, sentence: str, now_s: float) -> Effects:
    """What follows when a job is declined without asking a policy."""
    declined = replace(
        record, state=JobState.DECLINED, reason=reason, sentence=sentence, answered_s=now_s, finished_s=now_s
    )
    return Effects(declined, (EventRecord(now_s, "declined", sentence, record.id, {"reason": reason}),))


def give_back(staging: Staging, record: JobRecord) -> None:
    """Tell the executor that a job is over, whatever it was told before."""
    instruction = make_cancel(record.id, record.generation + 1, "withdrawn")
    staging.stage(Effects(replace(record, generation=instruction.generation), (), instruction))


def cancel(staging: Staging, world: PlatformWorld, job_id: str, sentence: str) -> None:
    """End a job because its owner said so."""
    record = staging.jobs[job_id]
    if record.generation:
        instruction = make_cancel(job_id, record.generation + 1, "cancelled")
        staging.stage(Effects(replace(record, generation=instruction.generation), (), instruction))
    end_job(staging, world, job_id, Ending(JobState.CANCELLED, "cancelled", sentence))


def end_at_limit(staging: Staging, world: PlatformWorld, job_id: str, reason: str, sentence: str) -> None:
    """End a job because it has reached a limit of its own: it checkpoints, and counts as failed."""
    record = staging.jobs[job_id]
    if record.devices:
        instruction = make_cancel(job_id, record.generation + 1, reason)
        staging.stage(Effects(replace(record, generation=instruction.generation), (), instruction))
    end_job(staging, world, job_id, Ending(JobState.FAILED, reason, sentence))


def pause(staging: Staging, world: PlatformWorld, job_id: str, reason: str, sentence: str) -> None:
    """Checkpoint a job and take it out of the world until it is resumed."""
    record = leave_world(staging, world, staging.jobs[job_id])
    stop = make_stop(record, reason) if record.devices else None
    generation = record.generation if stop is None else stop.generation
    record = replace(record, state=JobState.PAUSED, reason=reason, sentence=sentence, predicted_s=None)
    event = EventRecord(staging.now_s, "paused", sentence, job_id, {"reason": reason})
    staging.stage(Effects(replace(record, generation=generation, devices=()), (event,), stop))


def hold(staging: Staging, world: PlatformWorld, job_id: str, finished: bool, why: str) -> None:
    """Put aside a job that told something unacceptable: it checkpoints and waits for its owner.

    One that has finished stays finished: only what it said at its end is not known.
    """
    record = staging.jobs.get(job_id)
    if record is None or not record.active or record.state is JobState.PAUSED:
        return
    sentence = f"something of it cannot be taken in ({why}); that is kept for the operator: springtide doctor"
    if finished:
        end_job(staging, world, job_id, Ending(JobState.SUCCEEDED, "finished", f"finished; {sentence}"))
    else:
        pause(staging, world, job_id, QUARANTINED, sentence)


def start_again(staging: Staging, world: PlatformWorld, state_dir: StateDir, job_id: str) -> None:
    """Start what should be running under a new generation, from its last checkpoint, on the same devices.

    Without its secrets it waits for them.
    """
    if lacks_secrets(staging, state_dir, job_id):
        await_secrets(staging, world, job_id)
        return
    record = staging.jobs[job_id]
    run_as = staging.store.find_run_as(record.owner)
    instruction: Instruction
    if record.state is JobState.PROBING:
        instruction = make_probe(record, record.devices, state_dir, run_as)
    else:
        view = world.jobs.get(JobId(job_id))
        typed = view.job.typed if view is not None else None
        workers = deal_workers(typed, world.inventory, record.devices)
        instruction = make_change(replace(record, devices=()), record.devices, workers, state_dir, run_as)
        record = record.with_condition("recovering", "lost", sentences.LOST, staging.now_s)
        record = replace(record, faults=record.faults + 1)
    staging.stage(Effects(replace(record, generation=instruction.generation), (), instruction))


def end_stray(staging: Staging, name: str, running: Running) -> None:
    """Cancel what runs although it has ended or was never ours; stop what nobody can read the record of."""
    if name in staging.jobs or running.state == "stopping":
        return
    if name in staging.store.unreadable:
        staging.send(make_stop_of(name, running.generation + 1, QUARANTINED))
        return
    known = staging.store.job(name)
    if known is None or not known.active:
        generation = max(running.generation, 0 if known is None else known.generation) + 1
        staging.send(make_cancel(name, generation, "stray"))


def give_up(staging: Staging, world: PlatformWorld, refused: Instruction, why: str) -> None:
    """An instruction is refused again and again: its job fails with the executor's words, its devices are free."""
    sentence = f"the executor refuses to {refused.kind} it: {why}"
    staging.add_event("order_refused", sentence, refused.job, generation=refused.generation)
    record = staging.jobs.get(refused.job)
    if record is not None and record.active and record.devices:
        end_job(staging, world, refused.job, Ending(JobState.FAILED, "refused_by_executor", sentence))
