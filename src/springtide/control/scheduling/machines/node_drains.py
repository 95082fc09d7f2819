"""Nodes that take no work, as a fact of the store, and the jobs that are still to leave them.

Each is told to leave with the decision that gives it other devices; one that has not left within the grace is started
again elsewhere from its last checkpoint.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from springtide.control.scheduling import job_changes, transitions
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.sentences import name_node
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.durations import show_span
from springtide.core.jobs import JobId
from springtide.executors.protocol import Event, Finished, Resized, Started, Stop, Stopped

FACT = "drains"
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
    why = job_changes.tell_drained([one.node])
    leaving = job_changes.change_devices(staging, world, state_dir, Effects(record), view, why)
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
