"""What follows a decision, in one order: answers, promises, devices, offers, probes, new offers, drains, predictions.

Everything is staged as records, events and instructions; nothing is done until the staging is committed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from springtide.control.scheduling import job_changes, offers, sentences, transitions, waiting
from springtide.control.scheduling.expected_ends import note_outlook, predict
from springtide.control.scheduling.live_jobs import PROBE_S, PROBE_START_S, look_up
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines import node_drains
from springtide.control.scheduling.means import check_means
from springtide.control.scheduling.offer_search import Admits
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.decisions import Decision, JobView, Status
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId, Purpose
from springtide.core.timelines import leave_free

NO_DEVICE = "no_device_for_probe"
PREDICTION_STEP_S = 0.5  # smaller changes of a prediction are not worth writing down
MOST_PREDICTIONS = 500  # of jobs that a decision does not touch
#: A probe begun this long before the deadline still ends before it.
LONGEST_PROBE_S = PROBE_START_S + PROBE_S
MOST_WAIT_S = 600.0
MEASURED = transitions.Ending(JobState.CANCELLED, "measured", sentences.MEASURED)


def follow_decision(
    staging: Staging, world: PlatformWorld, state_dir: StateDir, decided: job_changes.Decided, admits: Admits
) -> bool:
    """Stage what follows from a decision that the world has taken in; returns whether another one is called for."""
    views, decision = world.jobs, decided.decision
    again = job_changes.stage_changes(staging, world, state_dir, decided)
    offered = [view for view in views.values() if view.status is Status.OFFERED]
    again |= bool(offered) and offers.follow_decision(staging, world, offered, decision)
    again |= follow_probes(staging, world, [view.job for view in views.values() if view.job.purpose is Purpose.PROBE])
    for job_id, answer in decision.answers.items():
        asked = decided.asked[job_id]
        is_alone = not waiting.is_whole(staging.jobs[job_id])
        if answer.status is Status.DECLINED and asked.job.purpose is Purpose.TRAIN and is_alone:
            again |= offers.propose(staging, world, asked, answer, admits)
    trained = [one for one in decision.answers if decided.asked[one].job.purpose is Purpose.TRAIN]
    again |= waiting.judge_arrays(staging, world, [(one, decision.answers[one]) for one in trained])
    if world.inventory.drained:
        node_drains.follow_decision(staging, world, state_dir)
    update_predictions(staging, world, decision)
    return again


def follow_probes(staging: Staging, world: PlatformWorld, probes: Sequence[Job]) -> bool:
    """Waitlist the jobs whose probes hold no device, and take back those whose probes do.

    Returns whether jobs that are measured well enough now wait for an answer.
    """
    measured, inventory = False, world.inventory
    for record in [staging.jobs[job.id] for job in probes]:
        if record.devices and record.state is JobState.WAITLISTED:
            change = {"state": JobState.PROBING, "reason": transitions.UNMEASURED, "sentence": sentences.PROBE_NOW}
            staging.change(record.id, **change)
        elif record.devices or record.state is not JobState.PROBING:
            continue
        elif look_up(record, staging.speeds, inventory).is_complete:
            transitions.leave_devices(staging, world, record.id)  # measured on one type; another is not waited for
            judge_measured(staging, world, record.id)
            measured = True
        else:
            free_s = find_free_s(world.jobs.values(), inventory.cluster.total, staging.now_s)
            staging.stage(waitlist_probe(record, free_s, staging.now_s))
    return measured


def judge_measured(staging: Staging, world: PlatformWorld, job_id: str) -> None:
    """A job that has just been measured: one that was only to be planned ends, others must be paid for."""
    record = staging.jobs[job_id]
    if record.measure_only:
        transitions.end_job(staging, world, job_id, MEASURED)
        return
    refusal = check_means(staging, world, record, staging.store.find_owner(record.owner))
    if refusal is not None:
        world.finish(JobId(job_id), staging.now_s)
        staging.stage(transitions.decline(record, refusal.reason, refusal.sentence, staging.now_s))


def waitlist_probe(record: JobRecord, free_s: float, now_s: float) -> Effects:
    """What follows for a job whose probe finds no device: it is told by when it is answered, and that time stays."""
    assert record.deadline_s is not None, "only jobs with a deadline are probed"
    answer_by_s = record.answer_by_s or find_answer_by_s(record.deadline_s, free_s, now_s)
    sentence = sentences.tell_unmeasured(free_s, answer_by_s)
    told = replace(record, reason=NO_DEVICE, sentence=sentence, answer_by_s=answer_by_s, answered_s=now_s)
    event = EventRecord(now_s, "waitlisted", sentence, record.id, {"reason": NO_DEVICE})
    return Effects(replace(told, state=JobState.WAITLISTED), (event,))


def find_answer_by_s(deadline_s: float, free_s: float, now_s: float) -> float:
    """While a probe still ends before the deadline; or, where that is hopeless, when it is expected to have ended.

    A job that is late by then is declined with offers that rest on its speed, which is worth the wait.
    """
    return max(deadline_s - LONGEST_PROBE_S, min(free_s, now_s + MOST_WAIT_S) + LONGEST_PROBE_S)


def find_free_s(views: Iterable[JobView], total: int, now_s: float) -> float:
    """When the plans of the promised jobs leave one of so many devices over; infinite if no plan says."""
    left = leave_free((view.promise.plan for view in views if view.promise is not None), total, now_s)
    return next((stretch.start_s for stretch in left.walk() if stretch.devices > 0), inf)


def update_predictions(staging: Staging, world: PlatformWorld, decision: Decision) -> None:
    """Write down when jobs are now expected to end: those that the decision changed, and of the others a part in turn.

    Only a platform of very many running jobs has others left over; each of those has its turn at a later decision.
    """
    views = world.jobs
    changed = decision.promises.keys() | decision.allocations.keys()
    running = [view for view in views.values() if view.share and view.job.id not in changed]
    told = [views[job_id] for job_id in views.keys() & changed] + take_turn(staging, running)
    for view in told:
        if view.status is Status.OFFERED or (not view.share and view.job.id not in decision.promises):
            continue
        record = staging.jobs[view.job.id]
        predicted_s = predict(record, view, staging.speeds, world, staging.now_s)
        if predicted_s is None:
            continue
        if record.predicted_s is None or abs(predicted_s - record.predicted_s) > PREDICTION_STEP_S:
            staging.change(record.id, predicted_s=predicted_s)
        note_outlook(staging, view, predicted_s, staging.now_s)


def take_turn(staging: Staging, running: list[JobView]) -> list[JobView]:
    """So many of these jobs that a decision stays quick: those that follow the ones of the last turn."""
    if len(running) <= MOST_PREDICTIONS:
        return running
    first = staging.turn % len(running)
    staging.turn = first + MOST_PREDICTIONS
    return (running[first:] + running[:first])[:MOST_PREDICTIONS]
