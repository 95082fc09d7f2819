"""The shared book-keeping, kept live: what `core.world` does for the simulator, plus what only reality needs.

Reality tells how far a job really is, how fast it really goes, and that a server may start in the middle of things.
Here records become the views that policies see; nothing is decided.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from springtide.control.prices import UNPRICED, PriceTable
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.storage.records import JobRecord, PlanRecord
from springtide.core.decisions import JobView, Plan, Progress, Promise, Segment, Status
from springtide.core.devices import Devices, count_devices
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix
from springtide.core.world import World, reallocate, take


class LiveWorld(World):
    """A World that can be corrected by observation, rebuilt from records, and copied to try a decision."""

    def restore(self, view: JobView) -> None:
        """Add a job as it stood when the last server ended; call in arrival order."""
        take(self._free, view.devices)
        self._put(view)

    def remove(self, job_id: JobId) -> None:
        """Forget a job that was not admitted, if it is still there."""
        self._jobs.pop(job_id, None)
        self._forget()

    def withdraw(self, job_id: JobId) -> None:
        """Forget an open offer, if there is one: its reservation is free again."""
        view = self._jobs.get(job_id)
        if view is not None and view.status is Status.OFFERED:
            self.remove(job_id)

    def remember(self, memory: dict[str, Any]) -> None:
        """Begin with what a policy left in the store."""
        self._memory = dict(memory)

    def set_promise(self, job_id: JobId, promise: Promise | None) -> None:
        """Put another plan behind a promise, or none: then the policy knows of no promise."""
        self._put(replace(self._jobs[job_id], promise=promise))

    def set_deadline(self, job_id: JobId, deadline_s: float) -> None:
        """Give a job another deadline."""
        view = self._jobs[job_id]
        self._put(replace(view, job=replace(view.job, deadline_s=deadline_s)))

    def admit(self, job_id: JobId) -> None:
        """Make the reservation of an open offer the promise of an admitted job."""
        self._put(replace(self._jobs[job_id], status=Status.ADMITTED, answer_by_s=inf))

    def resume(self, job_id: JobId, step: int, served: float, ran_s: float) -> None:
        """Say what a job that goes on has behind it: steps, device-seconds, seconds of running."""
        view = self._jobs[job_id]
        progress = replace(view.progress, work_left=max(0.0, view.job.work - step))
        self._put(replace(view, progress=progress, served=served, ran_s=ran_s))

    def revise(self, job: Job, now_s: float) -> None:
        """Replace what is known of a job: its work, speeds or costs. Its devices and promise stay."""
        view = self._jobs[job.id]
        left = max(0.0, view.progress.work_left_at(now_s) + job.work - view.job.work)
        rate = find_rate(job, view.share, view.mix)
        paused_until_s = max(now_s, view.progress.paused_until_s)
        progress, (served, ran_s) = Progress(left, rate, now_s, paused_until_s), view.used_at(now_s)
        self._put(replace(view, job=job, progress=progress, served=served, ran_s=ran_s))

    def _put(self, view: JobView) -> None:
        """Replace a view by one that no decision made."""
        self._jobs[view.job.id] = view
        self._forget()

    def _forget(self) -> None:
        """Drop what is derived from the jobs: neither the policy's cache nor who is where tells the truth any more."""
        self._cache, self._holders = None, []

    def copy(self) -> "LiveWorld":
        """A world that may be changed without changing this one."""
        twin = LiveWorld(self.cluster)
        twin._jobs = dict(self._jobs)
        twin._free = list(self._free)
        twin._memory, twin._cache = dict(self._memory), self._cache
        return twin


@dataclass(frozen=True, slots=True)
class UsedShare:
    """On how many devices a job makes its steps by its own word, and since when it has said so."""

    share: int
    since_s: float


class PlatformWorld(LiveWorld):
    """The world of a server: its devices have the names under which the executor knows them."""

    def __init__(self, inventory: Inventory, prices: PriceTable = UNPRICED) -> None:
        super().__init__(inventory.cluster)
        self.inventory = replace(inventory, prices=prices)
        self.prices = prices
        #: How many times longer the last steps of jobs took than expected, on machines that others use too.
        self.paces: dict[str, float] = {}
        self.used_shares: dict[str, UsedShare] = {}

    def note_share(self, job_id: str, share: int, now_s: float) -> None:
        """Remember on how many devices a job says that it makes its steps."""
        if job_id not in self.used_shares or self.used_shares[job_id].share != share:
            self.used_shares[job_id] = UsedShare(share, now_s)

    def slow_down(self, inventory: Inventory) -> None:
        """Go on with the same devices, faster or slower than they were."""
        self.inventory = replace(inventory, prices=self.prices)
        if not inventory.slowdowns:
            self.paces.clear()

    def note_away(self, away: frozenset[str]) -> None:
        """Go on with the same devices; those on these nodes can start nothing now."""
        self.inventory = replace(self.inventory, away=away & {*self.inventory.nodes})

    def let_stand(self, job_id: JobId, now_s: float) -> None:
        """Count nothing for a job since it was last looked at: it has neither run nor held anything."""
        view = self._jobs[job_id]
        paused_until_s = max(now_s, view.progress.paused_until_s)
        self._jobs[job_id] = replace(
            view, progress=replace(view.progress, since_s=now_s, paused_until_s=paused_until_s)
        )

    def find_price(self, devices: Iterable[str]) -> float:
        """Dollars per device-hour of these devices, on average; of those that have left, as of a type without one."""
        return self.prices.average(self.inventory.types_by_name.get(name, "") for name in devices)

    def change_inventory(self, inventory: Inventory, now_s: float) -> None:
        """Go on with other devices; jobs keep those of theirs that are there and make a permitted share."""
        before, self.inventory = self.inventory, replace(inventory, prices=self.prices)
        self.cluster = inventory.cluster
        self._free = list(self.cluster.full_masks)
        self._forget()
        for view in list(self._jobs.values()):
            kept = inventory.find_devices(before.name_devices(view.devices))
            devices = kept if find_rate(view.job, count_devices(kept), self.cluster.count_types(kept)) else ()
            take(self._free, devices)
            if count_devices(devices) == view.share:
                self._put(replace(view, devices=devices))
            else:
                mix = None if view.job.typed is None else self.cluster.count_types(devices)
                self._put(reallocate(view, devices, now_s, mix))


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
        Status.WAITLISTED if record.state is JobState.WAITLISTED or record.unanswered else Status.ADMITTED,
        devices,
        share,
        None if record.plan is None or record.deadline_s is None else read_promise(record.plan, record.deadline_s),
        inf if record.answer_by_s is None else record.answer_by_s,
        record.served,
        record.ran_s,
        inf if record.first_start_s is None else record.first_start_s,
        mix if job.typed is not None else None,
        record.first_device_type if job.typed is not None else "",
    )


def read_promise(plan: PlanRecord, deadline_s: float) -> Promise:
    """A promise as policies see it."""
    segments = tuple(Segment(start_s, share) for start_s, share in plan.segments)
    return Promise(deadline_s, Plan(segments, plan.finish_s, plan.held_until_s), plan.device_type)
