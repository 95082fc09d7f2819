"""Devices for jobs that nobody moves for: each keeps of its own what it may, and takes the rest where it is free.

For best-effort jobs on what promised jobs leave over. Whole nodes are taken first, so that the pieces left are few;
compact places are the business of `buddy`, which clears them when a promise needs one.
"""

from collections.abc import Mapping, Sequence

from springtide.core.devices import Cluster, Devices, NodeSlice, join_slices
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix
from springtide.placement.best_fit import gather
from springtide.placement.blocks import pick


def hold_loosely(
    cluster: Cluster, free: Sequence[int], own: Mapping[JobId, Devices], mixes: Mapping[JobId, Mix]
) -> dict[JobId, Devices]:
    """Devices that make up each job's mix, of those in `free`, which counts what these jobs hold.

    The caller knows that there are enough of each type. Jobs that keep their mix keep their devices.
    """
    left = list(free)
    kept = {job_id: keep(cluster, left, own[job_id], mixes[job_id]) for job_id in mixes}
    return {job_id: join_slices([*kept[job_id], *add(cluster, left, kept[job_id], mixes[job_id])]) for job_id in mixes}


def keep(cluster: Cluster, left: list[int], own: Devices, mix: Mix) -> Devices:
    """The devices of its own that a job keeps, the fullest nodes first; taken out of `left`."""
    wanted = dict(mix)
    pieces = []
    for node, mask in sorted(own, key=lambda piece: (-piece.mask.bit_count(), piece.node)):
        device_type = cluster.node_types[node]
        there = mask & left[node]
        count = min(wanted.get(device_type, 0), there.bit_count())
        if count:
            part = pick(there, count)
            pieces.append(NodeSlice(node, part))
            left[node] &= ~part
            wanted[device_type] -= count
    return join_slices(pieces)


def add(cluster: Cluster, left: list[int], kept: Devices, mix: Mix) -> list[NodeSlice]:
    """The devices that a job takes beside those it keeps; taken out of `left`."""
    held = cluster.count_types(kept)
    pieces: list[NodeSlice] = []
    for device_type, count in mix.items():
        more = count - held.get(device_type, 0)
        if more > 0:
            masks = [mask if cluster.node_types[node] == device_type else 0 for node, mask in enumerate(left)]
            pieces += gather(masks, more)
    for node, mask in pieces:
        left[node] &= ~mask
    return pieces
