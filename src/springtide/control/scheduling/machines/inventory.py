"""The devices of this platform: their names for the executor, their places for policies and placement."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from springtide.control.prices import UNPRICED, PriceTable
from springtide.core.curves import Curve
from springtide.core.devices import Cluster, Devices, NodeGroup, NodeSlice, join_slices
from springtide.errors import ClusterError
from springtide.executors.protocol import ExecutorNode

SURE = 0.95  # the slow end of a speed's interval is had so often


@dataclass(frozen=True)
class Inventory:
    """Nodes of one device type each, as lists of device names: node i, bit k of a mask is `usable[i][k]`."""

    names: tuple[tuple[str, ...], ...]
    #: The type of each node's devices.
    types: tuple[str, ...]
    #: Nodes that take no work; policies do not see them.
    drained: frozenset[str] = frozenset()
    #: Nodes that policies see because no other takes work, and on which nothing can be started until they are back.
    away: frozenset[str] = frozenset()
    #: What its devices cost.
    prices: PriceTable = UNPRICED
    #: The parts of its projects, and of its users without one, in fair sharing, by name; 1 for one that is not named.
    weights: Mapping[str, float] = field(default_factory=dict)
    #: The executor's names of the nodes, which are theirs for life; empty: node-0, node-1, ... by place.
    labels: tuple[str, ...] = ()
    #: How many times longer work takes on devices whose machine others use too, by device; 1 for all others.
    slowdowns: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return self.labels or tuple(f"node-{number}" for number in range(len(self.names)))

    def with_node(self, node: ExecutorNode) -> "Inventory":
        """With a node that has joined, or that has other devices than before."""
        kept = [place for place, name in enumerate(self.nodes) if name != node.name]
        return replace(
            self,
            names=(*(self.names[place] for place in kept), node.devices),
            types=(*(self.types[place] for place in kept), node.device_type),
            labels=(*(self.nodes[place] for place in kept), node.name),
        )

    def without_node(self, node: str) -> "Inventory":
        """Without a node that nobody will see again."""
        kept = [place for place, name in enumerate(self.nodes) if name != node]
        return replace(
            self,
            names=tuple(self.names[place] for place in kept),
            types=tuple(self.types[place] for place in kept),
            labels=tuple(self.nodes[place] for place in kept),
            drained=self.drained - {node},
        )

    def names_of(self, node: str) -> tuple[str, ...]:
        """The devices of a node."""
        return self.names[self.nodes.index(node)]

    def is_away(self, names: Iterable[str]) -> bool:
        """Whether any of these devices is on a node on which nothing can be started now."""
        return bool(self.away) and not self._away_names.isdisjoint(names)

    @cached_property
    def _away_names(self) -> frozenset[str]:
        return frozenset(name for node in self.away & {*self.nodes} for name in self.names_of(node))

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Types in order of first appearance, drained nodes included."""
        return tuple(dict.fromkeys(self.types))

    @cached_property
    def is_mixed(self) -> bool:
        """Whether there are devices of several types, so that a job's speed and bits depend on which it holds."""
        return len(self.device_types) > 1

    @cached_property
    def totals(self) -> dict[str, int]:
        """All devices of each type, drained nodes included."""
        pairs = list(zip(self.types, self.names, strict=True))
        return {
            device_type: sum(len(names) for one, names in pairs if one == device_type)
            for device_type in self.device_types
        }

    @cached_property
    def usable(self) -> tuple[tuple[str, ...], ...]:
        """The devices of each node that takes work."""
        return tuple(names for node, names in zip(self.nodes, self.names, strict=True) if node not in self.drained)

    @cached_property
    def cluster(self) -> Cluster:
        """The devices as policies see them."""
        taking = zip(self.nodes, self.names, self.types, strict=True)
        return Cluster(
            tuple(
                NodeGroup(1, len(names), device_type) for node, names, device_type in taking if node not in self.drained
            )
        )

    @cached_property
    def types_by_name(self) -> dict[str, str]:
        """The type of each device."""
        return {name: device_type for names, device_type in zip(self.names, self.types, strict=True) for name in names}

    def find_slowest(self, names: Iterable[str]) -> float:
        """How many times longer work takes on these devices, at the pace of the slowest that takes work."""
        if not self.slowdowns:
            return 1.0
        return max((self.slowdowns.get(name, 1.0) for name in names if name in self._places), default=1.0)

    def find_slowdown(self, device_type: str, share: int) -> float:
        """How many times longer work takes on so many devices of a type, wherever they are, nineteen times in twenty.

        That is how sure a plan is of its speeds. One machine of a thousand that others use does not slow a job that
        hardly comes there; all devices of one machine are as slow as it is.
        """
        levels = self._slow_levels.get(device_type, ())
        return next((slow for slow, rest in levels if rest**share >= SURE), levels[-1][0] if levels else 1.0)

    @cached_property
    def _slow_levels(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """By type: each slowdown, ascending, with the part of the devices that are no slower than that."""
        if not self.slowdowns:
            return {}
        usable: dict[str, list[float]] = {}
        for name in (name for names in self.usable for name in names):
            usable.setdefault(self.types_by_name[name], []).append(self.slowdowns.get(name, 1.0))
        return {device_type: _list_levels(sorted(found)) for device_type, found in usable.items()}

    def slow_curve(self, device_type: str, curve: Curve) -> Curve:
        """The speeds of a job on devices of a type, beside those who use their machines too."""
        if not self._slow_levels:
            return curve
        slows = [self.find_slowdown(device_type, share) for share in curve.shares]
        rates, low = (
            tuple(rate / slow for rate, slow in zip(speeds, slows, strict=True)) if speeds else ()
            for speeds in (curve.rates, curve.low)
        )
        return Curve(curve.shares, rates, low)

    def count_types(self, names: Iterable[str]) -> dict[str, int]:
        """How many of these devices there are of each type, in order of first appearance."""
        return dict(Counter(self.types_by_name[name] for name in names if name in self.types_by_name))

    def describe(self, names: Sequence[str]) -> str:
        """So many devices, by type where there are several."""
        if not self.is_mixed:
            return f"{len(names)} device{'s' if len(names) != 1 else ''}"
        return " and ".join(f"{count} {device_type}" for device_type, count in self.count_types(names).items())

    @cached_property
    def _places(self) -> dict[str, NodeSlice]:
        return {name: NodeSlice(i, 1 << k) for i, node in enumerate(self.usable) for k, name in enumerate(node)}

    def name_devices(self, devices: Devices) -> tuple[str, ...]:
        """The names of a set of devices, in order."""
        return tuple(name for node, mask in devices for k, name in enumerate(self.usable[node]) if mask >> k & 1)

    def find_devices(self, names: Iterable[str]) -> Devices:
        """The set of devices with these names; names that are gone are left out."""
        return join_slices([self._places[name] for name in names if name in self._places])


def _list_levels(ascending: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Each of the values once, with the part of them that are no larger."""
    return tuple((one, bisect_right(ascending, one) / len(ascending)) for one in dict.fromkeys(ascending))


def make_inventory(device_type: str, names: Iterable[str], nodes: int = 1) -> Inventory:
    """Devices of one type, as one node or cut into several of consecutive devices that can each be drained."""
    devices = tuple(names)
    if nodes > len(devices):
        raise ClusterError(f"{len(devices)} devices cannot be cut into {nodes} nodes; a node needs at least one")
    bounds = [len(devices) * number // nodes for number in range(nodes + 1)]
    return Inventory(tuple(devices[first:last] for first, last in pairwise(bounds)), (device_type,) * nodes)


def name_inventory(nodes: Iterable[ExecutorNode]) -> Inventory:
    """The nodes of an executor, by its own names."""
    found = tuple(nodes)
    return Inventory(
        tuple(node.devices for node in found),
        tuple(node.device_type for node in found),
        labels=tuple(node.name for node in found),
    )


def join_inventories(parts: Sequence[Inventory]) -> Inventory:
    """All nodes of several inventories."""
    return Inventory(
        tuple(names for part in parts for names in part.names),
        tuple(device_type for part in parts for device_type in part.types),
    )
