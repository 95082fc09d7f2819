"""The working copy that one decision is laid out on: free masks, who holds what, and a trail to step back along.

It starts from a Snapshot without looking at the jobs; who sits on which node is indexed only when room must be made.
It decides nothing.
"""

from collections.abc import Iterable

from springtide.core.decisions import Snapshot
from springtide.core.devices import Devices, count_devices
from springtide.core.jobs import JobId
from springtide.placement.blocks import is_power_of_two
from springtide.placement.fits import Topology, topology_of

Step = tuple[JobId, Devices, Devices]  # job, what it held, what it holds


class Board:
    """Devices free and held. `changing` jobs pay a pause at this instant anyway; `waiting` ones are still to be placed.

    Invariant: `free` and the devices held are disjoint and together the cluster.
    """

    __slots__ = ("_holders", "_jobs", "_shares", "_start", "_trail", "changing", "free", "held", "topology", "waiting")

    def __init__(self, snapshot: Snapshot) -> None:
        self.topology: Topology = topology_of(snapshot.cluster)
        self.free = list(snapshot.free_masks)
        self.held: dict[JobId, Devices] = {}  # only of jobs that were touched
        self.changing: set[JobId] = set()
        self.waiting: set[JobId] = set()
        self._jobs = snapshot.jobs
        self._shares: dict[JobId, int] = {}  # of the same jobs
        self._start: dict[JobId, Devices] = {}  # what jobs held before they were first touched at this instant
        self._trail: list[Step] = []
        self._holders: dict[int, dict[JobId, int]] = {}  # only of nodes that were asked about

    def devices_of(self, job_id: JobId) -> Devices:
        """What a job holds now."""
        held = self.held.get(job_id)
        return self._jobs[job_id].devices if held is None else held

    def assign(self, job_id: JobId, devices: Devices) -> None:
        """Give a job these devices instead of what it holds; they must be free or its own."""
        before = self.devices_of(job_id)
        self._start.setdefault(job_id, before)
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

    def begin(self, changing: Iterable[JobId]) -> None:
        """Start a new instant, in which these jobs change their share."""
        self.changing = set(changing)
        self._start = {}
        self._trail = []

    def changed(self) -> dict[JobId, Devices]:
        """The jobs whose devices are not those of the instant's beginning, in the order they were touched."""
        return {job_id: self.held[job_id] for job_id, before in self._start.items() if self.held[job_id] != before}

    def is_changing(self, job_id: JobId) -> bool:
        """Whether a job pays a pause at this instant already, so that another place costs it nothing more."""
        return job_id in self.changing or (job_id in self._start and self.held[job_id] != self._start[job_id])

    def holders(self, node: int) -> dict[JobId, int]:
        """Who holds which devices of a node, which must have been indexed."""
        return self._holders[node]

    def index_holders(self, nodes: Iterable[int]) -> None:
        """Find out who holds devices of these nodes; O(jobs) if one of them is new."""
        new: dict[int, dict[JobId, int]] = {node: {} for node in nodes if node not in self._holders}
        if not new:
            return
        for job_id, view in self._jobs.items():
            for node, mask in self.held.get(job_id, view.devices):
                if node in new:
                    new[node][job_id] = mask
        self._holders |= new

    def share_of(self, job_id: JobId) -> int:
        """How many devices a job holds now."""
        share = self._shares.get(job_id)
        return self._jobs[job_id].share if share is None else share

    def index_of(self, job_id: JobId) -> int:
        """A job's arrival number, which breaks ties."""
        return self._jobs[job_id].job.index

    def must_be_compact(self, share: int) -> bool:
        """Whether a compact place can always be made: power-of-two shares on equal nodes of a power-of-two size."""
        return self.topology.regular and is_power_of_two(share)

    def _swap(self, job_id: JobId, before: Devices, after: Devices) -> None:
        free = self.free
        for node, mask in before:
            free[node] |= mask
        for node, mask in after:
            free[node] &= ~mask
        self.held[job_id] = after
        self._shares[job_id] = count_devices(after)
        if self._holders:
            self._reindex(job_id, before, after)

    def _reindex(self, job_id: JobId, before: Devices, after: Devices) -> None:
        for node, _ in before:
            if node in self._holders:
                del self._holders[node][job_id]
        for node, mask in after:
            if node in self._holders:
                self._holders[node][job_id] = mask
