"""What becomes of promises when there are fewer devices: planned anew for what is left, or in danger."""

import logging
from dataclasses import dataclass, replace

from springtide.control.scheduling import offers, transitions
from springtide.control.scheduling.live_jobs import build_job
from springtide.control.scheduling.live_world import LiveWorld, PlatformWorld
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.core.decisions import Decide, Promise, Status
from springtide.core.jobs import JobId

logger = logging.getLogger("springtide.control")


@dataclass(frozen=True, slots=True)
class CapacityLoss:
    """Why there are fewer devices, and what would bring them back."""

    why: str
    remedy: str


def leave_out(staging: Staging, world: PlatformWorld, node: str, loss: CapacityLoss, decide: Decide) -> None:
    """Go on without a node: reservations are given back, promises planned for the devices that are left."""
    offers.release(staging, world, loss.why)
    world.change_inventory(replace(world.inventory, drained=world.inventory.drained | {node}), staging.now_s)
    review_promises(staging, world, loss, decide)


def review_promises(staging: Staging, world: PlatformWorld, loss: CapacityLoss, decide: Decide) -> None:
    """Plan all promises for the devices that are left, the oldest first; those that find no room are in danger."""
    kept = keep_promises(world, decide, staging.now_s)
    for job_id, view in list(world.jobs.items()):
        if view.promise is None:
            continue
        if job_id in kept:
            world.set_promise(job_id, kept[job_id])
        else:
            why = f"{loss.why}, and what is left cannot keep it; {loss.remedy}"
            endanger(staging, world, staging.jobs[job_id], why)


def keep_promises(world: LiveWorld, decide: Decide, now_s: float) -> dict[JobId, Promise]:
    """The promises that the policy would make again on the devices that are left, each job with its work left."""
    twin = LiveWorld(world.cluster)
    for job_id, view in world.jobs.items():
        if view.promise is None:
            continue
        twin.arrive(replace(view.job, work=view.progress.work_left_at(now_s)), now_s)
        try:
            decision = decide(now_s, twin.snapshot())
        except Exception:  # a policy may be anybody's code; what it has not planned again is in danger
            logger.exception("the policy failed while promises were planned for the devices that are left")
            twin.remove(job_id)
            break
        answer = decision.answers.get(job_id)
        twin.apply(decision, now_s)
        if answer is None or answer.status is not Status.ADMITTED:
            twin.remove(job_id)
    return {job_id: view.promise for job_id, view in twin.jobs.items() if view.promise is not None}


def endanger(staging: Staging, world: PlatformWorld, record: JobRecord, why: str) -> None:
    """A promise has lost its plan: the job goes before every best-effort job, and counts as missed if it is late."""
    now_s, cause = staging.now_s, transitions.LOST_CAPACITY
    sentence = f"its promise is in danger: {why}; it goes on before all best-effort jobs"
    record = replace(record, plan=None, endangered=True).with_condition("at_risk", cause, sentence, now_s)
    staging.stage(Effects(record, (EventRecord(now_s, "at_risk", sentence, record.id, {"cause": cause}),)))
    world.set_promise(JobId(record.id), None)
    world.revise(build_job(record, staging.speeds, world.inventory), now_s)


def tell_at_risk(staging: Staging, world: PlatformWorld, why: str) -> None:
    """Say that all promises are in danger while no node takes work; plans are kept for when one does."""
    now_s, cause = staging.now_s, transitions.LOST_CAPACITY
    sentence = f"its promise is in danger: {why}, and no node takes work; it has room again when one joins"
    for job_id, view in world.jobs.items():
        if view.promise is None:
            continue
        record = staging.jobs[job_id]
        told = EventRecord(now_s, "at_risk", sentence, record.id, {"cause": cause})
        events = () if record.condition("at_risk") is not None else (told,)
        staging.stage(Effects(record.with_condition("at_risk", cause, sentence, now_s), events))
