"""The one book-keeping module: what jobs there are, what they hold, how far they are.

The simulator and the live reconciler feed it the same things (arrivals, completions, decisions) and read the same
Snapshots from it. It does no I/O and has no clock; time comes with each call and never goes back.
"""

from dataclasses import replace
from typing import Any

from springtide.core.decisions import Changes, Decision, JobView, Progress, Snapshot, Status
from springtide.core.devices import Cluster, Devices, count_devices
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix
from springtide.errors import PolicyError


class World:
    """Unfinished jobs by id in arrival order, and the free devices of each node.

    `arrived` and `finished` gather what the next Snapshot tells; `memory` and `cache` are the policy's own. A live
    world (`control.worlds`) also corrects all of these; whoever else has a world only calls its methods.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: dict[JobId, JobView] = {}
        self.free_masks = list(cluster.full_masks)
        self.version = 0
        # devices that jobs may use, and those they must still leave; None and empty where all are always theirs
        self._lent: tuple[int, ...] | None = None
        self._leaving: list[int] = []
        self.memory: dict[str, Any] = {}
        self.cache: Any = None
        self.arrived: list[JobId] = []
        self.finished: list[JobId] = []

    def arrive(self, job: Job, now_s: float) -> None:
        """Take in a new job, unanswered."""
        self.jobs[job.id] = JobView(job, Progress(job.work, since_s=now_s))
        self.arrived.append(job.id)

    def finish(self, job_id: JobId, now_s: float) -> JobView:
        """Take out a job whose work is done; returns its last view, with no work left and no devices."""
        view = self.jobs.pop(job_id)
        self.release(view.devices)
        if job_id in self.arrived:
            self.arrived.remove(job_id)  # it was cancelled before any policy heard of it
        else:
            self.finished.append(job_id)
        done = Progress(0.0, since_s=now_s)
        return replace(
            view,
            progress=done,
            status=Status.FINISHED,
            devices=(),
            share=0,
            served=view.served_at(now_s),
            ran_s=view.ran_at(now_s),
        )

    def lend(self, lent: tuple[int, ...]) -> None:
        """Let jobs use exactly these devices from now on; what they hold of others they are to leave."""
        usable = self.cluster.full_masks if self._lent is None else self._lent
        leaving = self._leaving or [0] * len(usable)
        held = [(mask | gone) & ~free for mask, gone, free in zip(usable, leaving, self.free_masks, strict=True)]
        self._lent = lent
        self._leaving = [taken & ~mask for taken, mask in zip(held, lent, strict=True)]
        self.free_masks = [mask & ~taken for mask, taken in zip(lent, held, strict=True)]

    @property
    def leaving(self) -> tuple[int, ...]:
        """For each node the devices that jobs hold and are to leave; empty if there are none."""
        return tuple(self._leaving) if any(self._leaving) else ()

    def snapshot(self) -> Snapshot:
        """The world as it is, with what happened since the last Snapshot."""
        changes = Changes(tuple(self.finished), tuple(self.arrived))
        self.finished, self.arrived = [], []
        return Snapshot(
            self.cluster,
            self.jobs,
            tuple(self.free_masks),
            changes,
            self.memory,
            self.cache,
            self.version,
            self.leaving,
        )

    def apply(self, decision: Decision, now_s: float) -> list[tuple[JobView, JobView]]:
        """Carry out a decision; returns (before, after) of each job whose devices changed.

        Devices are taken back from all jobs that change before any are handed out, so that jobs may swap.
        """
        for job_id, answer in decision.answers.items():
            view = self.jobs[job_id]
            promise = decision.promises.get(job_id, view.promise)
            self.jobs[job_id] = replace(view, status=answer.status, answer_by_s=answer.answer_by_s, promise=promise)
        for job_id, promise in decision.promises.items():
            if job_id not in decision.answers:
                self.jobs[job_id] = replace(self.jobs[job_id], promise=promise)
        moved = []
        for job_id in decision.allocations:
            self.release(self.jobs[job_id].devices)
        for job_id, devices in decision.allocations.items():
            before = self.jobs[job_id]
            self.take(devices)
            after = reallocate(before, devices, now_s, self._count_types(before, devices))
            self.jobs[job_id] = after
            moved.append((before, after))
        for job_id, answer in decision.answers.items():
            if answer.status is Status.DECLINED:
                del self.jobs[job_id]
        self.version += 1
        self.cache = decision.cache
        if decision.memory is not None:
            self.memory = dict(decision.memory)
        return moved

    def _count_types(self, view: JobView, devices: Devices) -> Mix | None:
        """What a set holds of each type, for a job whose speed depends on it; it must be one the job may hold."""
        typed = view.job.typed
        if typed is None:
            return None
        mix = self.cluster.count_types(devices)
        objection = typed.objection(mix, view.home)
        if objection or (mix and not typed.rate(mix)):
            held = ", ".join(f"{count} {device_type}" for device_type, count in mix.items())
            raise PolicyError(f"job {view.job.id} cannot run on {held}: {objection or 'it has no speed on so many'}")
        return mix

    def release(self, devices: Devices) -> None:
        """Take devices back."""
        for node, mask in devices:
            self.free_masks[node] |= mask
            if self._lent is not None:
                self.free_masks[node] &= self._lent[node]
                self._leaving[node] &= ~mask

    def take(self, devices: Devices) -> None:
        """Hand devices out, which must be free."""
        for node, mask in devices:
            if self.free_masks[node] & mask != mask:
                raise AssertionError(f"node {node}: devices {mask:b} are not all free ({self.free_masks[node]:b})")
            self.free_masks[node] &= ~mask


def reallocate(view: JobView, devices: Devices, now_s: float, mix: Mix | None = None) -> JobView:
    """The view after its devices become `devices`: settled to now, and paused if the new set is not empty.

    The rate is that of the share, or of the `mix` of types that the devices are for a job with speeds by type.

    An unchanged set changes nothing.
    """
    if devices == view.devices:
        return view
    share = count_devices(devices)
    job = view.job
    paused_s = view.progress.paused_until_s
    paused_until_s = job.overhead.resumes_s(now_s, share, not view.share, paused_s) if share else now_s
    rate = job.curve.rate(share) if mix is None or job.typed is None else job.typed.rate(mix)
    progress = Progress(view.progress.work_left_at(now_s), rate, now_s, paused_until_s)
    return JobView(
        job,
        progress,
        view.status,
        devices,
        share,
        view.promise,
        view.answer_by_s,
        view.served_at(now_s),
        view.ran_at(now_s),
        min(view.first_start_s, now_s) if share else view.first_start_s,
        mix,
        view.home or next(iter(mix), "") if mix else view.home,
    )
