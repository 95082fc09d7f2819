"""What a user is told: the policy's answer with a sentence that names times, and offers that would be accepted.

Offers come from the policy where it makes them. Where it does not, they are found by asking it: the earliest deadline,
and the most work, that the same policy would admit in the same world. Nothing is decided here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from springtide.control.storage.records import JobRecord
from springtide.core.decisions import Answer, Cause, Offer, Plan, Reason
from springtide.core.durations import show_instant, show_span
from springtide.core.jobs import Job

LONGEST_OFFER_FACTOR = 4096.0
PRECISION = 0.02  # offers are found to this share of the span from now
FEWEST_WORK_SHARE = 0.05  # less of the work than this is no offer
# A deadline later than the earliest by this and by the time the offer stays open: it still holds when taken last.
OFFER_MARGIN = 1.02
MOST_EXPIRY_S = 600.0
EXPIRY_SHARE = 0.1
LEAST_EXPIRY_S = 10.0  # nobody reads and answers faster

Admits = Callable[[Job], bool]


@dataclass(frozen=True, slots=True)
class OfferDraft:
    """An offer before it is recorded: all the work by a later deadline, or less work by the same one."""

    kind: str
    deadline_s: float
    steps: int


REASONS = {"late": "deadline_too_tight", "makes_others_late": "would_break_promises"}


def name_reason(reason: str) -> str:
    """The platform's reason code for a policy's."""
    return REASONS.get(reason, reason)


def tell_admitted(record: JobRecord, answer: Answer, plan: Plan | None, margin: bool, now_s: float) -> str:
    """The sentence of an admitted job."""
    if record.deadline_s is None:
        return "admitted as best effort: it runs on devices that no promise needs"
    if not answer.promised:
        return f"admitted without a promise: {answer.sentence}"
    sentence = f"promised to finish by {show_instant(record.deadline_s)} (in {show_span(record.deadline_s - now_s)})"
    if plan is not None and plan.finish_s < inf:
        sentence += f"; planned to end {show_span(max(0.0, plan.finish_s - now_s))} from now"
    if margin:
        sentence += "; the plan holds 25 % more time, until one whole epoch has been seen"
    return sentence


CAUSES = {
    Cause.PLANNED: "its plan holds this share from now on",
    Cause.SPARE: "nobody needs these devices now",
    Cause.TURN: "it is its turn",
    Cause.NEEDLESS: "it ends as soon with fewer",
    Cause.YIELDS: "they are needed by",
    Cause.MOVED: "it makes room on neighbouring devices for",
}


def tell_reason(reason: Reason, other: JobRecord | None, now_s: float) -> str:
    """Why the devices of a job change: for itself, or for another job with its deadline."""
    text = CAUSES[reason.cause]
    if reason.cause not in (Cause.YIELDS, Cause.MOVED):
        return text
    if other is None:
        return f"{text} another job"
    by = "" if other.deadline_s is None else f", due in {show_span(max(0.0, other.deadline_s - now_s))}"
    return f"{text} {other.name}{by}"


def tell_waitlisted(answer: Answer, now_s: float) -> str:
    """The sentence of a job whose answer comes later."""
    when = "" if answer.answer_by_s == inf else f"; the answer comes by {show_instant(answer.answer_by_s)}"
    wait = "" if answer.answer_by_s == inf else f" (in {show_span(max(0.0, answer.answer_by_s - now_s))})"
    return f"{answer.sentence or 'no promise can be made yet'}{when}{wait}"


def tell_declined(record: JobRecord, job: Job, answer: Answer, now_s: float) -> str:
    """The sentence of a job that is declined."""
    if record.deadline_s is None:
        return answer.sentence
    alone_s, span_s = job.alone_s(), record.deadline_s - now_s
    if span_s <= 0:
        return (
            f"its deadline passed {show_span(-span_s)} ago, before its speed was known; it needs {show_span(alone_s)}"
        )
    if alone_s > span_s:
        return (
            f"it needs {show_span(alone_s)} on its best share with no one else here; "
            f"its deadline is {show_span(span_s)} from now"
        )
    return answer.sentence or "no plan ends it by its deadline without breaking a promise"


def find_offers(job: Job, answer: Answer, now_s: float, admits: Admits) -> list[OfferDraft]:
    """What would be accepted instead: the earliest deadline for all the work, then the most work by the deadline."""
    if answer.offers:
        made = [read_offer(job, offer, now_s) for offer in answer.offers]
        return [proposal for proposal in made if proposal.steps >= max(1, int(FEWEST_WORK_SHARE * job.work))]
    found = [find_deadline(job, now_s, admits), find_work(job, now_s, admits)]
    return [proposal for proposal in found if proposal is not None]


def read_offer(job: Job, offer: Offer, now_s: float) -> OfferDraft:
    """A policy's offer with room to think it over."""
    if offer.work < job.work:
        return OfferDraft("work", offer.deadline_s, int(offer.work / OFFER_MARGIN))
    span_s = offer.deadline_s - now_s
    return OfferDraft("deadline", now_s + span_s * OFFER_MARGIN + find_expiry_s(span_s), max(1, int(job.work)))


def find_deadline(job: Job, now_s: float, admits: Admits) -> OfferDraft | None:
    """The earliest deadline for all the work, to 2 % of its span."""
    near_s = max(job.alone_s(), job.deadline_s - now_s)
    far_s = near_s
    while not admits(replace(job, deadline_s=now_s + far_s)):
        far_s *= 2
        if far_s > LONGEST_OFFER_FACTOR * near_s:
            return None
    while far_s - near_s > PRECISION * far_s:
        middle_s = (near_s + far_s) / 2
        near_s, far_s = (near_s, middle_s) if admits(replace(job, deadline_s=now_s + middle_s)) else (middle_s, far_s)
    span_s = far_s * OFFER_MARGIN + find_expiry_s(far_s)
    return OfferDraft("deadline", now_s + span_s, max(1, int(job.work)))


def find_work(job: Job, now_s: float, admits: Admits) -> OfferDraft | None:
    """The most work by the same deadline, if it is worth having."""
    least, most = FEWEST_WORK_SHARE * job.work, job.work
    if not admits(replace(job, work=least)):
        return None
    while most - least > PRECISION * job.work:
        middle = (least + most) / 2
        least, most = (middle, most) if admits(replace(job, work=middle)) else (least, middle)
    steps = int(least / OFFER_MARGIN)
    return OfferDraft("work", job.deadline_s, steps) if steps >= 1 else None


def find_expiry_s(span_s: float) -> float:
    """How long an offer stays open: ten minutes, or a tenth of the span to its deadline if that is shorter."""
    return max(LEAST_EXPIRY_S, min(MOST_EXPIRY_S, EXPIRY_SHARE * span_s))
