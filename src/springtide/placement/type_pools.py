"""Placement on clusters of several device types: each type is a pool of nodes, and each pool a placement of its own.

A job's part in one pool is placed, grown and moved as if the other pools were not there. It adds no rule of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.devices import Cluster, Devices, NodeSlice, count_devices
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix
from springtide.errors import PolicyError
from springtide.placement.buddy import place


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of one device type: `nodes` are their numbers in the whole cluster, `cluster` is theirs alone."""

    device_type: str
    nodes: tuple[int, ...]
    cluster: Cluster

    def narrow(self, devices: Devices) -> Devices:
        """The part of a set that lies in this pool, with the pool's own node numbers."""
        first = self.nodes[0]
        if self.nodes[-1] - first + 1 == len(self.nodes):
            last = self.nodes[-1]
            return tuple([NodeSlice(node - first, mask) for node, mask in devices if first <= node <= last])
        return tuple([NodeSlice(self.nodes.index(node), mask) for node, mask in devices if node in self.nodes])

    def widen(self, devices: Devices) -> Devices:
        """A set of this pool with the node numbers of the whole cluster."""
        return tuple([NodeSlice(self.nodes[node], mask) for node, mask in devices])


@lru_cache(maxsize=64)
def pools_of(cluster: Cluster) -> tuple[Pool, ...]:
    """The pools of a cluster, in the order of its device types."""
    return tuple(_draw_pool(cluster, device_type) for device_type in cluster.device_types)


def _draw_pool(cluster: Cluster, device_type: str) -> Pool:
    nodes = tuple(node for node, other in enumerate(cluster.node_types) if other == device_type)
    groups = tuple(group for group in cluster.groups if group.device_type == device_type)
    return Pool(device_type, nodes, Cluster(groups, cluster.nodes_per_rack))


def narrow_snapshot(snapshot: Snapshot, pool: Pool) -> Snapshot:
    """The world as it is in one pool: every job with what it holds there, which may be nothing."""
    free = tuple([snapshot.free_masks[node] for node in pool.nodes])
    jobs = {job_id: _narrow_view(view, pool) for job_id, view in snapshot.jobs.items()}
    return Snapshot(pool.cluster, jobs, free)


def _narrow_view(view: JobView, pool: Pool) -> JobView:
    if not view.share:
        return view
    devices = pool.narrow(view.devices)
    return replace(view, devices=devices, share=count_devices(devices))


def place_mixes(now_s: float, snapshot: Snapshot, decision: Decision) -> dict[JobId, Devices]:
    """The devices of every job for which they change: those in `decision.mixes` and those moved to make room."""
    mixes = dict(_list_mixes(snapshot, decision))
    placed: dict[JobId, dict[str, Devices]] = {}
    for pool in pools_of(snapshot.cluster):
        inside = narrow_snapshot(snapshot, pool)
        shares = {job_id: mix.get(pool.device_type, 0) for job_id, mix in mixes.items()}
        changes = {job_id: share for job_id, share in shares.items() if share != inside.jobs[job_id].share}
        optional = frozenset(job_id for job_id in changes if job_id in decision.optional)
        part = Decision(promises=decision.promises, shares=changes, optional=optional)
        for job_id, devices in place(now_s, inside, part).items():
            placed.setdefault(job_id, {})[pool.device_type] = pool.widen(devices)
    return {job_id: _join(snapshot, job_id, parts) for job_id, parts in placed.items()}


def _list_mixes(snapshot: Snapshot, decision: Decision) -> Iterator[tuple[JobId, Mix]]:
    """Every mix that is asked for; on a cluster of one type a share is one, too."""
    device_types = snapshot.cluster.device_types
    for job_id, mix in decision.mixes.items():
        missing = [device_type for device_type in mix if device_type not in device_types]
        if missing:
            raise PolicyError(
                f"job {job_id} cannot have devices of type {', '.join(missing)}: "
                f"cluster {snapshot.cluster.describe()} has none"
            )
        yield job_id, mix
    for job_id, share in decision.shares.items():
        if len(device_types) > 1:
            raise PolicyError(
                f"job {job_id} is given {share} devices of no type; a policy that names mixes must name them for all"
            )
        yield job_id, {device_types[0]: share}


def _join(snapshot: Snapshot, job_id: JobId, parts: Mapping[str, Devices]) -> Devices:
    """What a job holds once its devices of some types are replaced by these."""
    types = snapshot.cluster.node_types
    kept = [piece for piece in snapshot.jobs[job_id].devices if types[piece.node] not in parts]
    return tuple(sorted([*kept, *(piece for devices in parts.values() for piece in devices)]))
