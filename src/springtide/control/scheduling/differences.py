"""What a newcomer would change for the others: two decisions side by side, one with it and one without.

Pure; both decisions were only tried.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from springtide.core.decisions import Decision, JobView, Plan
from springtide.core.devices import count_devices
from springtide.core.jobs import JobId, Purpose

SAME_FINISH_S = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands after a decision: its devices, and its plan as (start, share) pairs up to a finish."""

    share: int
    plan: tuple[tuple[float, int], ...] = ()
    finish_s: float | None = None


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """A job for which a decision would be another one."""

    job: str
    before: Standing
    after: Standing


def compare_decisions(views: Mapping[JobId, JobView], without: Decision, given: Decision) -> Iterator[PlanDifference]:
    """The jobs that would hold another share now, or end by another plan, if a decision were the other one."""
    for job_id, view in views.items():
        if view.job.purpose is Purpose.TRAIN:
            before, after = find_standing(view, without), find_standing(view, given)
            if before.share != after.share or is_other_finish(before.finish_s, after.finish_s):
                yield PlanDifference(str(job_id), before, after)


def find_standing(view: JobView, decision: Decision) -> Standing:
    """Where a job would stand if a decision were carried out."""
    devices = decision.allocations.get(view.job.id)
    share = view.share if devices is None else count_devices(devices)
    promise = decision.promises.get(view.job.id, view.promise)
    return Standing(share) if promise is None else plan_standing(share, promise.plan)


def plan_standing(share: int, plan: Plan) -> Standing:
    """A share, with a plan behind it."""
    segments = tuple((segment.start_s, segment.share) for segment in plan.segments)
    return Standing(share, segments, None if plan.finish_s == inf else plan.finish_s)


def is_other_finish(before_s: float | None, after_s: float | None) -> bool:
    """Whether two finishes differ by more than anyone would notice."""
    if before_s is None or after_s is None:
        return before_s is not after_s
    return abs(before_s - after_s) > SAME_FINISH_S
