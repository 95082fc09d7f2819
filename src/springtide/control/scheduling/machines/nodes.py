"""Nodes that come and go: drained by an admin, about to go, or lost with all their devices.

The world is told at once that the node's devices are gone, so the policy decides where its jobs go on; what their
processes are told follows from that, and promises are planned anew for what is left (`lost_capacity`). How jobs leave a
drained node is in `node_drains`. Processes on a lost node can neither shrink nor checkpoint, so a job that had any
there is ended and started anew; on the last node that takes work it waits there until that node or another one is back.
Which nodes are drained or lost is a fact in the store, so a restarted server goes on with them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from springtide.control.scheduling import transitions
from springtide.control.scheduling.instructions import make_stop
from springtide.control.scheduling.live_jobs import build_job
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.machines.lost_capacity import CapacityLoss, leave_out, tell_at_risk
from springtide.control.scheduling.machines.node_drains import FACT, Drain, list_drains, put, read_drains, write_drains
from springtide.control.scheduling.sentences import name_node
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.core.decisions import Decide, Decision, JobView, Progress
from springtide.core.durations import show_span
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId
from springtide.errors import InputError
from springtide.executors.protocol import ExecutorNode, NodeJoined, NodeLeaving, NodeLost

LAST_LOST = "last_lost"  # the fact that names nodes which were lost when no other took work
LAST_LEAVING = "last_leaving"  # and of those which were about to go then, until when
NODE_LOST, NODE_LEAVING = "node_lost", "node_leaving"


def restore_inventory(inventory: Inventory, find_fact: Callable[[str], Any]) -> Inventory:
    """The devices as they were before the last server ended: some nodes drained, the last one perhaps away."""
    drained = frozenset(node for node in read_drains(find_fact(FACT)) if node in inventory.nodes)
    return replace(inventory, drained=drained, away=find_away(find_fact) & {*inventory.nodes})


def find_away(find_fact: Callable[[str], Any]) -> frozenset[str]:
    """The nodes that are lost or about to go, and in the world still because no other takes work."""
    return frozenset((*(find_fact(LAST_LOST) or ()), *(find_fact(LAST_LEAVING) or ())))


def drain(
    staging: Staging, world: PlatformWorld, node: str, grace_s: float, decide: Decide, by_hand: bool = True
) -> None:
    """Begin to drain a node; refused where there is no such node, or no other to go to."""
    inventory, now_s = world.inventory, staging.now_s
    check_node(inventory, node)
    if node in inventory.drained:
        raise InputError(f"{name_node(node)} is drained already; springtide nodes undrain {node} takes it back")
    if len(inventory.usable) == 1:
        raise InputError(
            f"{name_node(node)} is the last one that takes work, so its jobs have nowhere to go; take another node "
            "back first (springtide nodes undrain), or end everything with checkpoints: springtide stop"
        )
    gone = set(inventory.names_of(node))
    leaving = {record.id: 0 for record in staging.list_active() if gone & set(record.devices)}
    sentence = f"{name_node(node)} takes no new work; {len(leaving)} jobs leave within {show_span(grace_s)}"
    staging.add_event("draining", sentence)
    put(staging, Drain(node, now_s, now_s + grace_s, leaving, by_hand=by_hand))
    remedy = f"springtide nodes undrain {node} would give it room again"
    leave_out(staging, world, node, CapacityLoss(f"{name_node(node)} is drained", remedy), decide)


def undrain(staging: Staging, world: PlatformWorld, node: str, decide: Decide) -> None:
    """Let a drained node take work again; jobs that wait for one that is gone start again there."""
    inventory = world.inventory
    check_node(inventory, node)
    if node not in inventory.drained:
        raise InputError(f"{name_node(node)} is not drained")
    left = {other: one for other, one in list_drains(staging).items() if other != node}
    staging.put_fact(FACT, write_drains(left))
    world.change_inventory(replace(inventory, drained=inventory.drained - {node}), staging.now_s)
    staging.add_event("undrained", f"{name_node(node)} takes work again")
    leave_last(staging, world, decide)


def check_node(inventory: Inventory, node: str) -> None:
    """Refuse a name that no node has."""
    if node not in inventory.nodes:
        raise InputError(f"there is no node {node!r}; there are: {', '.join(inventory.nodes)}")


def lose_node(staging: Staging, world: PlatformWorld, event: NodeLost, decide: Decide) -> bool:
    """Go on without a node that is gone, until it is undrained; returns whether a decision is called for."""
    inventory, node, now_s = world.inventory, event.node, staging.now_s
    staging.add_event(NODE_LOST, f"{name_node(node)} is gone: {event.reason}", node=node)
    if node not in inventory.nodes:
        return False
    if node in inventory.drained:  # a job that has not left by now never will; the next look starts it again
        put(staging, replace(list_drains(staging)[node], until_s=now_s, lost=True))
        return False
    if len(inventory.usable) == 1:
        lose_last(staging, world, node)
        return False
    leave_lost(staging, world, node, decide)
    return True


def lose_last(staging: Staging, world: PlatformWorld, node: str) -> None:
    """The last node that takes work is gone: its jobs wait there, and nothing is counted for them meanwhile."""
    sentence = f"{name_node(node)} was the last one that takes work; its jobs start again when it is back"
    staging.add_event("no_nodes", f"{sentence}, or another one", node=node)
    forget_last(staging, world, node)
    staging.put_fact(LAST_LOST, [*list_last_lost(staging), node])
    gone = set(world.inventory.names_of(node))
    for record in staging.list_active():
        view = world.jobs.get(JobId(record.id))
        if view is not None and record.state is JobState.RUNNING and gone & set(record.devices):
            left = view.progress.work_left_at(staging.now_s)
            world.observe(view.job.id, replace(view.progress, work_left=left, since_s=staging.now_s), staging.now_s)
            record = transitions.account(staging, world, record, world.jobs[view.job.id])
            state = JobState.WAITLISTED if record.unanswered else JobState.ADMITTED
            staging.stage(Effects(replace(record, state=state)))
    world.note_away(find_away(staging.read_fact))
    tell_at_risk(staging, world, f"{name_node(node)} is gone")


def let_stand(staging: Staging, world: PlatformWorld, record: JobRecord) -> None:
    """Count nothing for a job that waits for a node which is away, though it has devices there in the world."""
    is_waiting = record.state is not JobState.RUNNING and world.inventory.is_away(record.devices)
    if is_waiting and JobId(record.id) in world.jobs:
        world.let_stand(JobId(record.id), staging.now_s)


def leave_lost(staging: Staging, world: PlatformWorld, node: str, decide: Decide) -> None:
    """Go on without a node that is gone, on others that take work: its jobs are ended, and start again there."""
    now_s, gone = staging.now_s, set(world.inventory.names_of(node))
    put(staging, Drain(node, now_s, now_s, lost=True))
    for record in staging.list_active():
        if gone & set(record.devices):
            stop_after_node_loss(staging, world, record, node)
    remedy = "it has room again when that node is back, or another one joins"
    leave_out(staging, world, node, CapacityLoss(f"{name_node(node)} is gone", remedy), decide)


def list_last_lost(staging: Staging) -> list[str]:
    """The nodes that were lost when no other took work, and on which jobs wait."""
    return list(staging.read_fact(LAST_LOST) or ())


def list_last_leaving(staging: Staging) -> dict[str, float]:
    """The nodes that were about to go when no other took work, and until when they were there."""
    return dict(staging.read_fact(LAST_LEAVING) or {})


def forget_last(staging: Staging, world: PlatformWorld, node: str) -> None:
    """Jobs no longer wait for a node: it is back, or they go on without it."""
    if node not in find_away(staging.read_fact):
        return
    for record in staging.list_active():
        let_stand(staging, world, record)
    staging.put_fact(LAST_LOST, [other for other in list_last_lost(staging) if other != node])
    leaving = list_last_leaving(staging)
    staging.put_fact(LAST_LEAVING, {other: until_s for other, until_s in leaving.items() if other != node})
    world.note_away(find_away(staging.read_fact))


def leave_last(staging: Staging, world: PlatformWorld, decide: Decide) -> bool:
    """Go on without a node that was lost, or about to go, when no other took work, if another does now.

    Returns whether it is so.
    """
    left, leaving = False, list_last_leaving(staging)
    for node in (*list_last_lost(staging), *leaving):
        if len(world.inventory.usable) > 1:
            forget_last(staging, world, node)
            if node not in world.inventory.nodes or node in world.inventory.drained:
                continue
            left = True
            if node in leaving:
                drain(staging, world, node, max(0.0, leaving[node] - staging.now_s), decide, by_hand=False)
            else:
                leave_lost(staging, world, node, decide)
    return left


def leave_node(staging: Staging, world: PlatformWorld, event: NodeLeaving, decide: Decide) -> bool:
    """A node is about to go: jobs leave it, or save if there is no other; returns whether a decision is called for."""
    staging.add_event(NODE_LEAVING, f"{name_node(event.node)} goes in {show_span(event.grace_s)}: {event.reason}")
    inventory = world.inventory
    if event.node not in inventory.nodes or event.node in inventory.drained:
        return False
    if len(inventory.usable) == 1:
        stop_before_end(staging, world, event)
        return False
    drain(staging, world, event.node, event.grace_s, decide, by_hand=False)
    return True


def stop_before_end(staging: Staging, world: PlatformWorld, event: NodeLeaving) -> None:
    """The last node that takes work is about to go: all jobs save, and start again there or elsewhere.

    Those that were on their way to it from other nodes that go are among them. The world still counts with the node,
    for policies need one; the executor keeps starts on it waiting until it is back. If another one takes work before
    it is gone, it is drained after all.
    """
    staging.put_fact(LAST_LEAVING, {**list_last_leaving(staging), event.node: staging.now_s + event.grace_s})
    world.note_away(find_away(staging.read_fact))
    tell_at_risk(staging, world, f"{name_node(event.node)} goes")
    why = f"{name_node(event.node)} goes, and no other takes work"
    for record in staging.list_active():
        if record.devices:
            stop = make_stop(record, NODE_LEAVING, event.grace_s)
            sentence = f"{why}: it saves what it has done, and goes on when a node takes work again"
            is_probe = record.state is JobState.PROBING
            saving = record if is_probe else record.with_condition("recovering", NODE_LEAVING, sentence, staging.now_s)
            told = EventRecord(staging.now_s, NODE_LEAVING, sentence, record.id, {"node": event.node})
            staging.stage(Effects(replace(saving, generation=stop.generation), (told,), stop))


def join_node(staging: Staging, world: PlatformWorld, event: NodeJoined, decide: Decide) -> bool:
    """A node is there, for the first time or again; returns whether a decision is called for.

    Jobs that wait for another one, lost when no other took work, start again here. Plans are made for the types of
    devices that there were when the server started: others wait for the next start.
    """
    node = ExecutorNode(event.node, event.device_type, event.devices)
    found = f"{name_node(node.name)} is there with {len(node.devices)} {node.device_type}"
    if node.device_type not in world.inventory.device_types:
        here = " and ".join(world.inventory.device_types)
        staging.add_event("node_joined", f"{found}; this server plans for {here}, so start it again to use them")
        return False
    forget_last(staging, world, node.name)
    inventory = world.inventory
    drains, drained = list_drains(staging), inventory.drained
    before = drains.get(node.name)
    if before is not None and not before.by_hand:
        staging.put_fact(FACT, write_drains({name: one for name, one in drains.items() if name != node.name}))
        drained = drained - {node.name}
    elif before is not None:
        put(staging, replace(before, lost=False, forgotten=False))
        drained = drained | {node.name}  # this server may not have seen it yet
    is_known = node.name in inventory.nodes and inventory.names_of(node.name) == node.devices
    if is_known and drained == inventory.drained:
        return leave_last(staging, world, decide)
    staging.add_event("node_joined", found, node=node.name)
    if not is_known and node.name in inventory.nodes:
        stop_on_gone_devices(staging, world, node)
    grown = inventory if is_known else inventory.with_node(node)
    world.change_inventory(replace(grown, drained=drained), staging.now_s)
    for job_id in list(world.jobs):
        record = staging.jobs.get(job_id)
        if record is not None and record.state is not JobState.PROBING:
            world.revise(build_job(record, staging.speeds, world.inventory), staging.now_s)
    leave_last(staging, world, decide)
    return True


def stop_on_gone_devices(staging: Staging, world: PlatformWorld, node: ExecutorNode) -> None:
    """Stop the jobs that hold devices which a node no longer has."""
    gone = {*world.inventory.names_of(node.name)} - {*node.devices}
    for record in staging.list_active():
        if gone & set(record.devices):
            stop_after_node_loss(staging, world, record, node.name)


def stop_after_node_loss(staging: Staging, world: PlatformWorld, record: JobRecord, node: str) -> None:
    """End what is left of a job's processes; it holds nothing until the policy gives it devices again."""
    job_id, now_s = JobId(record.id), staging.now_s
    view = world.jobs[job_id]
    stop = make_stop(record, NODE_LOST, grace_s=0.0)
    world.apply(Decision(allocations={job_id: ()}), now_s)
    world.observe(job_id, Progress(guess_left(record, view, now_s), 0.0, now_s, now_s), now_s)
    state = record.state if record.state is JobState.PROBING else JobState.ADMITTED
    sentence = f"{name_node(node)} is gone with processes of it; it goes on from its last checkpoint"
    record = transitions.account(staging, world, record, world.jobs[job_id]).with_condition(
        "recovering", NODE_LOST, sentence, now_s
    )
    record = replace(record, generation=stop.generation, devices=(), state=state, faults=record.faults + 1)
    data = {"cause": NODE_LOST, "step": record.step, "user_fault": False}
    event = EventRecord(now_s, "faulted", f"fault ({NODE_LOST}): {sentence}", record.id, data)
    staging.stage(Effects(record, (event,), stop))


def guess_left(record: JobRecord, view: JobView, now_s: float) -> float:
    """The work a job has left if its last checkpoint is as old as it may be; its next start tells how old it was."""
    job, left = record.spec, view.progress.work_left_at(now_s)
    repeated = view.progress.rate * job.checkpoint.every_s if job.elastic else view.job.work
    return min(view.job.work, left + repeated)
