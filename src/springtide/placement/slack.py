"""What a move would do to a job's promise: when the job would end, and what that costs.

A pause of p seconds on g devices loses p * T(g) steps, and they are made up at the end, at the share held there: a
move delays the end by p * T(g) / T(g_last), not by p. Reads promises, never makes them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from springtide.core.decisions import JobView, Plan, Promise, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.placement.migration import Cost, Price

ROUNDING_S = 1e-6  # a deadline counts as met up to this


class Move(NamedTuple):
    """A pause: when, how long, and the rate after it if that is another one."""

    at_s: float
    pause_s: float
    rate: float | None = None


_AT_S = itemgetter(0)


class _Stand(NamedTuple):
    """How far a job is between two pauses: the work left, when it goes on, and how fast."""

    work_left: float
    resumes_s: float
    rate: float

    def after(self, move: Move) -> "_Stand | None":
        """Where it stands after the next pause; None if the work ends before."""
        at_s, pause_s, rate = move
        done = self.rate * max(0.0, at_s - self.resumes_s)
        if done >= self.work_left:
            return None
        return _Stand(self.work_left - done, at_s + pause_s, self.rate if rate is None else rate)

    def ends_s(self, plan: Plan) -> float:
        """When the work ends without another pause; when the plan says if it does not go on."""
        return self.resumes_s + self.work_left / self.rate if self.rate else plan.finish_s


def reserve_for(job: Job, shares: Iterable[int]) -> float:
    """Seconds that a plan of these shares, in order, must keep at its end to afford one move at any time.

    reserve = max over its shares g of pause(g) * T(g) / T(g_last).
    """
    held = [share for share in shares if share]
    rate = job.curve.rate
    return max((job.overhead.pause_s(share) * rate(share) / rate(held[-1]) for share in held), default=0.0)


class Course:
    """A job that follows a promised plan from `now_s` on; it has `work_left` and stands still until `resumes_s`.

    Where it stands before each planned change is computed once: a move is followed only from where it happens.
    """

    __slots__ = ("_changes", "_ends_s", "_job", "_planned_end_s", "_promise", "_stands", "_times_s")

    def __init__(self, job: Job, promise: Promise, now_s: float, work_left: float, resumes_s: float) -> None:
        self._job = job
        self._promise = promise
        self._changes = _list_changes(job, promise.plan, now_s)
        self._times_s = [change.at_s for change in self._changes]
        self._stands = [_Stand(work_left, resumes_s, job.curve.rate(promise.plan.share_at(now_s)))]
        for change in self._changes:
            stand = self._stands[-1].after(change)
            if stand is None:
                break
            self._stands.append(stand)
        self._ends_s = self._stands[-1].ends_s(promise.plan)
        # later than the plan says if the job has been moved since the plan was made: a reserve is spent only once
        self._planned_end_s = max(promise.plan.finish_s, self._ends_s)

    def price(self, at_s: float, share: int, earlier: tuple[Move, ...] = ()) -> Cost:
        """What moving the job costs, given the moves it has had since `now_s`, in order."""
        plan, deadline_s = self._promise.plan, self._promise.deadline_s
        moves = (*earlier, Move(at_s, self._job.overhead.pause_s(share)))
        ends_s = self._planned_end_s + self._project_end_s(moves) - self._ends_s
        slack_s, delay_s = deadline_s - plan.finish_s, ends_s - plan.finish_s
        return Cost(
            ends_s - deadline_s if ends_s > deadline_s + ROUNDING_S else 0.0,
            int(ends_s > plan.held_until_s + ROUNDING_S),
            1,
            delay_s / slack_s if slack_s > 0 else 1.0,
        )

    def _project_end_s(self, moves: tuple[Move, ...]) -> float:
        """When the work ends if the plan is followed and the job is moved at these times."""
        first = bisect_left(self._times_s, moves[0].at_s)  # a move comes before a change at the same instant
        if first >= len(self._stands):
            return self._ends_s
        stand = self._stands[first]
        for change in sorted([*moves, *self._changes[first:]], key=_AT_S):
            following = stand.after(change)
            if following is None:
                break
            stand = following
        return stand.ends_s(self._promise.plan)


def _list_changes(job: Job, plan: Plan, now_s: float) -> list[Move]:
    """The planned changes of share to come, in order."""
    changes = []
    share = plan.share_at(now_s)
    for segment in plan.segments:
        if segment.start_s > now_s and segment.share != share:
            pause_s = job.overhead.pause_s(segment.share, starting=not share) if segment.share else 0.0
            changes.append(Move(segment.start_s, pause_s, job.curve.rate(segment.share)))
            share = segment.share
    return changes


def chart(now_s: float, view: JobView, promise: Promise, new_share: int | None = None) -> Course:
    """The course of a job that is left as it is now, or put on `new_share` devices."""
    resumes_s = max(now_s, view.progress.paused_until_s)
    if new_share and new_share != view.share:
        resumes_s = now_s + view.job.overhead.pause_s(new_share, starting=not view.share)
    return Course(view.job, promise, now_s, view.progress.work_left_at(now_s), resumes_s)


def price_moves(now_s: float, snapshot: Snapshot, promises: Mapping[JobId, Promise]) -> Price:
    """The cost of moving each job now; `promises` override those in force."""
    prices: dict[JobId, Cost] = {}

    def price(job_id: JobId, share: int) -> Cost:
        cost = prices.get(job_id)
        if cost is None:
            view = snapshot.jobs[job_id]
            promise = promises.get(job_id, view.promise)
            cost = Cost(moves=1) if promise is None else chart(now_s, view, promise).price(now_s, share)
            prices[job_id] = cost
        return cost

    return price


def promise_for(view: JobView, promise: Promise | None, plan: Plan) -> Promise:
    """The deadline a job has been promised, else the one it asks for, with the plan that is to keep it."""
    return Promise(view.job.deadline_s if promise is None else promise.deadline_s, plan)
