"""Which nodes of a Ray cluster get an agent of ours, under which names, and with which devices. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

#: A node that has this resource was given to us (`springtide join`); if any has, the others are somebody else's.
OURS = "springtide"


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node that can work for us."""

    id: str
    hostname: str
    address: str
    #: CPU slots for the agent; None: it has GPUs, which it finds itself.
    cpu_slots: str | None


def check_membership(rows: Sequence[Mapping[str, Any]], own: str) -> None:
    """End whoever came with a node that the cluster does not know: its head was started again, and is another's."""
    if not any(row["NodeID"] == own and row["Alive"] for row in rows):
        raise SystemExit(f"the node {own} of this process is none of the cluster any more")


def choose_nodes(rows: Sequence[Mapping[str, Any]], devices: str | None) -> list[RayNode]:
    """The nodes that can work for us, of `ray.nodes()`; `devices` are the CPU slots of each, where there is no GPU."""
    alive = [row for row in rows if row["Alive"]]
    given = [row for row in alive if row["Resources"].get(OURS)]
    found = [
        RayNode(row["NodeID"], row["NodeManagerHostname"], row["NodeManagerAddress"], find_slots(row, devices))
        for row in given or alive
        if row["Resources"].get("GPU") or row["Resources"].get("CPU")
    ]
    return sorted(found, key=lambda node: (node.hostname, node.address, node.id))


def find_slots(row: Mapping[str, Any], devices: str | None) -> str | None:
    """The CPU slots of a node: as given, else as many as Ray counts; None where it has GPUs."""
    if row["Resources"].get("GPU"):
        return None
    return devices or str(int(row["Resources"]["CPU"]))


def name_actor(node: str, host: str) -> str:
    """What Ray calls the actor of a host on a node, so that a later keeper knows the host's name by it."""
    return f"host-{node}/{host}"


def read_actors(names: Iterable[str]) -> dict[str, str]:
    """The hosts that have actors, by node, of all names of actors."""
    parts = (name.removeprefix("host-").partition("/") for name in names if name.startswith("host-"))
    return {node: host for node, _, host in parts if host}


def name_hosts(
    nodes: Sequence[RayNode], named: Mapping[str, str], addresses: Mapping[str, str], here: Collection[str]
) -> dict[str, str]:
    """The names of hosts, by node: those that some have, then those that machines had, and new ones for the others.

    `named` are the names of hosts by node, `addresses` where the host of a name was last, and `here` the names of hosts
    that are at work, whether or not Ray knows their nodes now.
    """
    names = dict(named)
    unnamed = [node for node in nodes if node.id not in names]
    for node in unnamed:
        own = (name for name, address in addresses.items() if address == node.address and is_name_of(name, node))
        known = next((name for name in own if name not in names.values()), None)
        if known is not None:
            names[node.id] = known
    for node in unnamed:
        if node.id not in names:
            names[node.id] = name_node(node, {*names.values(), *here})
    return names


def name_plainly(node: RayNode) -> str:
    """The name of a node that shares it with no other: its host's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", node.hostname).strip("-.") or "host"


def is_name_of(name: str, node: RayNode) -> bool:
    """Whether a host of this name may have been the node: its host's name, with or without a number."""
    return re.fullmatch(rf"{re.escape(name_plainly(node))}(-[0-9a-f]+)?", name) is not None


def name_node(node: RayNode, taken: Collection[str]) -> str:
    """A new name: its host's, with a number if another has it. No part of Ray's id: another head gives another."""
    plain = name_plainly(node)
    return next(name for name in chain([plain], (f"{plain}-{one}" for one in count(2))) if name not in taken)
