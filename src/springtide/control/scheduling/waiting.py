"""Jobs that are not yet put before the policy: those that wait for others to end, are held, or wait for their array.

An array that is promised as a whole is put before the policy when every job of it has been measured, all at once; if
one cannot be promised then, none is. What is looked at here is looked at with the timers.
"""

from collections.abc import Iterable
from dataclasses import replace

from springtide.control.scheduling import sentences, submissions, transitions
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.means import Refusal
from springtide.control.scheduling.server_context import Context
from springtide.control.storage.places.folder_claims import check_folder
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.core.decisions import Answer, Status
from springtide.core.dependencies import Outcome, judge_end, judge_ends
from springtide.core.durations import is_instant
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId
from springtide.errors import JobError

HELD = "held"
WAITS = "waits_for_jobs"
NEVER = "dependency_failed"
ARRAY_DECLINED = "array_not_promised"
FOLDER_IN_USE = "checkpoint_dir_in_use"


def enter(context: Context, record: JobRecord) -> None:
    """Let a new job in: held if it says so, waiting if it waits for others, else before the policy."""
    staging = context.staging
    if record.spec.hold and record.state is not JobState.PAUSED:
        sentence = f"it was submitted with hold: true; let it go: {tell_release(record)}"
        hold(staging, context.world, record.id, sentence)
    elif record.waits_for:
        sentence = sentences.tell_waits(record.waits_for)
        event = EventRecord(staging.now_s, "waiting", sentence, record.id)
        staging.stage(Effects(replace(record, state=JobState.WAITLISTED, reason=WAITS, sentence=sentence), (event,)))
        check_job(context, record.id)
    else:
        transitions.arrive(staging, context.world, record)


def tell_release(record: JobRecord) -> str:
    """The command that lets a held job go; those of an array go as one."""
    place = record.array_place
    return f"springtide release {record.name if place is None else f'--array {place.name}'}"


def hold(staging: Staging, world: PlatformWorld, job_id: str, sentence: str) -> None:
    """Let a job wait for its owner, after a checkpoint if it runs."""
    transitions.pause(staging, world, job_id, HELD, sentence)


def count_anew(context: Context, record: JobRecord) -> None:
    """Let the deadline of a job that never started count from now, if it is a span."""
    due = record.spec.deadline
    if record.first_start_s is None and due is not None and not is_instant(due):
        deadline_s = submissions.resolve_deadline(due, context.staging.now_s, context.clock)
        context.staging.change(record.id, deadline_s=deadline_s)


def check_job(context: Context, job_id: str) -> bool:
    """Put a job before the policy if what it waits for has come; returns whether that calls for a decision."""
    staging, record = context.staging, context.staging.jobs[job_id]
    if record.state is not JobState.WAITLISTED:
        return False
    if record.waits_for:
        return check_ends(context, record)
    if record.array_place is not None and JobId(record.id) not in context.world.jobs:
        return check_array(staging, context.world, record)
    return False


def check_ends(context: Context, record: JobRecord) -> bool:
    """Look whether the jobs that one waits for have ended as they should; one that is not known any more has not."""
    staging = context.staging
    states = [(one.end, find_state(staging, one.id)) for one in record.waits_for]
    outcome = judge_ends(states)
    if outcome is Outcome.WAIT:
        return False
    if outcome is Outcome.NEVER:
        pairs = zip(record.waits_for, states, strict=True)
        guilty = next(one for one, (end, state) in pairs if judge_end(end, state) is Outcome.NEVER)
        sentence = sentences.tell_never(guilty, find_state(staging, guilty.id))
        ending = transitions.Ending(JobState.CANCELLED, NEVER, sentence)
        transitions.end_job(staging, context.world, record.id, ending)
        return True
    return release(context, record)


def find_state(staging: Staging, job_id: str) -> JobState:
    """The state of a job; one that was forgotten counts as cancelled."""
    record = staging.jobs.get(job_id) or staging.store.job(job_id)
    return JobState.CANCELLED if record is None else record.state


def release(context: Context, record: JobRecord) -> bool:
    """The jobs that one waits for have ended: its deadline counts from now, and it is answered."""
    staging, now_s = context.staging, context.staging.now_s
    try:
        deadline_s = submissions.resolve_deadline(record.spec.deadline, now_s, context.clock)
    except JobError as error:
        staging.stage(transitions.decline(replace(record, waits_for=()), "deadline_passed", str(error), now_s))
        return False
    event = EventRecord(now_s, "released", "what it waited for has ended; it may go now", record.id)
    record = staging.stage(Effects(replace(record, waits_for=(), deadline_s=deadline_s), (event,)))
    refusal = refuse(context, record)
    if refusal is not None:
        staging.stage(transitions.decline(record, refusal.reason, refusal.sentence, now_s))
        return False
    if transitions.lacks_secrets(staging, context.state_dir, record.id):
        transitions.await_secrets(staging, context.world, record.id)
        return False
    transitions.arrive(staging, context.world, record)
    return True


def refuse(context: Context, record: JobRecord) -> Refusal | None:
    """Why a job that has waited cannot go: what is refused at a submission, or a folder that is in use by now."""
    staging = context.staging
    try:
        check_folder(record.spec, record.owner, staging, record.id)
    except JobError as error:
        return Refusal(FOLDER_IN_USE, str(error))
    return submissions.refuse(staging, context.world, record, staging.store.find_owner(record.owner))


def list_siblings(staging: Staging, record: JobRecord) -> list[JobRecord]:
    """The active jobs of the same array, the job itself among them."""
    place = record.array_place
    if place is None:
        return []
    return [one for one in staging.list_active() if one.array_place is not None and one.array_place.id == place.id]


def check_array(staging: Staging, world: PlatformWorld, record: JobRecord) -> bool:
    """Look again at a job that waits for its array; where one of its jobs has ended, none is promised."""
    siblings = list_siblings(staging, record)
    assert record.array_place is not None
    if len(siblings) < record.array_place.count:
        decline_array(staging, world, siblings, "a job of it ended before all of them were measured")
        return True
    transitions.arrive(staging, world, record)
    return JobId(record.id) in world.jobs


def judge_arrays(staging: Staging, world: PlatformWorld, answers: Iterable[tuple[JobId, Answer]]) -> bool:
    """Decline each array that has a job which a decision does not promise; returns whether there was any."""
    changed = False
    for job_id, answer in answers:
        record = staging.jobs.get(job_id)
        if record is None or not is_whole(record) or (answer.status is Status.ADMITTED and answer.promised):
            continue
        decline_array(staging, world, list_siblings(staging, record), f"{record.name} cannot be: {record.sentence}")
        changed = True
    return changed


def is_whole(record: JobRecord) -> bool:
    """Whether a job is promised with all of its array, or not at all."""
    return record.array_place is not None and record.array_place.whole and record.deadline_s is not None


def decline_array(staging: Staging, world: PlatformWorld, members: Iterable[JobRecord], why: str) -> None:
    """Decline what is left of an array; devices that were just given are given back before anything has started."""
    for member in members:
        record = staging.jobs[member.id]
        if record.devices:
            transitions.give_back(staging, record)
        record = transitions.leave_world(staging, world, staging.jobs[member.id])
        record = replace(record, devices=(), plan=None, promised=False, predicted_s=None, answer_by_s=None)
        sentence = f"its array is promised as a whole, and {why}"
        staging.stage(transitions.decline(record, ARRAY_DECLINED, sentence, staging.now_s))


def wait_for_policy(record: JobRecord, sentence: str, now_s: float) -> Effects:
    """What follows for a newcomer when the policy has failed: it waits, still without an answer; told once."""
    kept = replace(record, state=JobState.WAITLISTED, reason=sentences.POLICY_FAILED, sentence=sentence)
    kept = replace(kept, answered_s=None)  # so that the next server asks, too
    event = EventRecord(now_s, "waitlisted", sentence, record.id, {"reason": sentences.POLICY_FAILED})
    return Effects(kept, (event,) if record.reason != sentences.POLICY_FAILED else ())
