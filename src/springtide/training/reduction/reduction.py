"""The sum of N workers' gradients over P processes, in the order DDP on N ranks would add them.

One process folds locally. With P = N on gloo each bucket is gloo's own all-reduce, if that adds in our order. Else each
process owns a shard of every bucket: workers send shards to their owners while later workers compute, owners fold, and
everyone receives the results: (n_p + 1)(P - 1)/P of the gradient per process, and never an all-gather of N gradients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from springtide.training.group.groups import Group
from springtide.training.group.rosters import Roster
from springtide.training.reduction import gloo_order
from springtide.training.reduction.buckets import BucketLayout
from springtide.training.reduction.gloo_order import Chunk
from springtide.training.reduction.gradients import FlatGradients

BLOCK_ELEMENTS = 1 << 16  # 256 KiB of float32: the running sum stays in the cache


@dataclass(frozen=True, slots=True)
class Fold:
    """One block of a fold: ((operands[0] + operands[1]) + ...) into `target`, by way of `scratch`."""

    operands: tuple[torch.Tensor, ...]
    scratch: torch.Tensor
    target: torch.Tensor

    def run(self) -> None:
        """Add the operands; the target may be one of them."""
        operands = self.operands
        if len(operands) == 1:
            self.target.copy_(operands[0])
            return
        total = operands[0]
        for operand in operands[1:-1]:
            total = torch.add(total, operand, out=self.scratch)
        torch.add(total, operands[-1], out=self.target)


def plan_folds(
    chunks: Sequence[Chunk],
    start: int,
    sources: Mapping[int, torch.Tensor],
    target: torch.Tensor,
    scratch: torch.Tensor,
) -> list[Fold]:
    """The folds that add `sources` (by worker; each holds elements from `start` on) into `target`, block by block."""
    # Float addition is not associative, so the order within a chunk is the promise. Elements are independent of each
    # other: a chunk may be cut into blocks, and into shards of several owners, anywhere.
    folds = []
    stop = start + target.numel()
    for chunk in chunks:
        first, last = max(chunk.start, start), min(chunk.stop, stop)
        for block in range(first, last, BLOCK_ELEMENTS):
            part = slice(block - start, min(block + BLOCK_ELEMENTS, last) - start)
            operands = tuple(sources[worker][part] for worker in chunk.order)
            folds.append(Fold(operands, scratch[: part.stop - part.start], target[part]))
    return folds


def cut_shards(elements: int, processes: int) -> list[int]:
    """Elements per owner of a bucket, in rank order; they differ by at most one."""
    bounds = [elements * rank // processes for rank in range(processes + 1)]
    return [bounds[rank + 1] - bounds[rank] for rank in range(processes)]


class LocalReduction:
    """All logical workers live in this process: nothing is sent."""

    def __init__(self, layout: BucketLayout, flats: Mapping[int, FlatGradients]) -> None:
        self.folds: list[Fold] = []
        for number, bucket in enumerate(layout.buckets):
            spans = {worker: flat.spans[number] for worker, flat in flats.items()}
            scratch = spans[0].new_empty(min(bucket.numbers, BLOCK_ELEMENTS))
            chunks = gloo_order.cut_chunks(bucket.numbers, bucket.number_type.itemsize, len(flats))
            # Worker 0's buffer is an operand and the target at once: a block is written by its last addition only,
            # when all operands of the block have been read.
            self.folds += plan_folds(chunks, 0, spans, spans[0], scratch)
        if len(flats) == 1:
            self.folds = []

    def launch(self, worker: int, bucket: int) -> None:
        """Nothing to send."""

    def launch_rest(self) -> None:
        """Nothing to send."""

    def finish(self) -> None:
        """Fold every bucket into the first worker's buffer."""
        for fold in self.folds:
            fold.run()


class RingReduction:
    """One logical worker per process on gloo: the backend's own all-reduce is the reference itself."""

    def __init__(self, group: Group, flat: FlatGradients) -> None:
        self.group = group
        self.flat = flat
        self.works: list[Any] = []

    def launch(self, worker: int, bucket: int) -> None:
        """Start a bucket's all-reduce."""
        self.works.append(self.group.all_reduce(self.flat.spans[bucket]))

    def launch_rest(self) -> None:
        """Every process has had its worker's turn."""

    def finish(self) -> None:
        """Wait for every bucket."""
        wait_all(self.works)


class ShardReduction:
    """Processes own shards: rounds of exchange (the j-th worker of each process at once), fold, broadcast."""

    def __init__(self, layout: BucketLayout, flats: Mapping[int, FlatGradients], roster: Roster, group: Group) -> None:
        self.group = group
        self.roster = roster
        self.mine = list(roster.workers_of(group.rank))
        self.rounds = max(roster.counts)
        self.flats = flats
        self.shards = [cut_shards(bucket.numbers, group.size) for bucket in layout.buckets]
        self.works: list[Any] = []
        self.inboxes: list[list[torch.Tensor]] = []
        self.parts: list[tuple[torch.Tensor, ...]] = []
        self.folds: list[list[Fold]] = []
        for number, bucket in enumerate(layout.buckets):
            self.plan(number, bucket.numbers, bucket.number_type)

    def plan(self, number: int, elements: int, dtype: torch.dtype) -> None:
        """Lay out a bucket's inboxes (one per round) and the folds over them."""
        length = self.shards[number][self.group.rank]
        start = sum(self.shards[number][: self.group.rank])
        target = self.flats[self.mine[0]].spans[number]
        inboxes = [target.new_empty(sum(self.receive_sizes(round_, length))) for round_ in range(self.rounds)]
        self.inboxes.append(inboxes)
        self.parts.append(target.split(self.shards[number]))
        # Invariant: after all rounds every logical worker's part of this shard lies in exactly one inbox, so the fold
        # has the same N operands as DDP's ring on N ranks, wherever the workers live.
        sources: dict[int, torch.Tensor] = {}
        for round_, inbox in enumerate(inboxes):
            senders = [rank for rank, count in enumerate(self.roster.counts) if count > round_]
            for place, rank in enumerate(senders):
                sources[self.roster.workers_of(rank)[round_]] = inbox[place * length : (place + 1) * length]
        scratch = target.new_empty(min(length, BLOCK_ELEMENTS))
        chunks = gloo_order.cut_chunks(elements, dtype.itemsize, self.roster.logical_workers)
        self.folds.append(plan_folds(chunks, start, sources, target[start : start + length], scratch))

    def receive_sizes(self, round_: int, length: int) -> list[int]:
        """Elements received from each process in a round: a shard, or nothing from one with no worker left."""
        return [length if count > round_ else 0 for count in self.roster.counts]

    def launch(self, worker: int, bucket: int) -> None:
        """Start sending a worker's bucket, shard by shard, to the shards' owners."""
        self.exchange(self.mine.index(worker), bucket)

    def exchange(self, round_: int, bucket: int) -> None:
        """Take part in one round for one bucket, with nothing to send when this process has no such worker."""
        # A collective is matched with the peers' by its place in the sequence alone: each process calls this for
        # every (round, bucket), rounds ascending and buckets in order, even with nothing to send.
        shards = self.shards[bucket]
        inbox = self.inboxes[bucket][round_]
        sizes_in = self.receive_sizes(round_, shards[self.group.rank])
        if round_ < len(self.mine):
            source = self.flats[self.mine[round_]].spans[bucket]
            sizes_out = shards
        else:
            source, sizes_out = inbox[:0], [0] * self.group.size
        self.works.append(self.group.scatter_parts(inbox, sizes_in, source, sizes_out))

    def launch_rest(self) -> None:
        """Take part in the rounds of processes that have more workers than this one; before any other collective."""
        for round_ in range(len(self.mine), self.rounds):
            for bucket in range(len(self.shards)):
                self.exchange(round_, bucket)

    def finish(self) -> None:
        """Fold this process's shards, and receive everyone's."""
        buckets = range(len(self.shards))
        wait_all(self.works)
        # The target is this process's own first buffer, which has been sent by now; a folded bucket travels while the
        # next one is folded.
        for bucket in buckets:
            for fold in self.folds[bucket]:
                fold.run()
            self.spread(bucket)
        wait_all(self.works)

    def spread(self, bucket: int) -> None:
        """Start giving every process the folded shards of a bucket."""
        for owner, part in enumerate(self.parts[bucket]):
            if part.numel():
                self.works.append(self.group.broadcast(part, owner))


Reduction = LocalReduction | RingReduction | ShardReduction


def wait_all(works: list[Any]) -> None:
    """Wait for everything started, and forget it."""
    for work in works:
        work.wait()
    works.clear()


def make_reduction(
    layout: BucketLayout, flats: Mapping[int, FlatGradients], roster: Roster, group: Group | None, rings: bool
) -> Reduction:
    """The reduction for this roster; `rings` says whether the backend's own ring adds as we do."""
    if group is None or group.size == 1:
        return LocalReduction(layout, flats)
    if rings and set(roster.counts) == {1}:
        return RingReduction(group, next(iter(flats.values())))
    return ShardReduction(layout, flats, roster, group)
