"""What a pause would do to a job's promise: how much time it can lose, and what a move costs it.

Reads promises, never makes them.
"""

from collections.abc import Mapping

from springtide.core.decisions import JobView, Plan, Promise, Snapshot
from springtide.core.jobs import JobId
from springtide.placement.migration import Cost, Price

ROUNDING_S = 1e-6  # a deadline counts as met up to this


def project_finish_s(now_s: float, view: JobView, plan: Plan) -> float:
    """When a job ends that goes on as it is and follows its plan from the next planned change on.

    Later than the plan says if the job has been moved since the plan was made: a pause is spent only once.
    """
    overhead, curve = view.job.overhead, view.job.curve
    left, share = view.progress.work_left_at(now_s), view.share
    from_s = max(now_s, view.progress.paused_until_s)
    for segment in plan.segments:
        if segment.start_s <= now_s or segment.share == share:
            continue
        rate = curve.rate(share) if share else 0.0
        done = rate * max(0.0, segment.start_s - from_s)
        if done >= left:
            break
        left -= done
        pause_s = overhead.pause_s(segment.share, starting=not share) if segment.share else 0.0
        from_s, share = segment.start_s + pause_s, segment.share
    return from_s + left / curve.rate(share) if share else plan.finish_s


def price_moves(now_s: float, snapshot: Snapshot, promises: Mapping[JobId, Promise]) -> Price:
    """The cost of moving each job now; `promises` override those in force.

    slack = deadline - finish, reserve = held until - finish, finish the later of the planned and the projected one.
    """
    prices: dict[JobId, Cost] = {}

    def price(job_id: JobId, share: int) -> Cost:
        cost = prices.get(job_id)
        if cost is None:
            view = snapshot.jobs[job_id]
            promise = promises.get(job_id, view.promise)
            cost = prices[job_id] = Cost(moves=1) if promise is None else _price_promised(now_s, view, share, promise)
        return cost

    return price


def _price_promised(now_s: float, view: JobView, share: int, promise: Promise) -> Cost:
    finish_s = max(promise.plan.finish_s, project_finish_s(now_s, view, promise.plan))
    return price_pause(view.job.overhead.pause_s(share), finish_s, promise)


def price_pause(pause_s: float, finish_s: float, promise: Promise) -> Cost:
    """What a pause costs a job that would otherwise end at `finish_s`."""
    slack_s = promise.deadline_s - finish_s + ROUNDING_S
    reserve_s = promise.plan.held_until_s - finish_s + ROUNDING_S
    return Cost(
        late_s=max(0.0, pause_s - slack_s),
        unreserved=int(pause_s > reserve_s),
        moves=1,
        strain=pause_s / slack_s if slack_s > 0 else 1.0,
    )
