"""A small cluster for placement tests: jobs put on named devices by hand, then decisions placed and applied."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from springtide.control.scheduling.live_world import LiveWorld
from springtide.core.curves import Curve
from springtide.core.decisions import Decision, Plan, Promise, Segment
from springtide.core.devices import Cluster, Devices, NodeSlice, count_devices, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.placement.blocks import split_blocks
from springtide.placement.buddy import Placement, arrange

LINEAR = Curve(tuple(range(1, 129)), tuple(float(share) for share in range(1, 129)))
PAUSE = Overhead(base_s=10.0)


def build_job(index: int, work: float = 1e9, deadline_s: float = inf, overhead: Overhead = PAUSE) -> Job:
    """A job that runs on any share, named by its arrival number."""
    return Job(JobId(f"j{index}"), index, 0.0, work, LINEAR, deadline_s, overhead=overhead)


def build_cluster(text: str, nodes_per_rack: int = 16) -> Cluster:
    """A cluster with racks of a given size."""
    return replace(parse_cluster(text), nodes_per_rack=nodes_per_rack)


def promise_until(deadline_s: float, finish_s: float, reserve_s: float = 0.0, share: int = 1) -> Promise:
    """A promise whose plan is one share from the beginning on."""
    return Promise(deadline_s, Plan((Segment(0.0, share),), finish_s, finish_s + reserve_s))


@dataclass
class SmallCluster:
    """A world with a clock of its own."""

    cluster: Cluster
    now_s: float = 0.0
    world: LiveWorld = field(init=False)

    def __post_init__(self) -> None:
        self.world = LiveWorld(self.cluster)

    def arrive(self, index: int, **kwargs: float) -> JobId:
        """A new job without devices."""
        job = build_job(index, **kwargs)  # type: ignore[arg-type]
        self.world.arrive(job, self.now_s)
        return job.id

    def hold(self, index: int, *pieces: tuple[int, int], promise: Promise | None = None, work: float = 1e9) -> JobId:
        """A new job on these (node, mask) devices."""
        job_id = self.arrive(index, work=work)
        devices = tuple(NodeSlice(node, mask) for node, mask in pieces)
        promises = {} if promise is None else {job_id: promise}
        self.world.apply(Decision(allocations={job_id: devices}, promises=promises), self.now_s)
        return job_id

    def arrange(self, shares: Mapping[JobId, int], optional: Iterable[JobId] = ()) -> Placement:
        """What placement would do."""
        decision = Decision(shares=shares, optional=frozenset(optional))
        return arrange(self.now_s, self.world.snapshot(), decision)

    def place(self, shares: Mapping[JobId, int], optional: Iterable[JobId] = ()) -> Placement:
        """Place a decision and carry it out; the world refuses devices that are taken."""
        placement = self.arrange(shares, optional)
        self.world.apply(Decision(allocations=placement.allocations), self.now_s)
        return placement

    def devices(self, job_id: JobId) -> Devices:
        """What a job holds."""
        return self.world.jobs[job_id].devices

    def free(self) -> int:
        """How many devices no one holds."""
        return sum(mask.bit_count() for mask in self.world.free_masks)

    def finish(self, job_id: JobId) -> None:
        """A job ends."""
        self.world.finish(job_id, self.now_s)


def is_compact(devices: Devices, width: int) -> bool:
    """Whether a power-of-two share is one block of a node, or whole nodes of `width` devices."""
    share = count_devices(devices)
    if share >= width:
        return len(devices) == share // width
    return len(devices) == 1 and len(split_blocks(devices[0].mask)) == 1


def check_books(small: SmallCluster) -> None:
    """Assert that free devices and those held are disjoint and make up the cluster."""
    left = list(small.world.free_masks)
    for view in small.world.jobs.values():
        assert count_devices(view.devices) == view.share
        assert [piece.node for piece in view.devices] == sorted({piece.node for piece in view.devices})
        for node, mask in view.devices:
            assert mask
            assert not left[node] & mask
            left[node] |= mask
    assert tuple(left) == small.cluster.full_masks


def reserve_for(job: Job, shares: Iterable[int]) -> float:
    """Seconds that a plan of these shares, in order, must keep at its end to afford one move at any time.

    reserve = max over its shares g of pause(g) * T(g) / T(g_last).
    """
    held = [share for share in shares if share]
    rate = job.curve.rate
    return max((job.overhead.pause_s(share) * rate(share) / rate(held[-1]) for share in held), default=0.0)
