"""Nodes that take no work: drained by an admin, or lost with all their devices.

The world is told at once that the node's devices are gone, so the policy decides where its jobs go on; what their
processes are told follows from that, and promises are planned anew for what is left. Jobs leave a drained node within a
grace; one that has not left by then is started again elsewhere from its last checkpoint. Processes on a lost node can
neither shrink nor checkpoint, so a job that had any there is ended and started anew; on the last node that takes work
it waits there until that node or another one is back. Which nodes are drained or lost is a fact in the store, so a
restarted server goes on with them.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from springtide.control.scheduling import offers, transitions
from springtide.control.scheduling.instructions import make_stop
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_jobs import build_job
from springtide.control.scheduling.live_world import LiveWorld, PlatformWorld
from springtide.control.scheduling.sentences import name_node
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.decisions import Decide, Decision, JobView, Progress, Promise, Status
from springtide.core.durations import show_span
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId
from springtide.errors import InputError
from springtide.executors.protocol import (
    Event,
    ExecutorNode,
    Finished,
    NodeJoined,
    NodeLeaving,
    NodeLost,
    Resized,
    Started,
    Stop,
    Stopped,
)

logger = logging.getLogger("springtide.control")
FACT = "drains"
LAST_LOST = "last_lost"  # the fact that names nodes which were lost when no other took work
LAST_LEAVING = "last_leaving"  # and of those which were about to go then, until when
NODE_LOST, NODE_LEAVING = "node_lost", "node_leaving"
LEFT = (Resized, Started, Stopped, Finished)


@dataclass(frozen=True, slots=True)
class Drain:
    """A node that takes no work: since when, by when its jobs are to have left, and which have not yet.

    `jobs` holds the generation that each was told to leave with; 0 before it was told.
    """

    node: str
    since_s: float
    until_s: float
    jobs: dict[str, int] = field(default_factory=dict)
    lost: bool = False  # the node itself is gone
    by_hand: bool = False  # an admin's word, which holds until it is taken back; others end when the node is back
    forgotten: bool = False  # the executor does not know the lost node any more; only an admin's word keeps it


def read_drains(fact: Any) -> dict[str, Drain]:
    """The drains in a fact of the store."""
    return {node: Drain(**{**data, "jobs": dict(data["jobs"])}) for node, data in (fact or {}).items()}


def write_drains(drains: dict[str, Drain]) -> dict[str, Any]:
    """The drains as a fact for the store."""
    return {node: asdict(one) for node, one in drains.items()}


def restore_inventory(inventory: Inventory, find_fact: Callable[[str], Any]) -> Inventory:
    """The devices as they were before the last server ended: some nodes drained, the last one perhaps away."""
    drained = frozenset(node for node in read_drains(find_fact(FACT)) if node in inventory.nodes)
    return replace(inventory, drained=drained, away=find_away(find_fact) & {*inventory.nodes})


def find_away(find_fact: Callable[[str], Any]) -> frozenset[str]:
    """The nodes that are lost or about to go, and in the world still because no other takes work."""
    return frozenset((*(find_fact(LAST_LOST) or ()), *(find_fact(LAST_LEAVING) or ())))


def describe_nodes(inventory: Inventory, fact: Any) -> dict[str, str]:
    """Whether each node takes work, by what is stored: `ready`, `draining`, `drained` or `lost`."""
    drains = read_drains(fact)
    return {node: describe_node(drains.get(node)) for node in inventory.nodes}


def describe_node(one: Drain | None) -> str:
    """The state of a node with this drain, or with none."""
    if one is None:
        return "ready"
    return "lost" if one.lost else "draining" if one.jobs else "drained"


def list_drains(staging: Staging) -> dict[str, Drain]:
    """The drains, with what is staged but not yet stored."""
    return read_drains(staging.read_fact(FACT))


def put(staging: Staging, one: Drain) -> None:
    """Stage a drain."""
    staging.put_fact(FACT, write_drains({**list_drains(staging), one.node: one}))


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


@dataclass(frozen=True, slots=True)
class CapacityLoss:
    """Why there are fewer devices, and what would bring them back."""

    why: str
    remedy: str


def leave_out(staging: Staging, world: PlatformWorld, node: str, loss: CapacityLoss, decide: Decide) -> None:
    """Go on without a node: reservations are given back, promises planned for the devices that are left."""
    offers.release(staging, world, loss.why)
    world.change_inventory(replace(world.inventory, drained=world.inventory.drained | {node}), staging.now_s)
    review_promises(staging, world, loss, decide)


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


def tell_at_risk(staging: Staging, world: PlatformWorld, why: str) -> None:
    """Say that all promises are in danger while no node takes work; plans are kept for when one does."""
    now_s, cause = staging.now_s, transitions.LOST_CAPACITY
    sentence = f"its promise is in danger: {why}, and no node takes work; it has room again when one joins"
    for job_id, view in world.jobs.items():
        if view.promise is None:
            continue
        record = staging.jobs[job_id]
        told = EventRecord(now_s, "at_risk", sentence, record.id, {"cause": cause})
        events = () if record.condition("at_risk") is not None else (told,)
        staging.stage(Effects(record.with_condition("at_risk", cause, sentence, now_s), events))


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


def review_promises(staging: Staging, world: PlatformWorld, loss: CapacityLoss, decide: Decide) -> None:
    """Plan all promises for the devices that are left, the oldest first; those that find no room are in danger."""
    kept = keep_promises(world, decide, staging.now_s)
    for job_id, view in list(world.jobs.items()):
        if view.promise is None:
            continue
        if job_id in kept:
            world.set_promise(job_id, kept[job_id])
        else:
            why = f"{loss.why}, and what is left cannot keep it; {loss.remedy}"
            endanger(staging, world, staging.jobs[job_id], why)


def keep_promises(world: LiveWorld, decide: Decide, now_s: float) -> dict[JobId, Promise]:
    """The promises that the policy would make again on the devices that are left, each job with its work left."""
    twin = LiveWorld(world.cluster)
    for job_id, view in world.jobs.items():
        if view.promise is None:
            continue
        twin.arrive(replace(view.job, work=view.progress.work_left_at(now_s)), now_s)
        try:
            decision = decide(now_s, twin.snapshot())
        except Exception:  # a policy may be anybody's code; what it has not planned again is in danger
            logger.exception("the policy failed while promises were planned for the devices that are left")
            twin.remove(job_id)
            break
        answer = decision.answers.get(job_id)
        twin.apply(decision, now_s)
        if answer is None or answer.status is not Status.ADMITTED:
            twin.remove(job_id)
    return {job_id: view.promise for job_id, view in twin.jobs.items() if view.promise is not None}


def endanger(staging: Staging, world: PlatformWorld, record: JobRecord, why: str) -> None:
    """A promise has lost its plan: the job goes before every best-effort job, and counts as missed if it is late."""
    now_s, cause = staging.now_s, transitions.LOST_CAPACITY
    sentence = f"its promise is in danger: {why}; it goes on before all best-effort jobs"
    record = replace(record, plan=None, endangered=True).with_condition("at_risk", cause, sentence, now_s)
    staging.stage(Effects(record, (EventRecord(now_s, "at_risk", sentence, record.id, {"cause": cause}),)))
    world.set_promise(JobId(record.id), None)
    world.revise(build_job(record, staging.speeds, world.inventory), now_s)


def follow_decision(staging: Staging, world: PlatformWorld, state_dir: StateDir) -> None:
    """Tell every job that is still on a drained node to leave, unless the decision has told it."""
    for one in list_drains(staging).values():
        untold = [job_id for job_id, generation in one.jobs.items() if not generation]
        if not untold:
            continue
        for job_id in untold:
            tell_to_leave(staging, world, state_dir, one, job_id)
        jobs = staging.jobs
        told = {job_id: jobs[job_id].generation for job_id in one.jobs if job_id in jobs and jobs[job_id].active}
        put(staging, replace(one, jobs=told))


def tell_to_leave(staging: Staging, world: PlatformWorld, state_dir: StateDir, one: Drain, job_id: str) -> None:
    """Stage the instruction that takes a job to the devices the world has left it, or to none within the grace."""
    record, view = staging.jobs.get(job_id), world.jobs.get(JobId(job_id))
    if record is None or view is None or not set(record.devices) & set(world.inventory.names_of(one.node)):
        return
    why = transitions.tell_drained([one.node])
    leaving = transitions.change_devices(staging, world, state_dir, Effects(record), view, why)
    if isinstance(leaving.instruction, Stop):
        stop = replace(leaving.instruction, grace_s=max(0.0, one.until_s - staging.now_s))
        leaving = replace(leaving, instruction=stop)
    staging.stage(leaving)


def follow_event(staging: Staging, event: Event) -> None:
    """Write down that a job has left a drained node, if that is what an event says."""
    if not isinstance(event, LEFT):
        return
    for one in list_drains(staging).values():
        generation = one.jobs.get(event.job)
        if generation and (event.generation >= generation or isinstance(event, Finished)):
            strike_off(staging, one, event.job)


def strike_off(staging: Staging, one: Drain, job_id: str) -> None:
    """A job has left; the last one to leave makes the node drained."""
    jobs = {other: generation for other, generation in one.jobs.items() if other != job_id}
    put(staging, replace(one, jobs=jobs))
    if not jobs:
        sentence = f"{name_node(one.node)} is empty after {show_span(staging.now_s - one.since_s)}"
        staging.add_event("drained", sentence, node=one.node)


def list_overdue(staging: Staging, world: PlatformWorld) -> list[tuple[str, str]]:
    """The jobs that are still on a drained node although the grace is over, each after the name of its node."""
    if not world.inventory.drained:
        return []
    over = [one for one in list_drains(staging).values() if staging.now_s >= one.until_s]
    return [(one.node, job_id) for one in over for job_id, told in one.jobs.items() if told]


def end_grace(staging: Staging, world: PlatformWorld, state_dir: StateDir, node: str, job_id: str) -> None:
    """Start a job elsewhere from its last checkpoint; it has not left a drained node within the grace."""
    force_to_leave(staging, world, state_dir, list_drains(staging)[node], job_id)
    strike_off(staging, list_drains(staging)[node], job_id)


def force_to_leave(staging: Staging, world: PlatformWorld, state_dir: StateDir, one: Drain, job_id: str) -> None:
    """End a job's processes on a drained node now; steps since its last checkpoint are lost."""
    record = staging.jobs.get(job_id)
    if record is None or not record.active:
        return
    sentence = f"did not leave {name_node(one.node)} within {show_span(one.until_s - one.since_s)}"
    sentence += "; it goes on from its last checkpoint"
    staging.add_event("drain_forced", sentence, job_id, node=one.node)
    if record.devices:
        transitions.start_again(staging, world, state_dir, job_id)
