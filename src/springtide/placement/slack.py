"""What a move would do to a job's promise: when the job would end, and what that costs.

A pause of p seconds on g devices loses p * T(g) steps, and they are made up at the end, at the share held there: a
move delays the end by p * T(g) / T(g_last), not by p. Reads promises, never makes them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from springtide.core.decisions import JobView, Plan, Promise, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.placement.migration import Cost, Price

ROUNDING_S = 1e-6  # a deadline counts as met up to this
Move = tuple[float, float]  # when, and how long the pause is


def reserve_for(job: Job, shares: Iterable[int]) -> float:
    """Seconds that a plan of these shares, in order, must keep at its end to afford one move at any time.

    reserve = max over its shares g of pause(g) * T(g) / T(g_last).
    """
    held = [share for share in shares if share]
    rate = job.curve.rate
    return max((job.overhead.pause_s(share) * rate(share) / rate(held[-1]) for share in held), default=0.0)


@dataclass(frozen=True)
class Course:
    """A job that follows a promised plan from `now_s` on; it has `work_left` and stands still until `resumes_s`."""

    job: Job
    promise: Promise
    now_s: float
    work_left: float
    resumes_s: float

    def price(self, at_s: float, share: int, earlier: tuple[Move, ...] = ()) -> Cost:
        """What moving the job costs, given the moves it has had since `now_s`."""
        plan, deadline_s = self.promise.plan, self.promise.deadline_s
        moves = (*earlier, (at_s, self.job.overhead.pause_s(share)))
        ends_s = self._planned_end_s + self._project_finish_s(moves) - self._undisturbed_s
        slack_s, delay_s = deadline_s - plan.finish_s, ends_s - plan.finish_s
        return Cost(
            late_s=ends_s - deadline_s if ends_s > deadline_s + ROUNDING_S else 0.0,
            unreserved=int(ends_s > plan.held_until_s + ROUNDING_S),
            moves=1,
            strain=delay_s / slack_s if slack_s > 0 else 1.0,
        )

    @cached_property
    def _undisturbed_s(self) -> float:
        return self._project_finish_s(())

    @cached_property
    def _planned_end_s(self) -> float:
        """Later than the plan says if the job has been moved since the plan was made: a reserve is spent only once."""
        return max(self.promise.plan.finish_s, self._undisturbed_s)

    def _project_finish_s(self, moves: tuple[Move, ...]) -> float:
        """When the work ends if the plan is followed and the job is moved at these times."""
        rate, left, resumes_s = self.job.curve.rate, self.work_left, self.resumes_s
        share = self.promise.plan.share_at(self.now_s)
        for at_s, planned, pause_s in self._list_pauses(moves):
            done = rate(share) * max(0.0, at_s - resumes_s)
            if done >= left:
                break
            left -= done
            resumes_s = at_s + pause_s
            share = share if planned is None else planned
        return resumes_s + left / rate(share) if share else self.promise.plan.finish_s

    def _list_pauses(self, moves: tuple[Move, ...]) -> list[tuple[float, int | None, float]]:
        """(when, new share or None if it stays, pause) of every planned change and move, in order."""
        pauses: list[tuple[float, int | None, float]] = [(at_s, None, pause_s) for at_s, pause_s in moves]
        share, overhead = self.promise.plan.share_at(self.now_s), self.job.overhead
        for segment in self.promise.plan.segments:
            if segment.start_s > self.now_s and segment.share != share:
                pause_s = overhead.pause_s(segment.share, starting=not share) if segment.share else 0.0
                pauses.append((segment.start_s, segment.share, pause_s))
                share = segment.share
        pauses.sort(key=lambda entry: entry[0])
        return pauses


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
