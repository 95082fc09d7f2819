"""Earliest deadline first with admission: `edf` for the jobs it lets in, and it lets in only those it can keep.

Every admitted job has a plan: in order of deadlines each takes, from now to its end, the share that ends it soonest
among the devices that the more urgent ones leave. A newcomer is admitted if the plan with it is in time for it and for
everyone whose plan was in time without it. Plans count pauses; they keep no reserve for moves. Best-effort jobs share
what is left at each moment.

Done better than in the ElasticFlow artifact: pauses are planned, shares beyond the throughput peak are not used, and
an admitted job that slipped does not close the door to all newcomers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from springtide.core.decisions import Answer, Decision, JobView, Plan, Progress, Promise, Segment, Snapshot, Status
from springtide.core.jobs import Job
from springtide.policies.common.answers import answer_arrivals, remaining_views, smallest_share
from springtide.policies.common.urgency import TOLERANCE_S, find_soonest, order_by_deadline, rank_urgency
from springtide.policies.edf import share_out

PROMISED = Answer(Status.ADMITTED, "promised", "it ends by its deadline", promised=True)
LATE = Answer(Status.DECLINED, "late", "at full speed behind the more urgent jobs it would end after its deadline")
HARMFUL = Answer(Status.DECLINED, "makes_others_late", "an admitted job would end after its deadline")


@dataclass(slots=True)
class Timeline:
    """Free devices over time: `free[k]` from `times[k]` to `times[k + 1]`, the last for ever."""

    times: list[float]
    free: list[int]

    def walk(self) -> Iterator[tuple[float, float, int]]:
        """(start, end, free devices) of each stretch."""
        return zip(self.times, [*self.times[1:], inf], self.free, strict=True)

    def take(self, plan: Plan) -> None:
        """Subtract the devices of a plan."""
        ends = [*(segment.start_s for segment in plan.segments[1:]), plan.finish_s]
        for segment, end_s in zip(plan.segments, ends, strict=True):
            if segment.share:
                first, last = self._cut(segment.start_s), self._cut(end_s)
                for stretch in range(first, last):
                    self.free[stretch] -= segment.share

    def _cut(self, at_s: float) -> int:
        """The stretch that begins at an instant, cut there if none did."""
        position = bisect_left(self.times, at_s)
        if position == len(self.times) or self.times[position] != at_s:
            self.times.insert(position, at_s)
            self.free.insert(position, self.free[position - 1])
        return position


@dataclass(slots=True)
class Schedule:
    """Admitted jobs in order of urgency with their plans, and what those leave free."""

    now_s: float
    devices: int
    timeline: Timeline
    views: list[JobView] = field(default_factory=list)
    ranks: list[tuple[bool, float, int]] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    def plan_behind(self, views: Iterable[JobView]) -> None:
        """Plan further jobs behind those already planned."""
        for view in views:
            plan = plan_soonest(view, self.now_s, self.timeline)
            self.timeline.take(plan)
            self.views.append(view)
            self.ranks.append(rank_urgency(view, self.now_s, self.devices))
            self.plans.append(plan)

    def keep_first(self, count: int) -> "Schedule":
        """A schedule of the most urgent jobs alone."""
        timeline = Timeline([self.now_s], [self.devices])
        for plan in self.plans[:count]:
            timeline.take(plan)
        return Schedule(self.now_s, self.devices, timeline, self.views[:count], self.ranks[:count], self.plans[:count])


def edf_admission(now_s: float, snapshot: Snapshot) -> Decision:
    """Admits newcomers that the plan can keep, and gives every job what its plan says for now."""
    answers = answer_arrivals(snapshot, smallest_share)
    newcomers = set(answers)
    views = list(remaining_views(snapshot, answers))
    devices = snapshot.cluster.total
    schedule = Schedule(now_s, devices, Timeline([now_s], [devices]))
    known = (view for view in views if view.job.id not in newcomers and not view.job.best_effort)
    schedule.plan_behind(order_by_deadline(known, now_s, devices))
    for view in views:
        if view.job.id in newcomers and not view.job.best_effort:
            answers[view.job.id], schedule = admit(schedule, view)
    plans = {view.job.id: plan for view, plan in zip(schedule.views, schedule.plans, strict=True)}
    shares = {view.job.id: plans[view.job.id].share_at(now_s) for view in schedule.views}
    changed = {view.job.id: shares[view.job.id] for view in schedule.views if shares[view.job.id] != view.share}
    best_effort = (view for view in views if view.job.best_effort)
    return Decision(
        answers=answers,
        promises={view.job.id: Promise(view.job.deadline_s, plans[view.job.id]) for view in schedule.views},
        shares=changed | share_out(now_s, best_effort, devices - sum(shares.values())),
    )


def admit(schedule: Schedule, view: JobView) -> tuple[Answer, Schedule]:
    """The answer to a newcomer, and the schedule with it if it is admitted."""
    rank = rank_urgency(view, schedule.now_s, schedule.devices)
    place = bisect_left(schedule.ranks, rank)
    trial = schedule.keep_first(place)
    trial.plan_behind([view])
    if not in_time(view, trial.plans[place]):
        return LATE, schedule
    trial.plan_behind(schedule.views[place:])
    for other, before, after in zip(
        schedule.views[place:], schedule.plans[place:], trial.plans[place + 1 :], strict=True
    ):
        if in_time(other, before) and not in_time(other, after):
            return HARMFUL, schedule
    return PROMISED, trial


def in_time(view: JobView, plan: Plan) -> bool:
    """Whether a plan meets the deadline of a job."""
    return plan.finish_s <= view.job.deadline_s + TOLERANCE_S


def plan_soonest(view: JobView, now_s: float, timeline: Timeline) -> Plan:
    """The plan of a job that holds at each moment the share that would end it soonest if nothing changed.

    That is what `edf` does when it is asked at each end of a more urgent job.
    """
    job, share, progress = view.job, view.share, view.progress
    segments: list[Segment] = []
    for start_s, end_s, free in timeline.walk():
        wanted, finish_s = find_soonest(job, share, progress, start_s, free)
        if wanted != share or not segments:
            progress = progress if wanted == share else change_share(job, share, progress, start_s, wanted)
            segments.append(Segment(start_s, wanted))
            share = wanted
        if finish_s <= end_s:
            return Plan(tuple(segments), finish_s, finish_s)
    raise AssertionError(f"job {job.id} never ends although all devices come free")


def change_share(job: Job, share: int, progress: Progress, now_s: float, wanted: int) -> Progress:
    """Progress from an instant on at which the share becomes `wanted`, as `core.world` would have it."""
    ready_s = job.overhead.resumes_s(now_s, wanted, not share, progress.paused_until_s) if wanted else now_s
    return Progress(progress.work_left_at(now_s), job.curve.rate(wanted), now_s, ready_s)
