"""Nodes that were lost long ago: where machines have new names every day, lists of them would only grow.

Which they are is the executor's to say: it keeps those for which a job may wait. What an admin has drained by hand is
kept until that is taken back.
"""

from dataclasses import replace

from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.machines.node_drains import FACT, list_drains, put, write_drains
from springtide.control.scheduling.sentences import name_node
from springtide.control.storage.staging import Staging


def forget_node(staging: Staging, world: PlatformWorld, node: str) -> None:
    """Leave a lost node out of every list; no decision is called for, because it took no work.

    The last node of a type stays: plans count with the types that there were when the server started.
    """
    inventory, one = world.inventory, list_drains(staging).get(node)
    if node not in inventory.nodes or one is None or not one.lost:
        return
    if one.by_hand:
        put(staging, replace(one, forgotten=True))
        return
    if inventory.types.count(inventory.types[inventory.nodes.index(node)]) == 1:
        return
    gone = set(inventory.names_of(node))
    if any(gone & set(record.devices) for record in staging.list_active()):
        return
    drop(staging, node)
    world.change_inventory(inventory.without_node(node), staging.now_s)
    staging.add_event("node_forgotten", f"{name_node(node)} was lost long ago, and is in no list any more", node=node)


def undrain_lost(staging: Staging, world: PlatformWorld, node: str) -> bool:
    """Take back an admin's word on a node that is lost: it takes work when it is there; returns whether it was so.

    One that the executor does not know any more leaves every list: a job that was placed there would wait for ever.
    """
    one = list_drains(staging).get(node)
    if one is None or not one.lost or not one.by_hand:
        return False
    put(staging, replace(one, by_hand=False))
    staging.add_event("undrained", f"{name_node(node)} is lost; it takes work again when it is back")
    if node not in world.inventory.nodes:
        drop(staging, node)
    elif one.forgotten:
        forget_node(staging, world, node)
    return True


def forget_absent(staging: Staging, inventory: Inventory) -> None:
    """Drop what is known of lost nodes which the executor does not know any more, as after the end of its lead."""
    for node, one in list_drains(staging).items():
        if one.lost and not one.by_hand and node not in inventory.nodes:
            drop(staging, node)


def drop(staging: Staging, node: str) -> None:
    """Forget that a node is lost."""
    kept = {name: one for name, one in list_drains(staging).items() if name != node}
    staging.put_fact(FACT, write_drains(kept))
