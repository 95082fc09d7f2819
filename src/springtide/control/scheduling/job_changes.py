"""What a decision changes for each job that it names: its answer, its promise, its devices.

One change for each, of the record, the events and the instruction together, staged by `stage_changes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from springtide.control.scheduling import sentences
from springtide.control.scheduling.instructions import make_change, make_probe
from springtide.control.scheduling.live_jobs import deal_workers, find_slowdown, fix_share, look_up
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.transitions import account, await_secrets, lacks_secrets
from springtide.control.storage.records import EventRecord, JobRecord, PlanRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.decisions import Answer, Decision, JobView, Promise, Reason, Status
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId, Purpose
from springtide.core.typed_curves import TypedCurves
from springtide.executors.protocol import Instruction, Resize, Start

DRAINED = "drained"  # why devices change, where it is not the policy that says so


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


def answer_job(staging: Staging, job: Job, answer: Answer, promise: Promise | None, inventory: Inventory) -> Effects:
    """What follows for a job from its answer; only of a promise it matters how sure its speed is."""
    record, now_s = staging.jobs[job.id], staging.now_s
    reason, told = sentences.REASONS.get(answer.reason, answer.reason), dict[str, Any]()
    if answer.status is Status.ADMITTED:
        plan = promise.plan if promise is not None else None
        has_margin = answer.promised and look_up(record, staging.speeds, inventory).has_margin
        sentence = sentences.tell_admitted(record, answer, plan, has_margin)
        expected_s = plan.finish_s if plan is not None and plan.finish_s < inf else None
        reason = "promised" if answer.promised else "best_effort" if record.deadline_s is None else reason
        # a job may have run on spare devices while its answer was open
        state = JobState.RUNNING if record.state is JobState.RUNNING else JobState.ADMITTED
        told = {"state": state, "promised": answer.promised, "expected_s": expected_s, "predicted_s": expected_s}
        if promise is not None:
            told["plan"] = write_plan(promise)
    elif answer.status is Status.WAITLISTED:
        sentence = sentences.tell_waitlisted(answer)
        by_s = None if answer.answer_by_s == inf else answer.answer_by_s
        told = {"state": JobState.WAITLISTED, "answer_by_s": by_s}
    else:
        sentence = sentences.tell_declined(record, job, answer, now_s)
        told = {"state": JobState.DECLINED, "finished_s": now_s}
    if record.deadline_s is not None:
        sentence += sentences.tell_slowed(find_slowdown(job, inventory), now_s)
    record = replace(record, **told, reason=reason, sentence=sentence, answered_s=now_s)
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
