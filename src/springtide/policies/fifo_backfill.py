"""First in, first out with EASY backfilling: the head of the queue has a reservation, others may pass if they keep it.

When the head does not fit, its start is reserved at the earliest time at which enough running jobs have ended. A job
behind it starts now if it fits and either ends by then or takes only devices the head will not need. Run times are
known exactly here, so the head never starts later than in `fifo`, forced moves of running jobs aside. Nothing is
preempted. Source: Lifka, "The ANL/IBM SP scheduling system", 1995 (EASY).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import remaining_views
from springtide.policies.common.gangs import Gang, Stock, answer_gangs, give_gangs, list_gangs, needed_s, stock_free


class End(NamedTuple):
    """When a running job gives back its devices."""

    finish_s: float
    gang: Gang


@dataclass(slots=True)
class Reservation:
    """When the head of the queue starts, on which type, and how many of its devices are then left beside it."""

    start_s: float
    device_type: str
    spare: int


def fifo_backfill(now_s: float, snapshot: Snapshot) -> Decision:
    """Starts waiting jobs in order of arrival, then those behind the blocked head that do not delay it."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    stock = stock_free(snapshot)
    chosen: dict[JobId, Gang] = {}
    ends = [End(view.progress.finish_s, list_gangs(view)[0]) for view in views if view.share]
    waiting = (view for view in views if not view.share)
    for head in waiting:
        gang = stock.find(head)
        if gang is None:
            reservation = min((reserve(ends, gang, stock) for gang in list_gangs(head)), key=lambda r: r.start_s)
            chosen |= backfill(now_s, waiting, stock, reservation)
            break
        chosen[head.job.id] = stock.take(gang)
        ends.append(End(now_s + needed_s(head, now_s), gang))
    return give_gangs(answers, [view for view in views if not view.share], chosen)


def reserve(ends: list[End], gang: Gang, stock: Stock) -> Reservation:
    """The earliest time at which a gang's devices are free, given when the running jobs end."""
    free = stock.left.get(gang.device_type, 0)
    for finish_s, ending in sorted(ends):
        if ending.device_type == gang.device_type:
            free += ending.share
        if free >= gang.share:
            return Reservation(finish_s, gang.device_type, free - gang.share)
    raise AssertionError(f"{gang.share} devices of type {gang.device_type!r} are never free although {free} exist")


def backfill(now_s: float, waiting: Iterator[JobView], stock: Stock, reservation: Reservation) -> dict[JobId, Gang]:
    """The jobs behind the head that start now and leave its reservation as it is."""
    chosen: dict[JobId, Gang] = {}
    for view in waiting:
        if not stock.left[""]:
            break
        gang = stock.find(view)
        if gang is None:
            continue
        if gang.device_type == reservation.device_type and now_s + needed_s(view, now_s) > reservation.start_s:
            if gang.share > reservation.spare:
                continue
            reservation.spare -= gang.share
        chosen[view.job.id] = stock.take(gang)
    return chosen
