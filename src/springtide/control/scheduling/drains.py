"""Draining a node: it takes no new work, its jobs leave within a grace, and promises it carried are looked at again.

The world is told at once that the node's devices are gone, so the policy decides where its jobs go on; what their
processes are told follows from that. A job that has not left when the grace is over is started again elsewhere from
its last checkpoint. Which drains are under way is a fact in the store, so a restarted server goes on with them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from springtide.control.scheduling import effects, offers
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_world import LiveWorld, find_rate
from springtide.control.storage.records import JobRecord
from springtide.core.decisions import Decision, Promise, Snapshot, Status
from springtide.core.devices import count_devices
from springtide.core.durations import show_span
from springtide.core.jobs import JobId
from springtide.errors import InputError
from springtide.executors.protocol import Event, Finished, Resized, Started, Stop, Stopped
from springtide.executors.wire import load_instruction

FACT = "drains"
LOST_CAPACITY = "lost_capacity"  # why a promise is in danger
LEFT = (Resized, Started, Stopped, Finished)

Decide = Callable[[float, Snapshot], Decision]


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


def restore_inventory(site: Inventory, fact: Any) -> Inventory:
    """The devices without the nodes that were drained before the last server ended."""
    return replace(site, drained=frozenset(node for node in read_drains(fact) if node in site.nodes))


def drain(platform: Context, node: str, grace_s: float, decide: Decide) -> None:
    """Begin to drain a node; refused where there is no such node, or no other to go to."""
    site, book, now_s = platform.site, platform.book, platform.clock.now_s()
    check_node(site, node)
    if node in site.drained:
        raise InputError(f"node {node} is drained already; springtide nodes undrain {node} takes it back")
    if len(site.usable) == 1:
        raise InputError(
            f"node {node} is the last one that takes work, so its jobs have nowhere to go; take another node back "
            "first (springtide nodes undrain), or end everything with checkpoints: springtide stop"
        )
    gone = set(site.names_of(node))
    leaving = {record.id: 0 for record in book.active() if gone & set(record.devices)}
    offers.release(platform, f"node {node} is drained")
    put(platform, Drain(node, now_s, now_s + grace_s, leaving))
    book.note("draining", f"node {node} takes no new work; {len(leaving)} jobs leave within {show_span(grace_s)}")
    move_world(platform, replace(site, drained=site.drained | {node}))
    review_promises(platform, f"node {node} is drained", decide)


def undrain(platform: Context, node: str) -> None:
    """Let a drained node take work again."""
    site = platform.site
    check_node(site, node)
    if node not in site.drained:
        raise InputError(f"node {node} is not drained")
    platform.book.put_fact(
        FACT, write_drains({other: one for other, one in list_drains(platform).items() if other != node})
    )
    move_world(platform, replace(site, drained=site.drained - {node}))
    platform.book.note("undrained", f"node {node} takes work again")


def check_node(site: Inventory, node: str) -> None:
    """Refuse a name that no node has."""
    if node not in site.nodes:
        raise InputError(f"there is no node {node!r}; there are: {', '.join(site.nodes)}")


def list_drains(platform: Context) -> dict[str, Drain]:
    """The drains, with what is staged but not yet stored."""
    staged = platform.book.batch.facts.get(FACT)
    return read_drains(platform.book.store.fact(FACT) if staged is None else staged)


def put(platform: Context, one: Drain) -> None:
    """Stage a drain."""
    platform.book.put_fact(FACT, write_drains({**list_drains(platform), one.node: one}))


def move_world(platform: Context, site: Inventory) -> None:
    """Give the world the devices of a site; jobs keep those of theirs that are there and make a permitted share."""
    old, world, now_s = platform.site, platform.world, platform.clock.now_s()
    held = {}
    for job_id, view in world.jobs.items():
        kept = site.find_devices(old.name_devices(view.devices))
        mix = site.cluster.count_types(kept)
        held[job_id] = kept if find_rate(view.job, count_devices(kept), mix) else ()
    platform.site = site
    world.change_cluster(site.cluster, held, now_s)


def review_promises(platform: Context, why: str, decide: Decide) -> None:
    """Plan all promises for the devices that are left, the oldest first; those that find no room are in danger."""
    now_s = platform.clock.now_s()
    kept = keep_promises(platform, decide, now_s)
    for job_id, view in list(platform.world.jobs.items()):
        if view.promise is None:
            continue
        if job_id in kept:
            platform.world.set_promise(job_id, kept[job_id])
        else:
            endanger(platform, platform.book.jobs[job_id], f"{why}, and what is left cannot keep it")


def keep_promises(platform: Context, decide: Decide, now_s: float) -> dict[JobId, Promise]:
    """The promises that the policy would make again on the devices that are left, each job with its work left."""
    twin = LiveWorld(platform.site.cluster)
    for job_id, view in platform.world.jobs.items():
        if view.promise is None:
            continue
        twin.arrive(replace(view.job, work=view.progress.work_left_at(now_s)), now_s)
        decision = decide(now_s, twin.snapshot())
        answer = decision.answers.get(job_id)
        twin.apply(decision, now_s)
        if answer is None or answer.status is not Status.ADMITTED:
            twin.remove(job_id)
    return {job_id: view.promise for job_id, view in twin.jobs.items() if view.promise is not None}


def endanger(platform: Context, record: JobRecord, why: str) -> None:
    """A promise has lost its plan: the job goes before every best-effort job, and counts as missed if it is late."""
    book, now_s = platform.book, platform.clock.now_s()
    sentence = f"its promise is in danger: {why}; it goes on before all best-effort jobs"
    book.change(record.id, plan=None, endangered=True)
    book.set_condition(record.id, "at_risk", LOST_CAPACITY, sentence)
    book.note("at_risk", sentence, record.id, cause=LOST_CAPACITY)
    world = platform.world
    world.set_promise(JobId(record.id), None)
    world.revise(platform.build_job(book.jobs[record.id]), now_s)


def follow_up(platform: Context) -> None:
    """After a decision: tell every job that is still on a drained node to leave, unless the decision has told it."""
    if not platform.site.drained:
        return
    for one in list_drains(platform).values():
        untold = [job_id for job_id, generation in one.jobs.items() if not generation]
        if not untold:
            continue
        for job_id in untold:
            tell_to_leave(platform, one, job_id)
        jobs = platform.book.jobs
        told = {job_id: jobs[job_id].generation for job_id in one.jobs if job_id in jobs and jobs[job_id].active}
        put(platform, replace(one, jobs=told))


def tell_to_leave(platform: Context, one: Drain, job_id: str) -> None:
    """Stage the instruction that takes a job to the devices the world has left it, or to none."""
    book, view = platform.book, platform.view(job_id)
    record = book.jobs.get(job_id)
    if record is None or view is None or not set(record.devices) & set(platform.site.names_of(one.node)):
        return
    effects.stage_devices(platform, view, view, f"node {one.node} is drained")
    if not view.devices:
        bound_stop(platform, job_id, one.until_s - platform.clock.now_s())


def bound_stop(platform: Context, job_id: str, grace_s: float) -> None:
    """Give the stop just staged for a job the grace of the drain instead of the executor's own."""
    orders = platform.book.batch.orders
    position = max(k for k, order in enumerate(orders) if order.job == job_id)
    if isinstance(load_instruction(orders[position].body), Stop):
        orders[position] = replace(orders[position], body={**orders[position].body, "grace_s": max(0.0, grace_s)})


def hear(platform: Context, event: Event) -> None:
    """Note that a job has left a drained node, if that is what an event says."""
    if not platform.site.drained or not isinstance(event, LEFT):
        return
    for one in list_drains(platform).values():
        generation = one.jobs.get(event.job)
        if generation and (event.generation >= generation or isinstance(event, Finished)):
            note_left(platform, one, event.job)


def note_left(platform: Context, one: Drain, job_id: str) -> None:
    """A job has left; the last one to leave makes the node drained."""
    jobs = {other: generation for other, generation in one.jobs.items() if other != job_id}
    put(platform, replace(one, jobs=jobs))
    if not jobs:
        took_s = platform.clock.now_s() - one.since_s
        platform.book.note("drained", f"node {one.node} is empty after {show_span(took_s)}", node=one.node)


def watch(platform: Context) -> None:
    """Start jobs elsewhere from their last checkpoint if the grace is over and they are still on a drained node."""
    if not platform.site.drained:
        return
    now_s = platform.clock.now_s()
    for one in list_drains(platform).values():
        for job_id in [job_id for job_id, told in one.jobs.items() if told and now_s >= one.until_s]:
            force(platform, one, job_id)
            note_left(platform, list_drains(platform)[one.node], job_id)


def force(platform: Context, one: Drain, job_id: str) -> None:
    """End a job's processes on a drained node now; steps since its last checkpoint are lost."""
    record = platform.book.jobs.get(job_id)
    if record is None or not record.active:
        return
    sentence = f"did not leave node {one.node} within {show_span(one.until_s - one.since_s)}"
    platform.book.note("drain_forced", f"{sentence}; it goes on from its last checkpoint", job_id, node=one.node)
    if record.devices:
        effects.start_again(platform, job_id)


def describe_nodes(site: Inventory, fact: Any) -> dict[str, str]:
    """Whether each node takes work, by what is stored: `ready`, `draining`, `drained` or `lost`."""
    drains = read_drains(fact)
    return {node: describe_node(drains.get(node)) for node in site.nodes}


def describe_node(one: Drain | None) -> str:
    """The state of a node with this drain, or with none."""
    if one is None:
        return "ready"
    return "lost" if one.lost else "draining" if one.jobs else "drained"
