"""The turns in the life of one job: it arrives, leaves its devices, is paused, cancelled, started again, or ends.

Each brings the world, the record, the events and the instructions in line, all staged together. Who turns is decided
elsewhere: by time (`timers`), by the executor (`events`), by its owner (`operations`); what a policy decides for each
job is in `job_changes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from springtide.control.scheduling import sentences
from springtide.control.scheduling.instructions import make_cancel, make_change, make_probe, make_stop, make_stop_of
from springtide.control.scheduling.live_jobs import (
    deal_workers,
    list_device_types,
    look_up,
    make_job,
    make_probe_job,
    needs_probe,
)
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.storage.records import EventRecord, JobRecord, UsageRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.decisions import Decision, JobView
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId, Purpose
from springtide.executors.protocol import Instruction, Running

UNMEASURED = "unknown_speed"
QUARANTINED = "quarantined"  # why a job is held
NO_SECRETS = "no_secrets"  # why a job is paused
LOST_CAPACITY, OUTSIDE_LOAD = "lost_capacity", "outside_load"  # why a promise is in danger


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: its last state, a reason code, and what is told."""

    state: JobState
    reason: str
    sentence: str


def lacks_secrets(staging: Staging, state_dir: StateDir, job_id: str) -> bool:
    """Whether a job's secrets are not here: they are in no database, but in the home of the server that took them."""
    if not staging.jobs[job_id].spec.secrets or job_id in staging.secrets:
        return False
    return not any(place.exists() for place in (state_dir.secrets_file(job_id), state_dir.new_secrets / job_id))


def await_secrets(staging: Staging, world: PlatformWorld, job_id: str) -> None:
    """Let a job whose secrets are not here wait for its owner, who has them: to start it would be to fail it."""
    pause(staging, world, job_id, NO_SECRETS, sentences.tell_no_secrets(job_id))


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
