"""The devices of this platform: their names for the executor, their places for policies and placement."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from springtide.core.devices import Cluster, Devices, NodeGroup, NodeSlice, join_slices
from springtide.errors import ClusterError


@dataclass(frozen=True)
class Site:
    """Nodes of one device type each, as lists of device names: node i, bit k of a mask is `usable[i][k]`."""

    device_type: str
    names: tuple[tuple[str, ...], ...]
    #: Nodes that take no work; policies do not see them.
    drained: frozenset[str] = frozenset()

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return tuple(f"node-{number}" for number in range(len(self.names)))

    def names_of(self, node: str) -> tuple[str, ...]:
        """The devices of a node."""
        return self.names[self.nodes.index(node)]

    @cached_property
    def usable(self) -> tuple[tuple[str, ...], ...]:
        """The devices of each node that takes work."""
        return tuple(names for node, names in zip(self.nodes, self.names, strict=True) if node not in self.drained)

    @cached_property
    def cluster(self) -> Cluster:
        """The devices as policies see them."""
        return Cluster(tuple(NodeGroup(1, len(node), self.device_type) for node in self.usable))

    @cached_property
    def _places(self) -> dict[str, NodeSlice]:
        return {name: NodeSlice(i, 1 << k) for i, node in enumerate(self.usable) for k, name in enumerate(node)}

    def name_devices(self, devices: Devices) -> tuple[str, ...]:
        """The names of a set of devices, in order."""
        return tuple(name for node, mask in devices for k, name in enumerate(self.usable[node]) if mask >> k & 1)

    def find_devices(self, names: Iterable[str]) -> Devices:
        """The set of devices with these names; names that are gone are left out."""
        return join_slices([self._places[name] for name in names if name in self._places])


def make_site(device_type: str, names: Iterable[str], nodes: int = 1) -> Site:
    """One machine, as one node or cut into several of consecutive devices, each of which can be drained."""
    devices = tuple(names)
    if nodes > len(devices):
        raise ClusterError(f"{len(devices)} devices cannot be cut into {nodes} nodes; a node needs at least one")
    bounds = [len(devices) * number // nodes for number in range(nodes + 1)]
    return Site(device_type, tuple(devices[first:last] for first, last in pairwise(bounds)))
