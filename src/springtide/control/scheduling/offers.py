"""Offers: what would be accepted instead of a declined job. Made, reserved by the policy, taken or closed.

The first offer of a job is put before the policy as an entry of the world (`Status.OFFERED`); the next decision, in the
same step, reserves devices for it from its expiry on, or does not. Others, and all offers of policies that make none
themselves, are checked once more when taken. A user has at most two jobs with open offers.
"""

from dataclasses import replace

from springtide.control.scheduling import effects, sentences
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.live_world import read_promise
from springtide.control.storage.records import JobRecord, OfferRecord, State
from springtide.core.decisions import Answer, Decision, JobView, Progress, Promise, Status
from springtide.core.durations import show_instant, show_span
from springtide.core.jobs import JobId

MOST_OPEN_OFFERS = 2  # jobs with open offers, per user
TAKEN = Answer(Status.ADMITTED, "promised", "its reservation became a promise", promised=True)


def propose(platform: Context, view: JobView, answer: Answer, admits: sentences.Admits) -> bool:
    """Look for what would be accepted instead of a job that was just declined; whether a decision must follow."""
    job_id = str(view.job.id)
    record = platform.book.jobs[job_id]
    if record.deadline_s is None:
        return False
    others = [one for one in platform.book.jobs.values() if one.user == record.user and one.state is State.OFFERED]
    if len(others) >= MOST_OPEN_OFFERS:
        platform.book.note("no_offer", f"{record.user} has {len(others)} jobs with open offers already", job_id)
        return False
    made = stage(platform, record, sentences.find_offers(view.job, answer, platform.clock.now_s(), admits))
    if not made:
        return False
    if answer.offers and made[0].kind == "deadline":
        enter(platform, view, made[0])
        return True
    return announce(platform, job_id)


def stage(platform: Context, record: JobRecord, proposals: list[sentences.OfferDraft]) -> list[OfferRecord]:
    """Write offers down; the job waits for a reply as long as they are open."""
    now_s = platform.clock.now_s()
    expires_s = now_s + sentences.find_expiry_s(max((one.deadline_s - now_s for one in proposals), default=0.0))
    made = [
        OfferRecord(f"{record.id}-{number}", record.id, record.user, one.kind, one.deadline_s, one.steps, expires_s)
        for number, one in enumerate(proposals, start=1)
    ]
    for offer in made:
        platform.book.put_offer(offer)
    if made:
        platform.book.change(record.id, state=State.OFFERED, finished_s=None, plan=None)
    return made


def enter(platform: Context, view: JobView, offer: OfferRecord) -> None:
    """Put an offer before the policy, which reserves devices for it if it can."""
    job = replace(view.job, deadline_s=offer.deadline_s)
    progress = Progress(view.progress.work_left, since_s=platform.clock.now_s())
    platform.world.restore(JobView(job, progress, Status.OFFERED, answer_by_s=offer.expires_s))


def settle(platform: Context, decision: Decision) -> bool:
    """After a decision: note which open offers are reserved now and which are not; whether one was taken at once."""
    taken = False
    for job_id, view in list(platform.world.jobs.items()):
        if view.status is not Status.OFFERED:
            continue
        if job_id in decision.promises:
            confirm(platform, view, decision.promises[job_id])
            taken |= announce(platform, job_id)
        elif view.promise is None:
            platform.world.withdraw(job_id)
            taken |= announce(platform, job_id)
    return taken


def confirm(platform: Context, view: JobView, promise: Promise) -> None:
    """The first offer of a job is reserved, for the deadline that the reservation can keep."""
    first = list_open(platform, view.job.id)[0]
    platform.book.put_offer(replace(first, reserved=True, deadline_s=promise.deadline_s))
    platform.world.set_deadline(view.job.id, promise.deadline_s)


def announce(platform: Context, job_id: str) -> bool:
    """Tell of a job's offers, and take the first if its user said so beforehand; returns whether it did."""
    book, now_s = platform.book, platform.clock.now_s()
    offers = list_open(platform, job_id)
    for offer in offers:
        kept = "; devices are reserved for it" if offer.reserved else ""
        book.note("offered", tell_offer(offer, now_s) + kept, job_id, offer=offer.id, reserved=offer.reserved)
    if not book.jobs[job_id].accept_offer:
        return False
    accept(platform, offers[0])
    return True


def accept(platform: Context, offer: OfferRecord) -> None:
    """Take an offer: a reservation becomes the promise; without one, the job asks again with what was offered."""
    book, world = platform.book, platform.world
    record, job_id = book.jobs[offer.job], JobId(offer.job)
    for other in list_open(platform, offer.job):
        book.put_offer(replace(other, state="accepted" if other.id == offer.id else "withdrawn"))
    book.note("offer_accepted", f"offer {offer.id} is taken: {tell_offer(offer, platform.clock.now_s())}", record.id)
    book.change(record.id, deadline_s=offer.deadline_s, accept_offer=False, finished_s=None)
    view = world.jobs.get(job_id)
    if offer.reserved and view is not None and view.promise is not None:
        world.admit(job_id)
        effects.stage_answer(platform, view, TAKEN, Decision(promises={job_id: view.promise}))
        return
    world.withdraw(job_id)
    spec = {**record.spec, "steps": offer.steps} if offer.kind == "work" else record.spec
    book.change(record.id, spec=spec, state=State.WAITLISTED, plan=None)
    effects.arrive(platform, record.id)


def watch(platform: Context, record: JobRecord) -> bool:
    """Close the offers of a job when their time is up; returns whether that frees devices."""
    if record.state is not State.OFFERED:
        return False
    now_s = platform.clock.now_s()
    if any(offer.expires_s > now_s for offer in list_open(platform, record.id)):
        return False
    close(platform, record.id, "expired")
    platform.book.change(record.id, state=State.DECLINED, finished_s=now_s, plan=None)
    platform.book.note("offer_expired", "its offers have expired; submit it again for new ones", record.id)
    return True


def close(platform: Context, job_id: str, state: str) -> None:
    """Give every open offer of a job this state, and its reservation back."""
    for offer in list_open(platform, job_id):
        platform.book.put_offer(replace(offer, state=state))
    platform.world.withdraw(JobId(job_id))


def release(platform: Context, why: str) -> None:
    """Give all reservations back, because promises need the devices; the offers stay open, to be checked when taken."""
    for job_id, view in list(platform.world.jobs.items()):
        if view.status is not Status.OFFERED:
            continue
        platform.world.withdraw(job_id)
        platform.book.change(job_id, plan=None)
        for offer in list_open(platform, job_id):
            platform.book.put_offer(replace(offer, reserved=False))
        platform.book.note("unreserved", f"its offer is no longer reserved: {why}", job_id)


def restore(platform: Context, record: JobRecord) -> None:
    """Take in the reservation that a job had when the last server ended."""
    first = next(iter(list_open(platform, record.id)), None)
    if first is None or not first.reserved or record.plan is None:
        return
    job = platform.build_job(replace(record, deadline_s=first.deadline_s))
    progress = Progress(job.work - record.step, since_s=platform.clock.now_s())
    promise = read_promise(record.plan, first.deadline_s)
    platform.world.restore(JobView(job, progress, Status.OFFERED, promise=promise, answer_by_s=first.expires_s))


def list_open(platform: Context, job_id: str) -> list[OfferRecord]:
    """The open offers of a job, the first one first, with what is staged but not yet stored."""
    stored = {offer.id: offer for offer in platform.book.store.offers(job_id)}
    staged = {offer.id: offer for offer in platform.book.batch.offers.values() if offer.job == job_id}
    return [offer for _, offer in sorted({**stored, **staged}.items()) if offer.state == "open"]


def tell_offer(offer: OfferRecord, now_s: float) -> str:
    """An offer in one sentence."""
    by = f"{show_instant(offer.deadline_s)} (in {show_span(offer.deadline_s - now_s)})"
    if offer.kind == "deadline":
        return f"all {offer.steps} steps could be promised by {by}"
    return f"{offer.steps} steps could be promised by the same deadline, {by}"
