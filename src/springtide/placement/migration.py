"""Making room: which jobs move so that a share fits compactly, and what their moves cost.

Only smaller jobs move for a larger one, so the search ends; on equal nodes of a power-of-two size it always
succeeds as long as enough devices are free. Proof: the blocks of size s are either inside one job of at least s or
hold only smaller jobs; if s devices are free, a block of the second kind exists; clear it, and place the evicted
jobs, all smaller than s, by the same argument.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from springtide.core.devices import Devices, NodeSlice, join_slices
from springtide.core.jobs import JobId
from springtide.placement.blocks import list_blocks, pick
from springtide.placement.board import Board, Step
from springtide.placement.fits import find_fit

# How many ways of making room are tried in full, for the job itself, for those it evicts, and for those they evict.
# The first is nearly always the best: the list is sorted by a lower bound of the cost.
_BREADTH = (32, 4, 2)


class Cost(NamedTuple):
    """What moves cost, the worst first; compared from left to right."""

    late_s: float = 0.0  # seconds by which moved jobs miss their promised deadlines; infinite: never do it
    unreserved: int = 0  # moves within a deadline, but beyond the reserve that others' plans leave free
    moves: int = 0
    strain: float = 0.0  # sum of pause / slack over moved jobs with a promise: the least is the most slack

    def plus(self, other: "Cost") -> "Cost":
        """The cost of both."""
        return Cost(
            self.late_s + other.late_s,
            self.unreserved + other.unreserved,
            self.moves + other.moves,
            self.strain + other.strain,
        )


NOTHING = Cost()
Price = Callable[[JobId, int], Cost]  # (job, its share) -> cost of moving it


class Target(NamedTuple):
    """Devices to clear: the lower bound of the cost comes first, so that targets sort by it."""

    cost: Cost
    size: int  # devices that the victims hold
    pieces: Devices
    victims: tuple[tuple[int, int, JobId], ...]  # (-share, arrival index, job): the order they are placed again
    rest: int  # devices the job still needs beside these


def settle(board: Board, job_id: JobId, share: int, price: Price, depth: int = 0) -> Cost | None:
    """Give a job `share` more devices, compact, moving smaller jobs if need be; returns the cost of the moves.

    None if there is no way, and the board is as before.
    """
    fit = find_fit(board.topology, board.free, share)
    if fit is None:
        return make_room(board, job_id, share, price, depth)
    board.assign(job_id, join_slices((*board.devices_of(job_id), *fit)))
    return NOTHING


def make_room(board: Board, job_id: JobId, share: int, price: Price, depth: int = 0) -> Cost | None:
    """Give a job `share` more devices where none are free in one place, by moving smaller jobs.

    Returns the cost of the cheapest way found; None if there is none, and the board is as before.
    """
    best: Cost | None = None
    steps: list[Step] = []
    for targets in _list_targets(board, share, price):
        for target in targets[: _BREADTH[min(depth, 2)]]:
            if target.cost.late_s == inf or (best is not None and best <= target.cost):
                break
            mark = board.mark()
            cost = _clear(board, job_id, target, price, depth)
            if cost is not None and (best is None or cost < best):
                best, steps = cost, board.steps_since(mark)
            board.undo(mark)
        if best is not None and not best.late_s:
            break
    board.replay(steps)
    return best


def _clear(board: Board, job_id: JobId, target: Target, price: Price, depth: int) -> Cost | None:
    """Give a job the target's devices and place those who held them again, largest first."""
    for _, _, victim in target.victims:
        board.assign(victim, ())
    board.assign(job_id, join_slices((*board.devices_of(job_id), *target.pieces)))
    queue = [entry for entry in target.victims if entry[2] not in board.waiting]
    if target.rest:
        queue.append((-target.rest, board.index_of(job_id), job_id))
        queue.sort()
    cost = target.cost
    for minus_share, _, evicted in queue:
        more = settle(board, evicted, -minus_share, price, depth + 1)
        if more is None:
            return None
        cost = cost.plus(more)
    return cost


def _list_targets(board: Board, share: int, price: Price) -> Iterator[list[Target]]:
    """Ways to make room, in batches, each sorted: nodes with something free first, then all."""
    topology = board.topology
    some_free = [node for node, mask in enumerate(board.free) if mask]
    for nodes in (some_free, range(len(board.free))):
        board.index_holders(nodes)
        targets = list(_target_blocks(board, nodes, share, price)) if share <= topology.widths[0] else []
        for width in topology.widths:
            if width < share:
                # small jobs move easily; one that spans nodes only if nothing else helps
                for limit in (width, share):
                    targets += _target_nodes(board, nodes, share, width, limit, price)
        targets.sort()
        yield targets


def _target_blocks(board: Board, nodes: Iterable[int], share: int, price: Price) -> Iterator[Target]:
    for node in nodes:
        for block in list_blocks(board.topology.full[node].bit_length(), share):
            part = pick(block, share)
            held = [job_id for job_id, mask in board.holders(node).items() if mask & part]
            target = _weigh(board, held, share, price)
            if target is not None:
                yield target._replace(pieces=(NodeSlice(node, part),))


def _target_nodes(
    board: Board, nodes: Iterable[int], share: int, width: int, limit: int, price: Price
) -> Iterator[Target]:
    """The cheapest whole nodes to clear, their victims smaller than `limit`; at most one target."""
    count, rest = divmod(share, width)
    full = (1 << width) - 1
    candidates = []
    for node in nodes:
        if board.topology.full[node] == full:
            target = _weigh(board, board.holders(node), limit, price)
            if target is not None:
                candidates.append(target._replace(pieces=(NodeSlice(node, full),)))
    if len(candidates) < count:
        return
    chosen = sorted(candidates)[:count]
    victims = {victim[2] for target in chosen for victim in target.victims}
    both = _weigh(board, victims, limit, price)
    if both is not None:
        yield both._replace(pieces=join_slices([target.pieces[0] for target in chosen]), rest=rest)


def _weigh(board: Board, job_ids: Iterable[JobId], limit: int, price: Price) -> Target | None:
    """What evicting these jobs costs at least; None if one of them is not smaller than `limit`."""
    cost, size, victims = NOTHING, 0, []
    for job_id in job_ids:
        share = board.share_of(job_id)
        if share >= limit:
            return None
        if not (job_id in board.changing or board.is_moved(job_id)):
            cost = cost.plus(price(job_id, share))
        size += share
        victims.append((-share, board.index_of(job_id), job_id))
    return Target(cost, size, (), tuple(sorted(victims)), 0)
