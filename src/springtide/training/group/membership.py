"""Becoming a process of a roster: at a run's start, and at every change of processes.

Its processes open a group, compare what they were given and plan the reduction over it. How state changes hands is in
`rescale`.
"""

from functools import partial
from typing import TYPE_CHECKING

from springtide.errors import JobError
from springtide.training.group.control_channel import Channel
from springtide.training.group.groups import Group, open_group
from springtide.training.group.rosters import Roster
from springtide.training.reduction import gloo_order
from springtide.training.state.common_parts import check_parts_alike
from springtide.training.workers.model_gradients import Place
from springtide.training.workers.shards import Seat

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun
    from springtide.training.sharding.model_sharding import ModelSharding

#: The most ranks that gloo's order is tried with.
TRIED_RANKS = 4


def join(run: "ElasticRun", roster: Roster, generation: int) -> None:
    """Become a process of this roster: open its group and plan the reduction over it."""
    run.roster, run.generation = roster, generation
    run.rank = roster.rank_of(run.name)
    run.group = open_own(run)
    if run.group is not None:
        check_parts_alike(run)
        run.rings = run.group.share(run.rings, 0, run.device)
    if run.sharding is not None:
        place_shards(run, run.sharding)
    run.turns.configure(Place(roster, run.rank, run.group, run.rings))
    run.tracking.move(run.is_main)
    run.paces.forget()


def open_own(run: "ElasticRun") -> Group | None:
    """This generation's process group; a process alone needs none."""
    size = len(run.roster.names)
    if size == 1:
        return None
    if run.store is None:
        raise JobError(f"roster {run.roster} has several processes but no store; set SPRINGTIDE_STORE")
    timeout_s = run.settings.collective_timeout_s
    return open_group(run.backend, run.store, run.rank, size, str(run.generation), timeout_s)


def is_joining(run: "ElasticRun") -> bool:
    """Whether this process is on its way into a run that goes on: the others wait to meet it in its first step.

    Until then it is alone with what it gathers, as in the lines before the loop that a resume goes through too.
    """
    return run.settings.joining and not run.entered


def find_seat(run: "ElasticRun") -> Seat:
    """Which of how many processes this one is now."""
    return Seat(0, 1) if is_joining(run) else Seat(run.rank, len(run.roster.names))


def refuse_early(run: "ElasticRun", what: str, *_: object) -> None:
    """Refuse, in a process that joins, what takes all processes at once."""
    if is_joining(run):
        raise JobError(
            f"{what} was called between run.prepare and the loop, by a process that joins: it takes all processes, and "
            "the others wait until this one is in its loop. Call it there"
        )


def place_shards(run: "ElasticRun", sharding: "ModelSharding") -> None:
    """Lie on the processes of the roster; at the start, with rank 0's weights."""
    if sharding.pending is None:
        sharding.cut(run.rank, len(run.roster.names), None if run.settings.joining else run.group)
    sharding.place(run.group, run.rank)
    if is_joining(run):
        run.models[0].register_forward_pre_hook(partial(refuse_early, run, "a sharded model"), prepend=True)


def choose_rings(run: "ElasticRun") -> bool:
    """Whether a ring of the backend's own has the bits of our sums: gloo's, as far as rank 0 has seen it add.

    The others hear of it from rank 0 when they join, and joiners from the donor: one of them may be rank 0 then.
    """
    if run.backend != "gloo" or run.logical_workers == 1 or not run.is_main:
        return run.backend == "gloo"
    return check_order(run.logical_workers, run.channel)


def check_order(logical_workers: int, channel: Channel) -> bool:
    """Whether the installed gloo adds in the order that is imitated; what is lost if it does not is said."""
    if gloo_order.check_installed(min(logical_workers, TRIED_RANKS)):
        return True
    channel.warn(
        "this torch's gloo adds gradients in another order than the one springtide imitates: runs stay equal to each "
        "other on any number of processes, but not to stock DistributedDataParallel"
    )
    return False
