"""A node that is gone: its jobs start again elsewhere from their last checkpoints, and promises are looked at again.

Like a drain without a grace: the world loses the node's devices at once and the policy decides where jobs go on. But
processes there can neither shrink nor checkpoint, so a job that had any on the node is ended and started anew.
"""

from dataclasses import replace

from springtide.control.scheduling import drains, offers
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.instructions import make_stop
from springtide.control.storage.records import JobRecord, State
from springtide.core.decisions import Decision, JobView, Progress
from springtide.core.job_file import JobFile
from springtide.executors.protocol import NodeLost

CAUSE = "node_lost"


def hear(platform: Context, event: NodeLost, decide: drains.Decide) -> bool:
    """Take in that a node is gone; returns whether a decision is called for."""
    site, node = platform.site, event.node
    platform.book.note(CAUSE, f"node {node} is gone: {event.reason}", node=node)
    if node not in site.nodes:
        return False
    if node in site.drained:
        end_drain_now(platform, node)
        return False
    if len(site.usable) == 1:
        sentence = f"node {node} was the last one that takes work; its jobs start again when it is back"
        platform.book.note("no_nodes", sentence, node=node)
        return False
    lose(platform, node, decide)
    return True


def lose(platform: Context, node: str, decide: drains.Decide) -> None:
    """Go on without a node; it takes work again when it is undrained."""
    site, now_s = platform.site, platform.clock.now_s()
    gone = set(site.names_of(node))
    offers.release(platform, f"node {node} is gone")
    drains.put(platform, drains.Drain(node, now_s, now_s, lost=True))
    for record in platform.book.active():
        if gone & set(record.devices):
            stop_after_node_loss(platform, record, node)
    drains.move_world(platform, replace(site, drained=site.drained | {node}))
    drains.review_promises(platform, f"node {node} is gone", decide)


def end_drain_now(platform: Context, node: str) -> None:
    """Of a node that was being drained: who has not left by now never will, and is started again at the next look."""
    drain = drains.list_drains(platform)[node]
    drains.put(platform, replace(drain, until_s=platform.clock.now_s(), lost=True))


def stop_after_node_loss(platform: Context, record: JobRecord, node: str) -> None:
    """End what is left of a job's processes; it holds nothing until the policy gives it devices again."""
    book, world, now_s = platform.book, platform.world, platform.clock.now_s()
    view = platform.view(record.id)
    assert view is not None, "a job that holds devices is in the world"
    stop = make_stop(record, CAUSE, grace_s=0.0)
    book.order(stop)
    world.apply(Decision(allocations={view.job.id: ()}), now_s)
    world.observe(view.job.id, Progress(guess_left(record, view, now_s), 0.0, now_s, now_s), now_s)
    platform.settle(record.id, world.jobs[view.job.id])
    state = record.state if record.state is State.PROBING else State.ADMITTED
    book.change(record.id, generation=stop.generation, devices=(), state=state, faults=record.faults + 1)
    sentence = f"node {node} is gone with processes of it; it goes on from its last checkpoint"
    book.set_condition(record.id, "recovering", CAUSE, sentence)
    book.note("faulted", f"fault ({CAUSE}): {sentence}", record.id, cause=CAUSE, step=record.step, user_fault=False)


def guess_left(record: JobRecord, view: JobView, now_s: float) -> float:
    """The work a job has left if its last checkpoint is as old as it may be; its next start tells how old it was."""
    job, left = JobFile.model_validate(record.spec), view.progress.work_left_at(now_s)
    repeated = view.progress.rate * job.checkpoint.every_s if job.elastic else view.job.work
    return min(view.job.work, left + repeated)
