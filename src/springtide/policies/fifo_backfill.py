"""First in, first out with EASY backfilling: the head of the queue has a reservation, others may pass if they keep it.

When the head does not fit, its start is reserved at the earliest time at which enough running jobs have ended. A job
behind it starts now if it fits and either ends by then or takes only devices the head will not need. Run times are
known exactly here, so the head never starts later than in `fifo`, forced moves of running jobs aside. Nothing is
preempted. Source: Lifka, "The ANL/IBM SP scheduling system", 1995 (EASY).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.answers import count_free, remaining_views
from springtide.policies.gangs import answer_gangs, gang_share, needed_s


@dataclass(slots=True)
class Reservation:
    """When the head of the queue starts, and how many devices are then left beside it."""

    start_s: float
    spare: int


def fifo_backfill(now_s: float, snapshot: Snapshot) -> Decision:
    """Starts waiting jobs in order of arrival, then those behind the blocked head that do not delay it."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    free = count_free(snapshot)
    shares: dict[JobId, int] = {}
    ends = [(view.progress.finish_s, view.share) for view in views if view.share]
    waiting = (view for view in views if not view.share)
    for head in waiting:
        share = gang_share(head.job)
        if share > free:
            reservation = reserve(ends, share, free)
            shares |= backfill(now_s, waiting, free, reservation)
            break
        shares[head.job.id] = share
        free -= share
        ends.append((now_s + needed_s(head, now_s), share))
    return Decision(answers=answers, shares=shares)


def reserve(ends: list[tuple[float, int]], share: int, free: int) -> Reservation:
    """The earliest time at which `share` devices are free, given (finish, share) of the running jobs."""
    for finish_s, released in sorted(ends):
        free += released
        if free >= share:
            return Reservation(finish_s, free - share)
    raise AssertionError(f"{share} devices are never free although {free} exist")


def backfill(now_s: float, waiting: Iterator[JobView], free: int, reservation: Reservation) -> dict[JobId, int]:
    """The jobs behind the head that start now and leave its reservation as it is."""
    shares: dict[JobId, int] = {}
    for view in waiting:
        if not free:
            break
        share = gang_share(view.job)
        if share > free:
            continue
        if now_s + needed_s(view, now_s) > reservation.start_s:
            if share > reservation.spare:
                continue
            reservation.spare -= share
        shares[view.job.id] = share
        free -= share
    return shares
