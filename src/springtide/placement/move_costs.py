"""What a move would do to a job's promise: when the job would end, and what that costs.

A pause of p seconds on g devices loses p * T(g) steps, and they are made up at the end, at the share held there: a
move delays the end by p * T(g) / T(g_last), not by p. Reads promises, never makes them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import itemgetter

from springtide.core.decisions import JobView, Plan, Promise, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.placement.migration import MoveCost, Price

ROUNDING_S = 1e-6  # a deadline counts as met up to this
LATE_ANYHOW = MoveCost(moves=1, strain=1.0)
Move = tuple[float, float, float | None]  # a pause: when, how long, and the rate after it if that is another one
Stand = tuple[float, float, float]  # between two pauses: the work left, when the job goes on, and how fast


class MoveCourse:
    """A job that follows a promised plan from `now_s` on; it has `work_left` and stands still until `resumes_s`.

    Where it stands before each planned change is computed once: a move is followed only from where it happens.
    """

    __slots__ = ("_changes", "_ends_s", "_job", "_planned_end_s", "_promise", "_stands", "_times_s")

    def __init__(self, job: Job, promise: Promise, now_s: float, work_left: float, resumes_s: float) -> None:
        self._job = job
        self._promise = promise
        self._changes = _list_changes(job, promise.plan, now_s)
        self._times_s = [at_s for at_s, _, _ in self._changes]
        start = work_left, resumes_s, job.curve.rate(promise.plan.share_at(now_s))
        self._stands = self._follow(start, self._changes)
        self._ends_s = self._end_from(self._stands[-1])
        # later than the plan says if the job has been moved since the plan was made: a reserve is spent only once
        self._planned_end_s = max(promise.plan.finish_s, self._ends_s)

    def price(self, at_s: float, share: int, earlier: tuple[Move, ...] = ()) -> MoveCost:
        """What moving the job costs, given the moves it has had since `now_s`, in order.

        A promise that the plan itself breaks is not broken by a move: the job may always make way.
        """
        plan, deadline_s = self._promise.plan, self._promise.deadline_s
        if plan.finish_s > deadline_s + ROUNDING_S:
            return LATE_ANYHOW
        ends_s = self._end_after(at_s, share, earlier)
        slack_s, delay_s = deadline_s - plan.finish_s, ends_s - plan.finish_s
        return MoveCost(
            ends_s - deadline_s if ends_s > deadline_s + ROUNDING_S else 0.0,
            int(ends_s > plan.held_until_s + ROUNDING_S),
            1,
            delay_s / slack_s if slack_s > 0 else 1.0,
        )

    def _end_after(self, at_s: float, share: int, earlier: tuple[Move, ...]) -> float:
        """When the job ends if it is moved."""
        moves = (*earlier, (at_s, self._job.overhead.pause_s(share), None))
        return self._planned_end_s + self._project_end_s(moves) - self._ends_s

    def _project_end_s(self, moves: tuple[Move, ...]) -> float:
        """When the work ends if the plan is followed and the job is moved at these times."""
        first = bisect_left(self._times_s, moves[0][0])  # a move comes before a change at the same instant
        if first >= len(self._stands):
            return self._ends_s
        changes = sorted([*moves, *self._changes[first:]], key=itemgetter(0))
        return self._end_from(self._follow(self._stands[first], changes)[-1])

    def _follow(self, stand: Stand, changes: Iterable[Move]) -> list[Stand]:
        """Where the job stands now and after each change, as long as work is left."""
        stands = [stand]
        left, resumes_s, rate = stand
        starts_up = self._job.overhead.start_s > 0.0
        for at_s, pause_s, new_rate in changes:
            if at_s > resumes_s:
                left -= rate * (at_s - resumes_s)
            if left <= 0.0:
                break
            # as `Overhead.resumes_s`: a job that holds devices ends its start-up first
            resumes_s = max(at_s + pause_s, resumes_s) if starts_up and rate else at_s + pause_s
            if new_rate is not None:
                rate = new_rate
            stands.append((left, resumes_s, rate))
        return stands

    def _end_from(self, stand: Stand) -> float:
        """When the work ends without another pause; when the plan says if it does not go on."""
        work_left, resumes_s, rate = stand
        return resumes_s + work_left / rate if rate else self._promise.plan.finish_s


def _list_changes(job: Job, plan: Plan, now_s: float) -> list[Move]:
    """The planned changes of share to come, in order."""
    changes: list[Move] = []
    share = plan.share_at(now_s)
    for segment in plan.segments:
        if segment.start_s > now_s and segment.share != share:
            pause_s = job.overhead.pause_s(segment.share, starting=not share) if segment.share else 0.0
            changes.append((segment.start_s, pause_s, job.curve.rate(segment.share)))
            share = segment.share
    return changes


def chart(now_s: float, view: JobView, promise: Promise, new_share: int | None = None) -> MoveCourse:
    """The course of a job that is left as it is now, or put on `new_share` devices."""
    resumes_s = max(now_s, view.progress.paused_until_s)
    if new_share and new_share != view.share:
        resumes_s = view.job.overhead.resumes_s(now_s, new_share, not view.share, resumes_s)
    return MoveCourse(view.job, promise, now_s, view.progress.work_left_at(now_s), resumes_s)


def price_moves(now_s: float, snapshot: Snapshot, promises: Mapping[JobId, Promise]) -> Price:
    """The cost of moving each job now; `promises` override those in force."""
    prices: dict[JobId, MoveCost] = {}

    def price(job_id: JobId, share: int) -> MoveCost:
        cost = prices.get(job_id)
        if cost is None:
            view = snapshot.jobs[job_id]
            promise = promises.get(job_id, view.promise)
            cost = MoveCost(moves=1) if promise is None else chart(now_s, view, promise).price(now_s, share)
            prices[job_id] = cost
        return cost

    return price


def promise_for(view: JobView, promise: Promise | None, plan: Plan) -> Promise:
    """The deadline a job has been promised, else the one it asks for, with the plan that is to keep it."""
    if promise is not None and promise.plan is plan:
        return promise
    return Promise(view.job.deadline_s if promise is None else promise.deadline_s, plan)
