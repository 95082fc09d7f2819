"""What would be accepted instead of a declined job: a later deadline for all the work, or less work by the deadline.

Offers come from the policy where it makes them. Where it does not, they are found by asking it: the earliest deadline,
and the most work, that the same policy would admit in the same world. Nothing is recorded here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from springtide.core.decisions import Answer, Offer
from springtide.core.jobs import Job

LONGEST_OFFER_FACTOR = 4096.0
PRECISION = 0.02  # offers are found to this share of the span from now
FEWEST_WORK_SHARE = 0.05  # less of the work than this is not offered
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
    #: 0 of a gang, whose work is counted in seconds.
    steps: int


def find_offers(job: Job, answer: Answer, now_s: float, admits: Admits, elastic: bool) -> list[OfferDraft]:
    """What would be accepted instead: the earliest deadline for all the work, then the most work by the deadline.

    A gang is a program that nobody can end early: it is offered no part of its work.
    """
    if answer.offers:
        made = [read_offer(job, offer, now_s) for offer in answer.offers]
        found = [proposal for proposal in made if proposal.steps >= max(1, int(FEWEST_WORK_SHARE * job.work))]
    else:
        searches = (find_deadline, find_work) if elastic else (find_deadline,)
        found = [proposal for search in searches if (proposal := search(job, now_s, admits)) is not None]
    return found if elastic else [replace(one, steps=0) for one in found if one.kind == "deadline"]


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
