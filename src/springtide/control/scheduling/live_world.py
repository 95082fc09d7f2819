"""The shared book-keeping, kept live: what `core.world` does for the simulator, plus what only reality needs.

Reality tells how far a job really is, how fast it really goes, and that a server may start in the middle of things.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from springtide.control.storage.records import JobRecord, PlanRecord, State
from springtide.core.decisions import Changes, JobView, Plan, Progress, Promise, Segment, Status
from springtide.core.devices import Cluster, Devices, count_devices
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix
from springtide.core.world import World, reallocate


class LiveWorld(World):
    """A World that can be corrected by observation, rebuilt from records, and copied for a rehearsal."""

    def restore(self, view: JobView) -> None:
        """Take in a job as it stood when the last server ended; call in arrival order."""
        self.take(view.devices)
        self.jobs[view.job.id] = view

    def withdraw(self, job_id: JobId) -> None:
        """Forget an open offer, if there is one: its reservation is free again."""
        view = self.jobs.get(job_id)
        if view is not None and view.status is Status.OFFERED:
            del self.jobs[job_id]

    def remember(self, memory: dict[str, Any]) -> None:
        """Take over what a policy left in the store."""
        self.memory = dict(memory)

    def observe(self, job_id: JobId, progress: Progress, now_s: float) -> None:
        """Replace what was computed of a job's progress by what was seen."""
        view = self.jobs[job_id]
        self.jobs[job_id] = replace(view, progress=progress, served=view.served_at(now_s), ran_s=view.ran_at(now_s))

    def revise(self, job: Job, now_s: float) -> None:
        """Replace what is known of a job: its work, speeds or costs. Its devices and promise stay."""
        view = self.jobs[job.id]
        left = max(0.0, view.progress.work_left_at(now_s) + job.work - view.job.work)
        rate = find_rate(job, view.share, view.mix)
        paused_until_s = max(now_s, view.progress.paused_until_s)
        self.jobs[job.id] = replace(
            view,
            job=job,
            progress=Progress(left, rate, now_s, paused_until_s),
            served=view.served_at(now_s),
            ran_s=view.ran_at(now_s),
        )
        self.cache = None

    def change_cluster(self, cluster: Cluster, held: Mapping[JobId, Devices], now_s: float) -> None:
        """Go on with other nodes; `held` says what of its devices each job keeps, under the new node numbers."""
        self.cluster = cluster
        self.free_masks = list(cluster.full_masks)
        for job_id, devices in held.items():
            view = self.jobs[job_id]
            self.take(devices)
            if count_devices(devices) == view.share:
                self.jobs[job_id] = replace(view, devices=devices)
            else:
                mix = None if view.job.typed is None else cluster.count_types(devices)
                self.jobs[job_id] = reallocate(view, devices, now_s, mix)
        self.cache = None

    def put_back(self, changes: Changes) -> None:
        """Tell what happened once more, because nobody has acted on it."""
        self.finished[:0] = changes.finished
        self.arrived[:0] = [job_id for job_id in changes.arrived if job_id in self.jobs]

    def copy(self) -> "LiveWorld":
        """A world that may be changed without changing this one."""
        twin = LiveWorld(self.cluster)
        twin.jobs = dict(self.jobs)
        twin.free_masks = list(self.free_masks)
        twin.version = self.version
        twin.memory, twin.cache = dict(self.memory), self.cache
        return twin


def find_rate(job: Job, share: int, mix: Mix | None) -> float:
    """The rate at which plans see a job go on what it holds; 0 if it should not hold that."""
    if job.typed is not None:
        return job.typed.rate(mix or {})
    return job.curve.rate(share) if share in (0, *job.curve.shares) else 0.0


def rebuild_view(record: JobRecord, job: Job, devices: Devices, mix: Mix, now_s: float) -> JobView:
    """Where a job stood when the last server ended, as a view at `now_s`; its devices are `mix` of each type."""
    share = count_devices(devices)
    return JobView(
        job,
        Progress(max(0.0, job.work - record.step), find_rate(job, share, mix), now_s, now_s),
        Status.WAITLISTED if record.state is State.WAITLISTED else Status.ADMITTED,
        devices,
        share,
        None if record.plan is None or record.deadline_s is None else read_promise(record.plan, record.deadline_s),
        inf if record.answer_by_s is None else record.answer_by_s,
        record.served,
        record.ran_s,
        inf if record.first_start_s is None else record.first_start_s,
        mix if job.typed is not None else None,
        record.home if job.typed is not None else "",
    )


def write_plan(promise: Promise) -> PlanRecord:
    """The plan of a promise as it is stored."""
    plan = promise.plan
    segments = tuple((segment.start_s, segment.share) for segment in plan.segments)
    return PlanRecord(segments, plan.finish_s, plan.held_until_s, promise.device_type)


def read_promise(plan: PlanRecord, deadline_s: float) -> Promise:
    """A promise as policies see it."""
    segments = tuple(Segment(start_s, share) for start_s, share in plan.segments)
    return Promise(deadline_s, Plan(segments, plan.finish_s, plan.held_until_s), plan.device_type)


def predict_finish(view: JobView, held: float, rates: Mapping[int, float], now_s: float) -> float:
    """When a job ends: at the speed of what it `held`, or of what its plan holds ready (by share) if that is sooner."""
    left = view.progress.work_left_at(now_s)
    ready_s = max(now_s, view.progress.paused_until_s)
    alone_s = ready_s + left / held if held > 0 else inf
    return min(alone_s, _follow(view.promise.plan, rates, left, ready_s) if view.promise else inf)


def _follow(plan: Plan, rates: Mapping[int, float], left: float, now_s: float) -> float:
    """When so much work ends if the plan is followed; its last share is kept for as long as it takes."""
    changes = [segment for segment in plan.segments if segment.start_s > now_s]
    for start_s, share, end_s in _stretches(plan.share_at(now_s), changes, now_s):
        rate = rates.get(share, 0.0)
        if rate > 0 and left <= rate * (end_s - start_s):
            return start_s + left / rate
        left -= rate * (end_s - start_s) if end_s < inf else 0.0
    return inf


def _stretches(share: int, changes: list[Segment], now_s: float) -> Iterable[tuple[float, int, float]]:
    starts = [now_s, *(segment.start_s for segment in changes)]
    shares = [share, *(segment.share for segment in changes)]
    return zip(starts, shares, [*starts[1:], inf], strict=True)
