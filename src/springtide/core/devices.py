"""What the cluster is made of: nodes with devices of one type each, and sets of devices on them.

A set of devices is written as slices, one per node, each a bit mask of the devices it takes there: compact for
a job on 64 nodes, and quick to compare, join and free.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from springtide.errors import ClusterError

_GROUP = re.compile(r"(?P<nodes>\d+)x(?P<devices>\d+):(?P<type>[A-Za-z][A-Za-z0-9_.-]*)")
SYNTAX = "NODESxGPUS:TYPE, several joined by commas, as in 64x8:a100 or 4x8:v100,4x4:t4"


class NodeSlice(NamedTuple):
    """Devices of one node: bit i of the mask stands for its i-th device."""

    node: int
    mask: int


Devices: TypeAlias = tuple[NodeSlice, ...]  # ascending by node, each node once, no empty mask


def count_devices(devices: Devices) -> int:
    """How many devices a set holds."""
    return sum(piece.mask.bit_count() for piece in devices)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind: how many, with how many devices of what type each."""

    nodes: int
    devices_per_node: int
    device_type: str


@dataclass(frozen=True)
class Cluster:
    """Groups of nodes, numbered through in order; `nodes_per_rack` consecutive nodes share a switch."""

    groups: tuple[NodeGroup, ...]
    nodes_per_rack: int = 16

    def __post_init__(self) -> None:
        for group in self.groups:
            if group.nodes < 1 or group.devices_per_node < 1:
                raise ClusterError(
                    f"cluster group {group.nodes}x{group.devices_per_node}:{group.device_type} has no devices; "
                    "a group needs at least one node and one device per node"
                )
            if group.devices_per_node > 64:
                raise ClusterError(
                    f"cluster group {group.nodes}x{group.devices_per_node}:{group.device_type}: "
                    f"{group.devices_per_node} devices per node; at most 64 are supported"
                )
        if not self.groups:
            raise ClusterError(f"a cluster needs at least one group of nodes ({SYNTAX})")

    @cached_property
    def total(self) -> int:
        """All devices."""
        return sum(group.nodes * group.devices_per_node for group in self.groups)

    @cached_property
    def full_masks(self) -> tuple[int, ...]:
        """For each node the mask of all its devices."""
        return tuple((1 << group.devices_per_node) - 1 for group in self.groups for _ in range(group.nodes))

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Types in order of first appearance."""
        return tuple(dict.fromkeys(group.device_type for group in self.groups))

    @cached_property
    def node_types(self) -> tuple[str, ...]:
        """For each node the type of its devices."""
        return tuple(group.device_type for group in self.groups for _ in range(group.nodes))

    @cached_property
    def totals(self) -> dict[str, int]:
        """All devices of each type."""
        totals = dict.fromkeys(self.device_types, 0)
        for group in self.groups:
            totals[group.device_type] += group.nodes * group.devices_per_node
        return totals

    def count_types(self, devices: Devices) -> dict[str, int]:
        """How many devices of each type a set holds; types without any are left out."""
        counts: dict[str, int] = {}
        for node, mask in devices:
            device_type = self.node_types[node]
            counts[device_type] = counts.get(device_type, 0) + mask.bit_count()
        return counts

    def describe(self) -> str:
        """The cluster in the syntax it is parsed from."""
        return ",".join(f"{group.nodes}x{group.devices_per_node}:{group.device_type}" for group in self.groups)


def parse_cluster(text: str) -> Cluster:
    """The cluster that a description such as `64x8:a100` names."""
    return Cluster(tuple(_parse_group(part.strip(), text) for part in text.split(",")))


def _parse_group(part: str, whole: str) -> NodeGroup:
    match = _GROUP.fullmatch(part)
    if match is None:
        raise ClusterError(f"cluster {whole!r}: {part!r} is not of the form {SYNTAX}")
    return NodeGroup(int(match["nodes"]), int(match["devices"]), match["type"].lower())


def join_slices(pieces: Sequence[NodeSlice]) -> Devices:
    """One set of devices from slices in any order."""
    masks: dict[int, int] = {}
    for node, mask in pieces:
        masks[node] = masks.get(node, 0) | mask
    return tuple(NodeSlice(node, masks[node]) for node in sorted(masks))
