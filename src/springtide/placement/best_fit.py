"""Where a share fits among the free devices as they are: compact, tightest first, nobody moved.

A share below a node's size takes one block of one node; a larger one takes whole nodes of as few racks as possible
and a block for what is left over. Knows free masks only, not who holds the others.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from springtide.core.devices import Cluster, Devices, NodeSlice, join_slices
from springtide.placement.blocks import NO_FIT, find_block, is_power_of_two, list_parts, pick, ranks_for, split_blocks


@dataclass(frozen=True, slots=True)
class Topology:
    """The tree that a cluster is: devices in nodes, `nodes_per_rack` consecutive nodes in a rack."""

    full: tuple[int, ...]  # mask of all devices of each node
    widths: tuple[int, ...]  # the node sizes there are, largest first
    nodes_per_rack: int

    @property
    def regular(self) -> bool:
        """Whether every feasible set of power-of-two shares is placeable: equal nodes, a power of two in size."""
        return len(self.widths) == 1 and is_power_of_two(self.widths[0])


@lru_cache(maxsize=64)
def topology_of(cluster: Cluster) -> Topology:
    """The tree of a cluster."""
    widths = {group.devices_per_node for group in cluster.groups}
    return Topology(cluster.full_masks, tuple(sorted(widths, reverse=True)), cluster.nodes_per_rack)


@lru_cache(maxsize=1 << 16)
def on_one_node(node: int, mask: int) -> Devices:
    """Devices of a single node as a set; the sets there are on a cluster recur, and finding one is quicker."""
    return (NodeSlice(node, mask),)


def find_fit(topology: Topology, free: Sequence[int], share: int, near: Collection[int] = ()) -> Devices | None:
    """The best compact place that is free, on the nodes `near` if there is a choice of whole nodes; None if none is.

    O(nodes).
    """
    if share <= topology.widths[0]:
        found = _fit_one_node(topology, free, share)
        if found is not None:
            return found
    for width in topology.widths:
        if width < share:
            found = _fit_equal_nodes(topology, free, share, width, near)
            if found is not None:
                return found
    return _fit_mixed_nodes(topology, free, share) if len(topology.widths) > 1 else None


def extend(topology: Topology, free: Sequence[int], own: Devices, share: int) -> Devices | None:
    """A larger place around `own` devices (free in `free`): the rest of their block or node; None if it is taken."""
    if len(own) == 1:
        node, mask = own[0]
        more = share - mask.bit_count()
        block = find_block(mask, share)
        if block and free[node] & block == block:
            return on_one_node(node, mask | pick(block & ~mask, more))
        if not is_power_of_two(share) and free[node].bit_count() >= share:
            return on_one_node(node, mask | pick(free[node] & ~mask, more))
    return None


def keep_part(topology: Topology, free: Sequence[int], own: Devices, share: int) -> Devices | None:
    """The compact part of `own` devices to keep when shrinking to `share`; None if they hold none.

    Of one node the part whose release leaves the largest free blocks; of several the fewest racks.
    """
    if len(own) == 1 or share < min(piece.mask.bit_count() for piece in own):
        tightest = min(own, key=lambda piece: piece.mask.bit_count())
        return _keep_in_node(free, tightest, share)
    mine = [0] * len(free)
    for node, mask in own:
        mine[node] = mask
    return find_fit(topology, mine, share)


def gather(free: Sequence[int], share: int) -> Devices:
    """Any free devices on as few nodes as possible: the last resort, for shares and clusters that are no powers of two.

    The caller knows that there are enough.
    """
    nodes = sorted((node for node, mask in enumerate(free) if mask), key=lambda node: -free[node].bit_count())
    pieces: list[NodeSlice] = []
    for at, node in enumerate(nodes):
        if free[node].bit_count() >= share:
            tightest = min(
                (other for other in nodes[at:] if free[other].bit_count() >= share),
                key=lambda other: (free[other].bit_count(), other),
            )
            pieces.append(NodeSlice(tightest, pick(free[tightest], share)))
            break
        pieces.append(NodeSlice(node, free[node]))
        share -= free[node].bit_count()
    return join_slices(pieces)


def choose_nodes(
    topology: Topology, free: Sequence[int], width: int, count: int, near: Collection[int] = ()
) -> list[int] | None:
    """`count` nodes of `width` devices, all free: of the rack with the fewest that holds them, else of few racks.

    Racks that hold nodes `near` come first, and those nodes within them. None if there are not enough.
    """
    whole = _count_whole(topology, free, width)
    if sum(whole.values()) < count:
        return None
    mine = (
        Counter(node // topology.nodes_per_rack for node in near if free[node] == topology.full[node]) if near else {}
    )
    chosen: list[int] = []
    for rack in _choose_racks(whole, count, mine):
        nodes = _list_whole(topology, free, width, rack)
        if near:
            nodes.sort(key=lambda node: node not in near)
        chosen += nodes[: count - len(chosen)]
    return chosen


def _choose_racks(whole: dict[int, int], count: int, mine: Mapping[int, int]) -> list[int]:
    """The racks to take `count` nodes from, given the free ones of each: the largest until one holds the rest."""
    by_size: list[int] = []
    left = dict(whole)
    while left:
        holding = [(-mine.get(rack, 0), nodes, rack) for rack, nodes in left.items() if nodes >= count]
        if holding:
            return [*by_size, min(holding)[2]]
        largest = min(left, key=lambda rack: (-mine.get(rack, 0), -whole[rack], rack))
        by_size.append(largest)
        count -= left.pop(largest)
    return by_size


def _count_whole(topology: Topology, free: Sequence[int], width: int) -> dict[int, int]:
    """How many nodes of a width are free in each rack, racks without one left out."""
    mask, per_rack = (1 << width) - 1, topology.nodes_per_rack
    if len(topology.widths) > 1:
        return Counter(node // per_rack for node, full in enumerate(topology.full) if full == mask == free[node])
    counts = [free[start : start + per_rack].count(mask) for start in range(0, len(free), per_rack)]
    return {rack: count for rack, count in enumerate(counts) if count}


def _list_whole(topology: Topology, free: Sequence[int], width: int, rack: int) -> list[int]:
    mask, first = (1 << width) - 1, rack * topology.nodes_per_rack
    nodes = range(first, min(first + topology.nodes_per_rack, len(free)))
    return [node for node in nodes if free[node] == mask == topology.full[node]]


def _fit_one_node(topology: Topology, free: Sequence[int], share: int) -> Devices | None:
    # many nodes, few different masks: only those are ranked, and the first node of the best rank is taken
    ranks, masks = ranks_for(share), set(free)
    best = min(map(ranks.__getitem__, masks))
    if best == NO_FIT:
        return None
    node = min([free.index(mask) for mask in masks if ranks[mask] == best])
    if free[node] == topology.full[node]:
        # breaking into a whole node: spare the racks that have many
        node = (choose_nodes(topology, free, free[node].bit_count(), 1) or [node])[0]
    return on_one_node(node, pick(free[node], share))


def _fit_equal_nodes(
    topology: Topology, free: Sequence[int], share: int, width: int, near: Collection[int]
) -> Devices | None:
    count, rest = divmod(share, width)
    nodes = choose_nodes(topology, free, width, count, near)
    if nodes is None:
        return None
    pieces = [NodeSlice(node, topology.full[node]) for node in nodes]
    if rest:
        found = _fit_rest(topology, free, rest, nodes, near)
        if found is None:
            return None
        pieces += found
    pieces.sort()
    return tuple(pieces)


def _fit_rest(
    topology: Topology, free: Sequence[int], rest: int, taken: Sequence[int], near: Collection[int]
) -> Devices | None:
    """A block for what whole nodes leave over: on the nodes `near`, else in the racks of those `taken`, else any."""
    racks = {node // topology.nodes_per_rack for node in taken}
    left = [0 if node in taken else mask for node, mask in enumerate(free)]
    close = [mask if node in near else 0 for node, mask in enumerate(left)]
    same_racks = [mask if node // topology.nodes_per_rack in racks else 0 for node, mask in enumerate(left)]
    for masks in (close, same_racks, left):
        found = _fit_one_node(topology, masks, rest)
        if found is not None:
            return found
    return None


def _fit_mixed_nodes(topology: Topology, free: Sequence[int], share: int) -> Devices | None:
    """Whole free nodes of any sizes, largest first, and a block for what is left over."""
    left = list(free)
    pieces: list[NodeSlice] = []
    whole = [node for node, full in enumerate(topology.full) if free[node] == full]
    for node in sorted(whole, key=lambda node: (-free[node].bit_count(), node)):
        if free[node].bit_count() <= share:
            pieces.append(NodeSlice(node, free[node]))
            share -= free[node].bit_count()
            left[node] = 0
    if share:
        found = _fit_one_node(topology, left, share) if share <= topology.widths[0] else None
        if found is None:
            return None
        pieces += found
    return join_slices(pieces)


def _keep_in_node(free: Sequence[int], piece: NodeSlice, share: int) -> Devices | None:
    node, mask = piece
    parts = list_parts(mask, share)
    if not parts:
        return None

    def leaves(part: int) -> list[int]:
        blocks = split_blocks((free[node] | mask) & ~part)
        return sorted((block.bit_count() for block in blocks), reverse=True)

    return on_one_node(node, max(parts, key=leaves))
