"""The one book-keeping module: what jobs there are, what they hold, how far they are.

The simulator and the live reconciler feed it the same things (arrivals, completions, decisions) and read the same
Snapshots from it. It does no I/O and has no clock; time comes with each call and never goes back. A policy is code that
may come from outside: `check_decision` compares what it says with the Snapshot it was shown, and refuses it with the
job, the value and the rule. `World.apply` is all or nothing by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from springtide.core.decisions import Answer, Changes, Decision, JobView, Progress, Snapshot, Status
from springtide.core.devices import Cluster, Devices, count_devices
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix
from springtide.errors import PolicyError

ANSWERABLE = frozenset({Status.PENDING, Status.WAITLISTED})
ANSWERS = frozenset({Status.ADMITTED, Status.WAITLISTED, Status.DECLINED})


class World:
    """Unfinished jobs by id in arrival order, and the free devices of each node.

    Its users read it and call its methods; nothing of it is changed from outside. `memory` and `cache` are
    the policy's own, from one decision to the next.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._jobs: dict[JobId, JobView] = {}
        self._free = list(cluster.full_masks)
        # devices that jobs may use, and those they must still leave; None and empty where all are always theirs
        self._lent: tuple[int, ...] | None = None
        self._leaving: list[int] = []
        self._memory: dict[str, Any] = {}
        self._cache: Any = None
        # for each node who holds which devices of it; empty until it is counted, and each is replaced, never changed
        self._holders: list[Mapping[JobId, int]] = []
        self._arrived: list[JobId] = []
        self._finished: list[JobId] = []

    def mark(self) -> dict[str, Any]:
        """A snapshot of the world for one later `roll_back`."""
        kept = vars(self)
        return {name: value.copy() if type(value) in (dict, list) else value for name, value in kept.items()}

    def roll_back(self, mark: dict[str, Any]) -> None:
        """Be again as at a mark; only the cache is gone, because a failed policy may have left it half changed."""
        vars(self).update(mark)
        self._cache = None

    @property
    def jobs(self) -> Mapping[JobId, JobView]:
        """The unfinished jobs, in order of arrival."""
        return self._jobs

    @property
    def free_masks(self) -> Sequence[int]:
        """For each node the devices that no job holds."""
        return self._free

    @property
    def leaving(self) -> tuple[int, ...]:
        """For each node the devices that jobs hold and are to leave; empty if there are none."""
        return tuple(self._leaving) if any(self._leaving) else ()

    def arrive(self, job: Job, now_s: float) -> None:
        """Add a new job, unanswered."""
        self._jobs[job.id] = JobView(job, Progress(job.work, since_s=now_s))
        self._arrived.append(job.id)

    def finish(self, job_id: JobId, now_s: float) -> JobView:
        """Remove a job whose work is done; returns its last view, with no work left and no devices."""
        view = self._jobs.pop(job_id)
        release(self._free, self._leaving, self._lent, view.devices)
        if self._holders:
            hand_over(self._holders, job_id, view.devices, ())
        if job_id in self._arrived:
            self._arrived.remove(job_id)  # it was cancelled before any policy heard of it
        else:
            self._finished.append(job_id)
        (served, ran_s), done = view.used_at(now_s), Progress(0.0, since_s=now_s)
        return replace(view, progress=done, status=Status.FINISHED, devices=(), share=0, served=served, ran_s=ran_s)

    def observe(self, job_id: JobId, progress: Progress, now_s: float) -> None:
        """Replace what was computed of a job's progress by what was seen.

        The cache stays: progress is read from the view at each decision.
        """
        view = self._jobs[job_id]
        served, ran_s = view.used_at(now_s)
        self._jobs[job_id] = replace(view, progress=progress, served=served, ran_s=ran_s)

    def lend(self, lent: tuple[int, ...]) -> None:
        """Let jobs use exactly these devices from now on; what they hold of others they are to leave."""
        usable = self.cluster.full_masks if self._lent is None else self._lent
        leaving = self._leaving or [0] * len(usable)
        held = [(mask | gone) & ~free for mask, gone, free in zip(usable, leaving, self._free, strict=True)]
        self._lent = lent
        self._cache = None
        self._leaving = [taken & ~mask for taken, mask in zip(held, lent, strict=True)]
        self._free = [mask & ~taken for mask, taken in zip(lent, held, strict=True)]

    def snapshot(self) -> Snapshot:
        """The world as it is, with what happened since the last Snapshot."""
        changes = Changes(tuple(self._finished), tuple(self._arrived))
        self._finished, self._arrived = [], []
        if not self._holders:
            self._holders = list_holders(len(self._free), self._jobs)
        free, holders = tuple(self._free), tuple(self._holders)
        return Snapshot(self.cluster, self._jobs, free, changes, self._memory, self._cache, self.leaving, holders)

    def apply(self, decision: Decision, now_s: float) -> list[tuple[JobView, JobView]]:
        """Carry out a decision, or raise and change nothing; returns (before, after) of each job with an allocation.

        Devices are taken back from all jobs that change before any are handed out, so that jobs may swap.
        """
        free, leaving = list(self._free), list(self._leaving)
        for job_id in decision.allocations:
            release(free, leaving, self._lent, self._jobs[job_id].devices)
        answered = self._answer(decision)
        moved = []
        for job_id, devices in decision.allocations.items():
            before = answered.get(job_id) or self._jobs[job_id]
            take(free, devices)
            moved.append((before, reallocate(before, devices, now_s, count_mix(self.cluster, before, devices))))
        # from here on nothing can fail
        self._free, self._leaving = free, leaving
        self._jobs.update(answered)
        self._jobs.update((after.job.id, after) for _, after in moved)
        if self._holders:
            for before, after in moved:
                hand_over(self._holders, after.job.id, before.devices, after.devices)
        for job_id, answer in decision.answers.items():
            if answer.status is Status.DECLINED:
                del self._jobs[job_id]
        self._cache = decision.cache
        if decision.memory is not None:
            self._memory = dict(decision.memory)
        return moved

    def _answer(self, decision: Decision) -> dict[JobId, JobView]:
        """The jobs with the answers and promises of a decision."""
        views = {}
        for job_id, answer in decision.answers.items():
            view = self._jobs[job_id]
            promise = decision.promises.get(job_id, view.promise)
            views[job_id] = replace(view, status=answer.status, answer_by_s=answer.answer_by_s, promise=promise)
        for job_id, promise in decision.promises.items():
            if job_id not in views:
                views[job_id] = replace(self._jobs[job_id], promise=promise)
        return views


def count_mix(cluster: Cluster, view: JobView, devices: Devices) -> Mix | None:
    """What a set holds of each type, for a job whose speed depends on it; it must be one the job may hold."""
    typed = view.job.typed
    if typed is None:
        return None
    mix = cluster.count_types(devices)
    objection = typed.objection(mix, view.first_device_type)
    if objection or (mix and not typed.rate(mix)):
        held = ", ".join(f"{count} {device_type}" for device_type, count in mix.items())
        raise PolicyError(f"job {view.job.id} cannot run on {held}: {objection or 'it has no speed on so many'}")
    return mix


def release(free: list[int], leaving: list[int], lent: Sequence[int] | None, devices: Devices) -> None:
    """Give devices back to the free masks; those that were only lent, and are claimed, to their owner."""
    for node, mask in devices:
        free[node] |= mask
        if lent is not None:
            free[node] &= lent[node]
            leaving[node] &= ~mask


def take(free: list[int], devices: Devices) -> None:
    """Take devices out of the free masks, which must hold them."""
    for node, mask in devices:
        if free[node] & mask != mask:
            raise PolicyError(f"node {node}: devices {mask:b} are not all free ({free[node]:b})")
        free[node] &= ~mask


def list_holders(nodes: int, jobs: Mapping[JobId, JobView]) -> list[Mapping[JobId, int]]:
    """For each node who holds which devices of it."""
    holders: list[dict[JobId, int]] = [{} for _ in range(nodes)]
    for job_id, view in jobs.items():
        for node, mask in view.devices:
            holders[node][job_id] = mask
    return [*holders]


def hand_over(holders: list[Mapping[JobId, int]], job_id: JobId, before: Devices, after: Devices) -> None:
    """Note that a job holds other devices; what is known of a node is replaced, because others may look at it."""
    for node, _ in before:
        left = dict(holders[node])
        del left[job_id]
        holders[node] = left
    for node, mask in after:
        holders[node] = {**holders[node], job_id: mask}


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
    served, ran_s = view.used_at(now_s)
    return replace(
        view,
        progress=progress,
        devices=devices,
        share=share,
        served=served,
        ran_s=ran_s,
        first_start_s=min(view.first_start_s, now_s) if share else view.first_start_s,
        mix=mix,
        first_device_type=view.first_device_type or next(iter(mix or ()), ""),
    )


def check_decision(now_s: float, snapshot: Snapshot, decision: Decision) -> None:
    """Refuse a decision that names unknown jobs, revokes answers, or hands out devices that cannot be had."""
    known = snapshot.jobs.keys()
    told = decision.answers, decision.promises, decision.reasons
    for part in (*told, decision.shares, decision.mixes, decision.allocations):
        if part and not part.keys() <= known:
            stranger = next(job_id for job_id in part if job_id not in known)
            raise PolicyError(f"a decision names job {stranger}, which is not among the {len(known)} unfinished")
    for job_id, answer in decision.answers.items():
        check_answer(snapshot.jobs[job_id], answer, decision)
    unanswered = [job_id for job_id in snapshot.changes.arrived if job_id not in decision.answers]
    if unanswered:
        raise PolicyError(f"job {unanswered[0]} has just arrived and gets no answer; every newcomer must get one")
    if decision.allocations:
        check_devices(snapshot, decision)
    if not decision.wake_at_s > now_s:  # nor is NaN
        raise PolicyError(f"a policy asks to be woken at {decision.wake_at_s} s, which is not after {now_s} s")


def check_answer(view: JobView, answer: Answer, decision: Decision) -> None:
    """Refuse an answer to a job that has one for good, or one that contradicts itself."""
    job = view.job
    if view.status not in ANSWERABLE:
        raise PolicyError(f"job {job.id} is {view.status} and is told {answer.status}; an answer is never revoked")
    if answer.status not in ANSWERS:
        raise PolicyError(f"job {job.id} is told {answer.status}; an answer is one of: {', '.join(sorted(ANSWERS))}")
    if answer.promised and (answer.status is not Status.ADMITTED or job.best_effort):
        raise PolicyError(f"job {job.id} is {answer.status} and promised; only admitted jobs with a deadline can be")
    if answer.status is Status.DECLINED and decision.allocations.get(job.id, view.devices):
        verb = "given" if job.id in decision.allocations else "keeps its"
        raise PolicyError(f"job {job.id} is declined and {verb} devices; a declined job must leave all of them")


def check_devices(snapshot: Snapshot, decision: Decision) -> None:
    """Refuse allocations that overlap, lie outside the cluster, or that a job cannot run on."""
    free, leaving = list(snapshot.free_masks), list(snapshot.leaving)
    lent = [~mask for mask in leaving] if leaving else None  # what is given back of claimed devices goes to their owner
    for job_id in decision.allocations:
        release(free, leaving, lent, snapshot.jobs[job_id].devices)
    for job_id, devices in decision.allocations.items():
        view, share = snapshot.jobs[job_id], count_devices(devices)
        if any(not 0 <= node < len(free) for node, _ in devices):
            raise PolicyError(f"job {job_id} is given devices on node {devices[-1].node}; there are {len(free)} nodes")
        if count_mix(snapshot.cluster, view, devices) is None and share and share not in view.job.curve.shares:
            permitted = ", ".join(map(str, view.job.curve.shares))
            raise PolicyError(f"job {job_id} is given {share} devices; it runs on {permitted}")
        take(free, devices)
