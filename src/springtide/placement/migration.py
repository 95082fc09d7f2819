"""Making room: which jobs move so that a share fits compactly, and what their moves cost.

Only smaller jobs move for a larger one, so the search ends; on equal nodes of a power-of-two size it always
succeeds as long as enough devices are free. Proof: the blocks of size s are either inside one job of at least s or
hold only smaller jobs; if s devices are free, a block of the second kind exists; clear it, and place the evicted
jobs, all smaller than s, by the same argument.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, groupby, islice
from math import inf
from operator import itemgetter
from typing import NamedTuple

from springtide.core.devices import Devices, join_slices
from springtide.core.jobs import JobId
from springtide.placement.best_fit import find_fit, on_one_node
from springtide.placement.blocks import list_blocks, pick
from springtide.placement.working_copy import Step, WorkingCopy

# Bounds of the search. The first way tried is nearly always the best one: they are sorted by a lower bound of the cost.
_BREADTH = (32, 4, 2)  # ways tried for the job itself, for those it evicts, and for those they evict
_TRIES = 200  # ways tried in all; used up only where hardly anyone may move
_ENOUGH = 64  # nodes to look at that have free devices, and ways to list where nothing is free


class MoveCost(NamedTuple):
    """What moves cost, the worst first; compared from left to right."""

    late_s: float = 0.0  # seconds by which moved jobs miss their promised deadlines; infinite: never do it
    unreserved: int = 0  # moves within a deadline, but beyond the reserve that others' plans leave free
    moves: int = 0
    strain: float = 0.0  # sum of delay / slack over moved jobs with a promise: the least is the most slack

    @property
    def harms(self) -> bool:
        """Whether a promise is broken or leans on devices that others may have planned."""
        return self.late_s > 0 or self.unreserved > 0

    def plus(self, other: "MoveCost") -> "MoveCost":
        """The cost of both."""
        if self is NOTHING:
            return other
        if other is NOTHING:
            return self
        return MoveCost(
            self.late_s + other.late_s,
            self.unreserved + other.unreserved,
            self.moves + other.moves,
            self.strain + other.strain,
        )


NOTHING = MoveCost()
IMPOSSIBLE = MoveCost(late_s=inf)
Price = Callable[[JobId, int], MoveCost]  # (job, its share) -> cost of moving it


class Target(NamedTuple):
    """Devices to clear, the fewest moves first, so that targets sort by them."""

    moves: int  # victims that would not change devices otherwise
    size: int  # devices that the victims hold
    pieces: Devices
    victims: tuple[tuple[int, int, JobId], ...]  # (-share, arrival index, job): the order they are placed again
    rest: int = 0  # devices the job still needs beside these


_MOVES = itemgetter(0)  # of a Target


def make_room(working: WorkingCopy, job_id: JobId, share: int, price: Price) -> MoveCost | None:
    """Give a job `share` devices where none are free in one place, by moving smaller jobs.

    Returns the cost of the cheapest way found; None if there is none, and the working is as before.
    """
    return _Search(working, price).make_room(job_id, share, 0)


class _Search:
    """One search for room: tries ways on the working copy, takes them back, and keeps the cheapest."""

    def __init__(self, working: WorkingCopy, price: Price) -> None:
        self.working = working
        self.price = price
        self.tries = _TRIES

    def make_room(self, job_id: JobId, share: int, depth: int) -> MoveCost | None:
        """Give a job `share` more devices; depth 0 is the job that asks, 1 those it evicts, and so on."""
        working = self.working
        best: MoveCost | None = None
        steps: list[Step] = []
        for targets in self._list_targets(share):
            for bound, target in islice(self._sort_by_cost(targets), _BREADTH[min(depth, 2)]):
                # targets come by rising bound: once it reaches the best way found, no later one can be better
                if bound.late_s == inf or (best is not None and (best <= bound or self.tries <= 0)):
                    break
                mark = working.mark()
                cost = self._clear(job_id, target, depth)
                if cost is not None and (best is None or bound.plus(cost) < best):
                    # kept as steps, not as a place: the trail is undone to try the next target from the same state
                    best, steps = bound.plus(cost), working.steps_since(mark)
                    if cost == NOTHING and not best.late_s:
                        return best  # every other way has a bound that is no lower
                working.undo(mark)
            if self.tries <= 0 or (best is not None and not best.late_s):
                break
        working.replay(steps)
        return best

    def _clear(self, job_id: JobId, target: Target, depth: int) -> MoveCost | None:
        """Give a job the target's devices and place who held them again, largest first; returns what that adds."""
        working = self.working
        self.tries -= 1
        for _, _, victim in target.victims:
            working.assign(victim, ())
        self._add(job_id, target.pieces)
        # who waits for its own placement at this instant anyway is evicted for nothing, and placed when its turn comes
        queue = [entry for entry in target.victims if entry[2] not in working.waiting]
        if target.rest:
            queue.append((-target.rest, working.index_of(job_id), job_id))
            queue.sort()
        cost = NOTHING
        for minus_share, _, evicted in queue:
            more = self._settle(evicted, -minus_share, depth + 1)
            if more is None:
                return None
            cost = cost.plus(more)
        return cost

    def _settle(self, job_id: JobId, share: int, depth: int) -> MoveCost | None:
        """Give a job `share` more devices, where they are free or by making room."""
        fit = find_fit(self.working.topology, self.working.free, share)
        if fit is None:
            return self.make_room(job_id, share, depth)
        self._add(job_id, fit)
        return NOTHING

    def _add(self, job_id: JobId, pieces: Devices) -> None:
        held = self.working.held[job_id]
        self.working.assign(job_id, join_slices((*held, *pieces)) if held else pieces)

    def _sort_by_cost(self, targets: Iterable[Target]) -> Iterator[tuple[MoveCost, Target]]:
        """The targets with the cost of evicting their victims, cheapest first; prices no more than are asked for."""
        harmful = []
        for _, equals in groupby(sorted(targets, key=_MOVES), key=_MOVES):
            for cost, target in sorted([(self._price_victims(target), target) for target in equals]):
                if cost.harms:
                    harmful.append((cost, target))
                else:
                    yield cost, target
        yield from sorted(harmful)

    def _price_victims(self, target: Target) -> MoveCost:
        cost = NOTHING
        for minus_share, _, job_id in target.victims:
            if not self.working.is_changing(job_id):
                cost = cost.plus(self.price(job_id, -minus_share))
                if cost.late_s == inf:
                    break
        return cost

    def _list_targets(self, share: int) -> Iterator[list[Target]]:
        """Ways to make room, in two batches: where something is free, then everywhere.

        The first is enough unless moves are forbidden: a place with a free device is held by no job as large as it.
        """
        free, full = self.working.free, self.working.topology.full
        some_free = list(compress(range(len(free)), free))
        most = _ENOUGH + share // self.working.topology.widths[-1]
        if len(some_free) > most:
            some_free = sorted(some_free, key=lambda node: -free[node].bit_count())[:most]
        yield [*self._target_blocks(some_free, share, free), *self._target_nodes(some_free, share)]
        nodes = range(len(free))
        harmless = self._target_blocks(nodes, share, full, self._is_stuck)
        yield [*islice(harmless, _ENOUGH), *self._target_nodes(nodes, share)]

    def _is_stuck(self, job_id: JobId) -> bool:
        """Whether a job cannot be moved without harm."""
        working = self.working
        return not working.is_changing(job_id) and self.price(job_id, working.shares[job_id]).harms

    def _target_blocks(
        self, nodes: Iterable[int], share: int, touching: Sequence[int], stays: Callable[[JobId], bool] | None = None
    ) -> Iterator[Target]:
        """The places on these nodes that touch some devices and hold only smaller jobs, and none that `stays`."""
        holders, shares, full = self.working.holders, self.working.shares, self.working.topology.full
        for node in nodes:
            held, kept = holders[node].items(), 0
            for job_id, mask in held:
                if shares[job_id] >= share or (stays is not None and stays(job_id)):
                    kept |= mask
            if kept == full[node]:
                continue
            for block in list_blocks(full[node].bit_length(), share):
                if touching[node] & block and not kept & block:
                    part = pick(block, share)
                    victims = [job_id for job_id, mask in held if mask & part]
                    yield self._draw(victims, on_one_node(node, part))

    def _target_nodes(self, nodes: Iterable[int], share: int) -> Iterator[Target]:
        """The cheapest whole nodes to clear."""
        for width in self.working.topology.widths:
            if width < share:
                # small jobs move easily; one that spans nodes only if nothing else helps
                for limit in (width, share):
                    yield from self._target_equal_nodes(nodes, share, width, limit)

    def _target_equal_nodes(self, nodes: Iterable[int], share: int, width: int, limit: int) -> Iterator[Target]:
        """The cheapest nodes of a width, their victims smaller than `limit`; at most one target."""
        count, rest = divmod(share, width)
        holders, shares, full = self.working.holders, self.working.shares, (1 << width) - 1
        drawn = [
            self._draw(holders[node], on_one_node(node, full))
            for node in nodes
            if self.working.topology.full[node] == full and all(shares[job_id] < limit for job_id in holders[node])
        ]
        chosen = [target for _, target in islice(self._sort_by_cost(drawn), count)]
        if len(chosen) == count:
            victims = {victim[2] for target in chosen for victim in target.victims}
            both = self._draw(victims, join_slices([target.pieces[0] for target in chosen]))
            yield both._replace(rest=rest)

    def _draw(self, job_ids: Iterable[JobId], pieces: Devices) -> Target:
        """The target that evicts these jobs from these devices."""
        working, moves, size, victims = self.working, 0, 0, []
        for job_id in job_ids:
            share = working.shares[job_id]
            moves += not working.is_changing(job_id)
            size += share
            victims.append((-share, working.index_of(job_id), job_id))
        victims.sort()
        return Target(moves, size, pieces, tuple(victims))
