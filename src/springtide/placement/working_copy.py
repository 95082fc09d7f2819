"""The working copy that one decision is laid out on: free masks, who holds what, and a trail to step back along.

It starts from a Snapshot without looking at the jobs; what one holds is looked up when it is first asked for, and who
sits on which node only when room must be made. It decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from springtide.core.decisions import JobView, Snapshot
from springtide.core.devices import Devices, count_devices
from springtide.core.jobs import JobId
from springtide.core.world import hand_over, list_holders
from springtide.placement.best_fit import Topology, topology_of
from springtide.placement.blocks import is_power_of_two

Step = tuple[JobId, Devices, Devices]  # job, what it held, what it holds


class _Held(dict[JobId, Devices]):
    """The devices of each job that was asked about."""

    def __init__(self, jobs: Mapping[JobId, JobView]) -> None:
        self.jobs = jobs

    def __missing__(self, job_id: JobId) -> Devices:
        self[job_id] = devices = self.jobs[job_id].devices
        return devices


class _Shares(dict[JobId, int]):
    """The share of each job that was asked about."""

    def __init__(self, jobs: Mapping[JobId, JobView]) -> None:
        self.jobs = jobs

    def __missing__(self, job_id: JobId) -> int:
        self[job_id] = share = self.jobs[job_id].share
        return share


class WorkingCopy:
    """Devices free and held. `changing` jobs pay a pause at this instant anyway; `waiting` ones are still to be placed.

    `held` and `shares` know every job of the Snapshot. Invariant: `free` and the devices held are disjoint and together
    the cluster.
    """

    __slots__ = (
        "_counted",
        "_holders",
        "_jobs",
        "_start",
        "_trail",
        "changing",
        "free",
        "held",
        "shares",
        "topology",
        "waiting",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.topology: Topology = topology_of(snapshot.cluster)
        self.free = list(snapshot.free_masks)
        self.held = _Held(snapshot.jobs)
        self.shares = _Shares(snapshot.jobs)
        self.changing: set[JobId] = set()
        self.waiting: set[JobId] = set()
        self._jobs = snapshot.jobs
        self._start: dict[JobId, Devices] = {}  # what jobs held before they were first touched at this instant
        self._trail: list[Step] = []
        self._counted = snapshot.holders
        self._holders: list[Mapping[JobId, int]] = []  # empty until room must be made

    def carry_over(self, snapshot: Snapshot, leaving: Iterable[JobId]) -> "WorkingCopy":
        """As much held by whom, as a working copy of a later Snapshot; those `leaving` hold nothing."""
        later = WorkingCopy(snapshot)
        later.free = list(self.free)
        later.held.update({job_id: devices for job_id, devices in self.held.items() if job_id in snapshot.jobs})
        later.held.update(dict.fromkeys(leaving, ()))
        later.shares.update({job_id: count_devices(devices) for job_id, devices in later.held.items()})
        return later

    def assign(self, job_id: JobId, devices: Devices) -> None:
        """Give a job these devices instead of what it holds; they must be free or its own."""
        before = self.held[job_id]
        self._start.setdefault(job_id, before)
        if devices is not before:
            self._trail.append((job_id, before, devices))
            self._swap(job_id, before, devices)

    def mark(self) -> int:
        """Where the trail is, for `undo` and `steps_since`."""
        return len(self._trail)

    def steps_since(self, mark: int) -> list[Step]:
        """The assignments made after a mark."""
        return self._trail[mark:]

    def undo(self, mark: int) -> None:
        """Take back all assignments after a mark."""
        while len(self._trail) > mark:
            job_id, before, after = self._trail.pop()
            self._swap(job_id, after, before)

    def replay(self, steps: Iterable[Step]) -> None:
        """Make assignments again that were undone."""
        for job_id, _, devices in steps:
            self.assign(job_id, devices)

    def begin(self, changing: set[JobId]) -> None:
        """Start a new instant, in which these jobs change their share."""
        self.changing = changing
        self._start = {}
        self._trail = []

    def changed(self) -> dict[JobId, Devices]:
        """The jobs whose devices are not those of the instant's beginning, in the order they were touched."""
        held = self.held
        return {job_id: held[job_id] for job_id, before in self._start.items() if held[job_id] != before}

    def is_changing(self, job_id: JobId) -> bool:
        """Whether a job pays a pause at this instant already, so that another place costs it nothing more."""
        return job_id in self.changing or (job_id in self._start and self.held[job_id] != self._start[job_id])

    @property
    def holders(self) -> Sequence[Mapping[JobId, int]]:
        """For each node who holds which devices of it; from what the Snapshot has counted, kept up to date after."""
        if not self._holders:
            self._holders = [*(self._counted or list_holders(len(self.free), self._jobs))]
            for job_id, devices in self.held.items():
                before = self._jobs[job_id].devices
                if devices is not before:
                    hand_over(self._holders, job_id, before, devices)
        return self._holders

    def index_of(self, job_id: JobId) -> int:
        """A job's arrival number, which breaks ties."""
        return self._jobs[job_id].job.index

    def must_be_compact(self, share: int) -> bool:
        """Whether a compact place can always be made: power-of-two shares on equal nodes of a power-of-two size."""
        return self.topology.regular and is_power_of_two(share)

    def _swap(self, job_id: JobId, before: Devices, after: Devices) -> None:
        free, share = self.free, 0
        for node, mask in before:
            free[node] |= mask
        for node, mask in after:
            free[node] &= ~mask
            share += mask.bit_count()
        self.held[job_id] = after
        self.shares[job_id] = share
        if self._holders:
            hand_over(self._holders, job_id, before, after)
