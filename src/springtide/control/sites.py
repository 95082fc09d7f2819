"""The devices of this platform: their names for the executor, their places for policies and placement."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from springtide.core.devices import Cluster, Devices, NodeGroup, NodeSlice, join_slices


@dataclass(frozen=True)
class Site:
    """Nodes of one device type each, as lists of device names: node i, bit k of a mask is `names[i][k]`."""

    device_type: str
    names: tuple[tuple[str, ...], ...]

    @cached_property
    def cluster(self) -> Cluster:
        """The devices as policies see them."""
        return Cluster(tuple(NodeGroup(1, len(node), self.device_type) for node in self.names))

    @cached_property
    def _places(self) -> dict[str, NodeSlice]:
        return {name: NodeSlice(i, 1 << k) for i, node in enumerate(self.names) for k, name in enumerate(node)}

    def name_devices(self, devices: Devices) -> tuple[str, ...]:
        """The names of a set of devices, in order."""
        return tuple(name for node, mask in devices for k, name in enumerate(self.names[node]) if mask >> k & 1)

    def find_devices(self, names: Iterable[str]) -> Devices:
        """The set of devices with these names; names that are gone are left out."""
        return join_slices([self._places[name] for name in names if name in self._places])


def make_site(device_type: str, names: Iterable[str]) -> Site:
    """One machine."""
    return Site(device_type, (tuple(names),))
