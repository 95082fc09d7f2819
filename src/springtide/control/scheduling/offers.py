"""Offers: what would be accepted instead of a declined job. Recorded, reserved by the policy, taken or closed.

The first offer of a job is put before the policy as an entry of the world (`Status.OFFERED`); the next decision, in the
same step, reserves devices for it from its expiry on, or does not. Others, and all offers of policies that make none
themselves, are checked once more when taken. A user has at most two jobs with open offers. How offers are found is in
`offer_search`.
"""

from collections.abc import Iterable
from dataclasses import replace

from springtide.control.scheduling import job_changes, sentences, transitions
from springtide.control.scheduling.live_jobs import build_job
from springtide.control.scheduling.live_world import LiveWorld, PlatformWorld, read_promise
from springtide.control.scheduling.offer_search import Admits, OfferDraft, find_expiry_s, find_offers
from springtide.control.storage.records import EventRecord, JobRecord, OfferRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.core.decisions import Answer, Decision, JobView, Progress, Promise, Status
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId

MOST_OPEN_OFFERS = 2  # jobs with open offers, per user
TAKEN = Answer(Status.ADMITTED, "promised", "its reservation became a promise", promised=True)


def propose(staging: Staging, world: PlatformWorld, view: JobView, answer: Answer, admits: Admits) -> bool:
    """Look for what would be accepted instead of a job that was just declined; whether a decision must follow."""
    record, now_s = staging.jobs[view.job.id], staging.now_s
    if record.deadline_s is None:
        return False
    open_jobs = [one for one in staging.jobs.values() if one.state is JobState.OFFERED]
    count = sum(one.owner == record.owner for one in open_jobs)
    if count >= MOST_OPEN_OFFERS:
        staging.add_event("no_offer", f"{record.user} has {count} jobs with open offers already", record.id)
        return False
    made = make_offers(record, find_offers(view.job, answer, now_s, admits, record.spec.elastic), now_s)
    if not made:
        return False
    staging.stage(Effects(replace(record, state=JobState.OFFERED, finished_s=None, plan=None), offers=made))
    if answer.offers and made[0].kind == "deadline":
        reserve(world, view, made[0], now_s)
        return True
    return announce(staging, world, record.id)


def make_offers(record: JobRecord, drafts: list[OfferDraft], now_s: float) -> tuple[OfferRecord, ...]:
    """Offers as they are recorded; all expire together."""
    expires_s = now_s + find_expiry_s(max((one.deadline_s - now_s for one in drafts), default=0.0))
    return tuple(
        OfferRecord(f"{record.id}-{number}", record.id, record.user, one.kind, one.deadline_s, one.steps, expires_s)
        for number, one in enumerate(drafts, start=1)
    )


def reserve(world: LiveWorld, view: JobView, offer: OfferRecord, now_s: float) -> None:
    """Put an offer before the policy, which reserves devices for it if it can."""
    job = replace(view.job, deadline_s=offer.deadline_s)
    progress = Progress(view.progress.work_left, since_s=now_s)
    world.restore(JobView(job, progress, Status.OFFERED, answer_by_s=offer.expires_s))


def follow_decision(staging: Staging, world: PlatformWorld, offered: Iterable[JobView], decision: Decision) -> bool:
    """Say which open offers are reserved by a decision and which are not; whether one was taken at once."""
    taken = False
    for view in offered:
        job_id = view.job.id
        if job_id in decision.promises:
            confirm(staging, world, view, decision.promises[job_id])
            taken |= announce(staging, world, job_id)
        elif view.promise is None:
            world.withdraw(job_id)
            taken |= announce(staging, world, job_id)
    return taken


def confirm(staging: Staging, world: LiveWorld, view: JobView, promise: Promise) -> None:
    """The first offer of a job is reserved, for the deadline that the reservation can keep."""
    first = staging.list_open_offers(view.job.id)[0]
    reserved = replace(first, reserved=True, deadline_s=promise.deadline_s)
    staging.stage(Effects(staging.jobs[view.job.id], offers=(reserved,)))
    world.set_deadline(view.job.id, promise.deadline_s)


def announce(staging: Staging, world: PlatformWorld, job_id: str) -> bool:
    """Tell of a job's offers, and take the first if its user said so beforehand; returns whether it did."""
    offers = staging.list_open_offers(job_id)
    for offer in offers:
        kept = "; devices are reserved for it" if offer.reserved else ""
        sentence = sentences.tell_offer(offer) + kept
        staging.add_event("offered", sentence, job_id, offer=offer.id, reserved=offer.reserved)
    if not staging.jobs[job_id].accept_offer:
        return False
    accept(staging, world, offers[0])
    return True


def accept(staging: Staging, world: PlatformWorld, offer: OfferRecord) -> None:
    """Take an offer: a reservation becomes the promise; without one, the job asks again with what was offered."""
    record, job_id, now_s = staging.jobs[offer.job], JobId(offer.job), staging.now_s
    others = tuple(
        replace(one, state="accepted" if one.id == offer.id else "withdrawn")
        for one in staging.list_open_offers(offer.job)
    )
    sentence = f"offer {offer.id} is taken: {sentences.tell_offer(offer)}"
    event = EventRecord(now_s, "offer_accepted", sentence, record.id)
    record = replace(record, deadline_s=offer.deadline_s, accept_offer=False, finished_s=None)
    staging.stage(Effects(record, (event,), offers=others))
    view = world.jobs.get(job_id)
    if offer.reserved and view is not None and view.promise is not None:
        world.admit(job_id)
        staging.stage(job_changes.answer_job(staging, view.job, TAKEN, view.promise, world.inventory))
        return
    world.withdraw(job_id)
    spec = record.spec.model_copy(update={"steps": offer.steps}) if offer.kind == "work" else record.spec
    transitions.arrive(staging, world, staging.change(record.id, spec=spec, state=JobState.WAITLISTED, plan=None))


def expire(staging: Staging, world: LiveWorld, record: JobRecord) -> bool:
    """Close the offers of a job when their time is up; returns whether that frees devices."""
    now_s = staging.now_s
    if any(offer.expires_s > now_s for offer in staging.list_open_offers(record.id)):
        return False
    close(staging, world, record.id, "expired")
    event = EventRecord(now_s, "offer_expired", "its offers have expired; submit it again for new ones", record.id)
    declined = replace(staging.jobs[record.id], state=JobState.DECLINED, finished_s=now_s, plan=None)
    staging.stage(Effects(declined, (event,)))
    return True


def close(staging: Staging, world: LiveWorld, job_id: str, state: str) -> None:
    """Give every open offer of a job this state, and its reservation back."""
    closed = tuple(replace(offer, state=state) for offer in staging.list_open_offers(job_id))
    staging.stage(Effects(staging.jobs[job_id], offers=closed))
    world.withdraw(JobId(job_id))


def release(staging: Staging, world: LiveWorld, why: str) -> None:
    """Give all reservations back, because promises need the devices; the offers stay open, to be checked when taken."""
    for job_id, view in list(world.jobs.items()):
        if view.status is not Status.OFFERED:
            continue
        world.withdraw(job_id)
        unreserved = tuple(replace(offer, reserved=False) for offer in staging.list_open_offers(job_id))
        sentence = f"its offer is no longer reserved: {why}"
        event = EventRecord(staging.now_s, "unreserved", sentence, job_id)
        staging.stage(Effects(replace(staging.jobs[job_id], plan=None), (event,), offers=unreserved))


def restore(staging: Staging, world: PlatformWorld, record: JobRecord) -> None:
    """Take in the reservation that a job had when the last server ended."""
    first = next(iter(staging.list_open_offers(record.id)), None)
    if first is None or not first.reserved or record.plan is None:
        return
    job = build_job(replace(record, deadline_s=first.deadline_s), staging.speeds, world.inventory)
    progress = Progress(job.work - record.step, since_s=staging.now_s)
    promise = read_promise(record.plan, first.deadline_s)
    world.restore(JobView(job, progress, Status.OFFERED, promise=promise, answer_by_s=first.expires_s))
