"""Nodes that take no work: drained by an admin, or lost with all their devices.

The world is told at once that the node's devices are gone, so the policy decides where its jobs go on; what their
processes are told follows from that, and promises are planned anew for what is left. Jobs leave a drained node within a
grace; one that has not left by then is started again elsewhere from its last checkpoint. Processes on a lost node can
neither shrink nor checkpoint, so a job that had any there is ended and started anew. Which nodes are drained or lost is
a fact in the store, so a restarted server goes on with them.
"""

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from springtide.control.scheduling import offers, transitions
from springtide.control.scheduling.context import Context, Decide
from springtide.control.scheduling.instructions import make_stop
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_world import LiveWorld, find_rate
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects
from springtide.core.decisions import Decision, JobView, Progress, Promise, Status
from springtide.core.devices import count_devices
from springtide.core.durations import show_span
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId
from springtide.errors import InputError
from springtide.executors.protocol import Event, Finished, NodeLost, Resized, Started, Stop, Stopped

logger = logging.getLogger("springtide.control")
FACT = "drains"
LOST_CAPACITY = "lost_capacity"  # why a promise is in danger
NODE_LOST = "node_lost"
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


def read_drains(fact: Any) -> dict[str, Drain]:
    """The drains in a fact of the store."""
    return {node: Drain(**{**data, "jobs": dict(data["jobs"])}) for node, data in (fact or {}).items()}


def write_drains(drains: dict[str, Drain]) -> dict[str, Any]:
    """The drains as a fact for the store."""
    return {
        node: {"node": node, "since_s": one.since_s, "until_s": one.until_s, "jobs": one.jobs, "lost": one.lost}
        for node, one in drains.items()
    }


def restore_inventory(inventory: Inventory, fact: Any) -> Inventory:
    """The devices without the nodes that were drained before the last server ended."""
    return replace(inventory, drained=frozenset(node for node in read_drains(fact) if node in inventory.nodes))


def describe_nodes(inventory: Inventory, fact: Any) -> dict[str, str]:
    """Whether each node takes work, by what is stored: `ready`, `draining`, `drained` or `lost`."""
    drains = read_drains(fact)
    return {node: describe_node(drains.get(node)) for node in inventory.nodes}


def describe_node(one: Drain | None) -> str:
    """The state of a node with this drain, or with none."""
    if one is None:
        return "ready"
    return "lost" if one.lost else "draining" if one.jobs else "drained"


def list_drains(context: Context) -> dict[str, Drain]:
    """The drains, with what is staged but not yet stored."""
    return read_drains(context.staging.read_fact(FACT))


def put(context: Context, one: Drain) -> None:
    """Stage a drain."""
    context.staging.put_fact(FACT, write_drains({**list_drains(context), one.node: one}))


def drain(context: Context, node: str, grace_s: float, decide: Decide) -> None:
    """Begin to drain a node; refused where there is no such node, or no other to go to."""
    inventory, staging, now_s = context.inventory, context.staging, context.now_s
    check_node(inventory, node)
    if node in inventory.drained:
        raise InputError(f"node {node} is drained already; springtide nodes undrain {node} takes it back")
    if len(inventory.usable) == 1:
        raise InputError(
            f"node {node} is the last one that takes work, so its jobs have nowhere to go; take another node back "
            "first (springtide nodes undrain), or end everything with checkpoints: springtide stop"
        )
    gone = set(inventory.names_of(node))
    leaving = {record.id: 0 for record in staging.list_active() if gone & set(record.devices)}
    sentence = f"node {node} takes no new work; {len(leaving)} jobs leave within {show_span(grace_s)}"
    staging.add_event(now_s, "draining", sentence)
    offers.release(context, f"node {node} is drained")
    put(context, Drain(node, now_s, now_s + grace_s, leaving))
    change_inventory(context, replace(inventory, drained=inventory.drained | {node}))
    review_promises(context, f"node {node} is drained", decide)


def undrain(context: Context, node: str) -> None:
    """Let a drained node take work again."""
    inventory = context.inventory
    check_node(inventory, node)
    if node not in inventory.drained:
        raise InputError(f"node {node} is not drained")
    left = {other: one for other, one in list_drains(context).items() if other != node}
    context.staging.put_fact(FACT, write_drains(left))
    change_inventory(context, replace(inventory, drained=inventory.drained - {node}))
    context.staging.add_event(context.now_s, "undrained", f"node {node} takes work again")


def check_node(inventory: Inventory, node: str) -> None:
    """Refuse a name that no node has."""
    if node not in inventory.nodes:
        raise InputError(f"there is no node {node!r}; there are: {', '.join(inventory.nodes)}")


def lose_node(context: Context, event: NodeLost, decide: Decide) -> bool:
    """Go on without a node that is gone, until it is undrained; returns whether a decision is called for."""
    inventory, staging, node, now_s = context.inventory, context.staging, event.node, context.now_s
    staging.add_event(now_s, NODE_LOST, f"node {node} is gone: {event.reason}", node=node)
    if node not in inventory.nodes:
        return False
    if node in inventory.drained:  # who has not left by now never will, and is started again at the next look
        put(context, replace(list_drains(context)[node], until_s=now_s, lost=True))
        return False
    if len(inventory.usable) == 1:
        sentence = f"node {node} was the last one that takes work; its jobs start again when it is back"
        staging.add_event(now_s, "no_nodes", sentence, node=node)
        return False
    gone = set(inventory.names_of(node))
    offers.release(context, f"node {node} is gone")
    put(context, Drain(node, now_s, now_s, lost=True))
    for record in staging.list_active():
        if gone & set(record.devices):
            stop_after_node_loss(context, record, node)
    change_inventory(context, replace(inventory, drained=inventory.drained | {node}))
    review_promises(context, f"node {node} is gone", decide)
    return True


def stop_after_node_loss(context: Context, record: JobRecord, node: str) -> None:
    """End what is left of a job's processes; it holds nothing until the policy gives it devices again."""
    world, job_id, now_s = context.world, JobId(record.id), context.now_s
    view = world.jobs[job_id]
    stop = make_stop(record, NODE_LOST, grace_s=0.0)
    world.apply(Decision(allocations={job_id: ()}), now_s)
    world.observe(job_id, Progress(guess_left(record, view, now_s), 0.0, now_s, now_s), now_s)
    state = record.state if record.state is JobState.PROBING else JobState.ADMITTED
    sentence = f"node {node} is gone with processes of it; it goes on from its last checkpoint"
    record = transitions.account(record, world.jobs[job_id], now_s).with_condition(
        "recovering", NODE_LOST, sentence, now_s
    )
    record = replace(record, generation=stop.generation, devices=(), state=state, faults=record.faults + 1)
    data = {"cause": NODE_LOST, "step": record.step, "user_fault": False}
    event = EventRecord(now_s, "faulted", f"fault ({NODE_LOST}): {sentence}", record.id, data)
    context.staging.stage(Effects(record, (event,), stop))


def guess_left(record: JobRecord, view: JobView, now_s: float) -> float:
    """The work a job has left if its last checkpoint is as old as it may be; its next start tells how old it was."""
    job, left = record.spec, view.progress.work_left_at(now_s)
    repeated = view.progress.rate * job.checkpoint.every_s if job.elastic else view.job.work
    return min(view.job.work, left + repeated)


def change_inventory(context: Context, inventory: Inventory) -> None:
    """Go on with other devices; jobs keep those of theirs that are there and make a permitted share."""
    held = {}
    for job_id, view in context.world.jobs.items():
        kept = inventory.find_devices(context.inventory.name_devices(view.devices))
        mix = inventory.cluster.count_types(kept)
        held[job_id] = kept if find_rate(view.job, count_devices(kept), mix) else ()
    context.inventory = inventory
    context.world.change_cluster(inventory.cluster, held, context.now_s)


def review_promises(context: Context, why: str, decide: Decide) -> None:
    """Plan all promises for the devices that are left, the oldest first; those that find no room are in danger."""
    kept = keep_promises(context.world, decide, context.now_s)
    for job_id, view in list(context.world.jobs.items()):
        if view.promise is None:
            continue
        if job_id in kept:
            context.world.set_promise(job_id, kept[job_id])
        else:
            endanger(context, context.staging.jobs[job_id], f"{why}, and what is left cannot keep it")


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


def endanger(context: Context, record: JobRecord, why: str) -> None:
    """A promise has lost its plan: the job goes before every best-effort job, and counts as missed if it is late."""
    now_s = context.now_s
    sentence = f"its promise is in danger: {why}; it goes on before all best-effort jobs"
    record = replace(record, plan=None, endangered=True).with_condition("at_risk", LOST_CAPACITY, sentence, now_s)
    event = EventRecord(now_s, "at_risk", sentence, record.id, {"cause": LOST_CAPACITY})
    context.staging.stage(Effects(record, (event,)))
    context.world.set_promise(JobId(record.id), None)
    context.world.revise(context.build_job(record), now_s)


def follow_decision(context: Context) -> None:
    """Tell every job that is still on a drained node to leave, unless the decision has told it."""
    for one in list_drains(context).values():
        untold = [job_id for job_id, generation in one.jobs.items() if not generation]
        if not untold:
            continue
        for job_id in untold:
            tell_to_leave(context, one, job_id)
        jobs = context.staging.jobs
        told = {job_id: jobs[job_id].generation for job_id in one.jobs if job_id in jobs and jobs[job_id].active}
        put(context, replace(one, jobs=told))


def tell_to_leave(context: Context, one: Drain, job_id: str) -> None:
    """Stage the instruction that takes a job to the devices the world has left it, or to none within the grace."""
    record, view = context.staging.jobs.get(job_id), context.world.jobs.get(JobId(job_id))
    if record is None or view is None or not set(record.devices) & set(context.inventory.names_of(one.node)):
        return
    leaving = transitions.change_devices(context, Effects(record), view, f"node {one.node} is drained", {})
    if isinstance(leaving.instruction, Stop):
        stop = replace(leaving.instruction, grace_s=max(0.0, one.until_s - context.now_s))
        leaving = replace(leaving, instruction=stop)
    context.staging.stage(leaving)


def follow_event(context: Context, event: Event) -> None:
    """Write down that a job has left a drained node, if that is what an event says."""
    if not context.inventory.drained or not isinstance(event, LEFT):
        return
    for one in list_drains(context).values():
        generation = one.jobs.get(event.job)
        if generation and (event.generation >= generation or isinstance(event, Finished)):
            strike_off(context, one, event.job)


def strike_off(context: Context, one: Drain, job_id: str) -> None:
    """A job has left; the last one to leave makes the node drained."""
    jobs = {other: generation for other, generation in one.jobs.items() if other != job_id}
    put(context, replace(one, jobs=jobs))
    if not jobs:
        sentence = f"node {one.node} is empty after {show_span(context.now_s - one.since_s)}"
        context.staging.add_event(context.now_s, "drained", sentence, node=one.node)


def end_graces(context: Context) -> None:
    """Start jobs elsewhere from their last checkpoint if the grace is over and they are still on a drained node."""
    if not context.inventory.drained:
        return
    for one in list_drains(context).values():
        for job_id in [job_id for job_id, told in one.jobs.items() if told and context.now_s >= one.until_s]:
            force_to_leave(context, one, job_id)
            strike_off(context, list_drains(context)[one.node], job_id)


def force_to_leave(context: Context, one: Drain, job_id: str) -> None:
    """End a job's processes on a drained node now; steps since its last checkpoint are lost."""
    record = context.staging.jobs.get(job_id)
    if record is None or not record.active:
        return
    sentence = f"did not leave node {one.node} within {show_span(one.until_s - one.since_s)}"
    sentence += "; it goes on from its last checkpoint"
    context.staging.add_event(context.now_s, "drain_forced", sentence, job_id, node=one.node)
    if record.devices:
        transitions.start_again(context, job_id)
