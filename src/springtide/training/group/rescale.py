"""A change of processes in place, at a step boundary: contexts change hands, joiners receive state, the group is new.

Every old process takes part until the contexts of all logical workers are shared; then leavers end, the donor (old
rank 0) sends the state to the joiners over a group of their own, and the new roster opens its group. All wait until the
joiners have come to their loops. Survivors keep process, parameters and optimizer. No disk is touched.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from springtide.errors import RescaleError
from springtide.training.group import membership
from springtide.training.group.agreement import ready_key
from springtide.training.group.groups import Group, blame_peers, open_group, send_tree
from springtide.training.group.rosters import Roster, parse_roster
from springtide.training.state import checkpointing, run_state

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

PATIENCE = timedelta(days=7)  # a joiner waits for a step boundary of the others, however long their steps are


class Left(SystemExit):
    """Ends a process that has handed over its logical workers: the code after the user's loop is not for it."""

    def __init__(self) -> None:
        super().__init__(0)


def roster_key(generation: int) -> str:
    """The store's record of a generation's roster."""
    return f"roster/{generation}"


def handover_key(generation: int) -> str:
    """The store's record of a generation's joiners, written when the donor is there for them."""
    return f"handover/{generation}"


def entered_key(generation: int, name: str) -> str:
    """The store's record of a joiner that has come to its loop."""
    return f"entered/{generation}/{name}"


def publish(store: dist.Store, generation: int, roster: Roster) -> None:
    """Write down a generation's roster for the other old processes."""
    store.set(roster_key(generation), str(roster))


def change_roster(run: "ElasticRun", generation: int) -> None:
    """Take part in the change to a later generation; returns only in processes that stay."""
    began_s = time.monotonic()
    old = run.roster
    new = find_change(run, generation)
    # A collective of all old processes, leavers included: from here on every survivor holds every worker's context, so
    # no leaver is needed any more.
    contexts = run_state.share_contexts(run)
    joiners = [name for name in new.names if name not in old.names]
    if joiners and (run.is_main or run.sharding is not None):
        state = run_state.capture(run, contexts)
        if run.is_main:
            send_state(run, state, generation, joiners)
    if run.sharding is not None:
        run.sharding.cut(new.rank_of(run.name) if run.name in new.names else None, len(new.names))
    close(run)
    if run.name not in new.names:
        # A leaver may have been rank 0 and be writing a checkpoint, which is to be whole before it ends.
        if run.checkpoints is not None:
            checkpointing.finish_writing(run)
        run.is_over = True
        run.channel.send("left", step=run.position.step, generation=generation)
        raise Left
    # Opening the group waits for every process of the new roster, and a joiner opens it only with the state in hand: no
    # step is taken before all of them can take it.
    membership.join(run, new, generation)
    run_state.adopt_contexts(run, contexts)
    wait_for_entry(run, joiners)
    if run.is_main:
        run.channel.send(
            "resized",
            step=run.position.step,
            generation=generation,
            roster=str(new),
            pause_s=time.monotonic() - began_s,
        )


def find_change(run: "ElasticRun", generation: int) -> Roster:
    """The roster of the generation that rank 0 decided on."""
    # Only rank 0 was sent the roster; the others read it from the store, which makes them wait until it is there.
    if run.agreement.change is not None:
        roster, run.agreement.change = run.agreement.change.roster, None
        if run.store is not None:
            publish(run.store, generation, roster)
    else:
        if run.store is None:
            raise RescaleError(f"generation {generation} was decided on, but this process has no store to read it from")
        roster = parse_roster(run.store.get(roster_key(generation)).decode())
    if roster.logical_workers != run.logical_workers:
        raise RescaleError(
            f"roster {roster} of generation {generation} places {roster.logical_workers} logical workers; "
            f"the job has {run.logical_workers}"
        )
    return roster


def close(run: "ElasticRun") -> None:
    """Leave the old group."""
    if run.group is not None:
        run.group.close()
        run.group = None


def send_state(run: "ElasticRun", state: dict[str, Any], generation: int, joiners: Sequence[str]) -> None:
    """Send the run's state to the joiners, and what else is known of the run.

    That is where its turns have been looked at, whether a ring may add, and of which generation its checkpoints are.
    """
    assert run.store is not None
    run.store.set(handover_key(generation), ",".join(joiners))
    group = open_transfer(run, generation, 0, len(joiners) + 1)
    saves_as = 0 if run.checkpoints is None else run.checkpoints.generation
    send_tree(group, (state, run.memory.list_over(), run.rings, saves_as), 0, run.device)
    group.close()


def receive_state(run: "ElasticRun") -> dict[str, Any]:
    """A joiner's part: say that it is ready, wait for the donor, and take the state."""
    generation = run.generation
    assert run.store is not None
    run.store.add(ready_key(generation), 1)  # rank 0 lets nobody wait for a joiner that is still importing
    run.channel.send("ready", generation=generation)
    with blame_peers("waiting for the state"):
        run.store.wait([handover_key(generation)], PATIENCE)
    joiners = run.store.get(handover_key(generation)).decode().split(",")
    group = open_transfer(run, generation, joiners.index(run.name) + 1, len(joiners) + 1)
    state: dict[str, Any]
    state, looked_at, run.rings, saves_as = send_tree(group, None, 0, run.device)
    group.close()
    if run.checkpoints is not None:
        run.checkpoints.generation = saves_as
    run.memory.skip(looked_at)
    return state


def tell_entry(run: "ElasticRun") -> None:
    """A joiner's part where its loop begins: say so, and wait for the other joiners."""
    if not run.settings.joining:
        return
    assert run.store is not None
    run.store.set(entered_key(run.generation, run.name), "")
    wait_for_entry(run, run.store.get(handover_key(run.generation)).decode().split(","))


def wait_for_entry(run: "ElasticRun", joiners: Sequence[str]) -> None:
    """Wait until the joiners have come to their loops, however long the script's lines before those take.

    A reduction would wait only as long as for a peer that may be lost.
    """
    if not joiners:
        return
    held: Any = run.store  # torch's stubs know of no clones
    # By a line of its own: that of the run is needed to hear of a process that has failed.
    store = held.clone()
    with blame_peers("waiting for joining processes to enter their loop"):
        store.wait([entered_key(run.generation, name) for name in joiners], PATIENCE)


def open_transfer(run: "ElasticRun", generation: int, rank: int, size: int) -> Group:
    """The group of the donor and the joiners."""
    assert run.store is not None
    timeout_s = run.settings.collective_timeout_s
    return open_group(run.backend, run.store, rank, size, f"{generation}/transfer", timeout_s)
