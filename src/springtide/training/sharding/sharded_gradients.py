"""The gradients of a sharded model within a global step: each worker's rows sent to their owners as they come.

When all gradients of a group of parameters have come, they leave for their owners and are let go. Owners keep a part
per logical worker; when the last turn has brought a group's, they are added in the order in which DDP on N ranks would,
and let go while the backward goes on. In a turn modules are gathered too, by all processes at once: a process that has
fewer logical workers than others goes through the same exchanges without one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from springtide.errors import JobError
from springtide.training.reduction import buckets, gloo_order
from springtide.training.reduction.buckets import BucketLayout
from springtide.training.reduction.gloo_order import Chunk
from springtide.training.reduction.gradients import refuse_modules, refuse_untrained
from springtide.training.reduction.reduction import BLOCK_ELEMENTS, plan_folds
from springtide.training.sharding.model_sharding import ModelSharding
from springtide.training.sharding.sharded_parameters import RowCut, ShardedGroup, ShardedParameter, cut_rows
from springtide.training.workers.model_gradients import Place

#: Groups whose gradients are on their way to their owners while the next ones are computed.
MOST_UNDER_WAY = 1


class Exchange(NamedTuple):
    """What all processes do at once in a turn: gather a group's parameters, or send its gradients."""

    gathers: bool
    group: int


class Sending(NamedTuple):
    """Gradients of a group on their way: what is sent is in memory until it has arrived."""

    work: Any
    source: torch.Tensor
    group: int
    round: int


class FoldOrder(NamedTuple):
    """Where this process's rows of a parameter begin in their bucket, and how the bucket's chunks are added."""

    chunks: tuple[Chunk, ...]
    first: int


class GroupGather:
    """How a group's parameters are gathered; torch's `fully_shard` is told to use it."""

    def __init__(self, owner: "ShardedGradients", number: int) -> None:
        self.owner = owner
        self.number = number

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for what is gathered."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool) -> None:
        self.owner.note(Exchange(True, self.number))
        group.collect(output_tensor, input_tensor).wait()


class TrainedGroup:
    """The trained parameters of a group: how they are cut, and every worker's part of what is this process's."""

    def __init__(self, group: ShardedGroup) -> None:
        self.group = group
        self.trained = [one for one in group.parameters if one.parameter.requires_grad]
        self.missing = 0
        #: What each worker has sent of this process's rows, until it is added; and their sum, until it is handed over.
        self.parts: dict[int, torch.Tensor] = {}
        self.rows: torch.Tensor | None = None

    def configure(self, place: Place) -> None:
        """Know which rows are whose."""
        self.place = place
        size = len(place.roster.names)
        self.cuts: list[RowCut] = [cut_rows(one.parameter.shape, size) for one in self.trained]
        #: Elements that each process owns.
        self.sizes = [sum(cut.count(rank) for cut in self.cuts) for rank in range(size)]
        self.forget()

    def forget(self) -> None:
        """Let go what is left of a walk."""
        self.parts, self.rows = {}, None

    def make_room(self, round_: int) -> torch.Tensor:
        """Room for the parts that come in a round, one of each process that has a worker left."""
        roster, mine, first = self.place.roster, self.sizes[self.place.rank], self.trained[0].parameter
        senders = [rank for rank, count in enumerate(roster.counts) if count > round_]
        inbox = torch.empty(len(senders) * mine, dtype=first.dtype, device=first.device)
        for number, rank in enumerate(senders):
            self.parts[roster.workers_of(rank)[round_]] = inbox[number * mine : (number + 1) * mine]
        return inbox

    def fold(self, orders: Sequence[FoldOrder]) -> None:
        """Add all workers' parts, and let them go."""
        first = next(iter(self.parts.values()))
        self.rows = torch.empty_like(first)
        scratch = first.new_empty(min(first.numel(), BLOCK_ELEMENTS))
        for order, place in zip(orders, self.find_places(self.place.rank), strict=True):
            sources = {worker: part[place] for worker, part in self.parts.items()}
            for fold in plan_folds(order.chunks, order.first, sources, self.rows[place], scratch):
                fold.run()
        self.parts = {}

    def hand_over(self) -> None:
        """Give the sums to the parameters."""
        rows, self.rows = self.rows, None
        assert rows is not None
        for one, place in zip(self.trained, self.find_places(self.place.rank), strict=True):
            one.parameter.grad = one.wrap(rows[place].view(one.local.shape))

    def stage(self, scale: float) -> torch.Tensor:
        """The gradients of a worker, scaled, rows of one owner after those of another; they are let go."""
        first = self.trained[0].parameter
        staged = torch.empty(sum(self.sizes), dtype=first.dtype, device=first.device)
        offset = 0
        gradients = [take_gradient(one) for one in self.trained]
        for rank in range(len(self.sizes)):
            for cut, gradient in zip(self.cuts, gradients, strict=True):
                rows, count = gradient[cut.find_rows(rank)], cut.count(rank)
                torch.mul(rows, scale, out=staged[offset : offset + count].view(rows.shape))
                offset += count
        return staged

    def find_places(self, rank: int) -> list[slice]:
        """Where each parameter's rows lie in a worker's part."""
        ends, places = 0, []
        for cut in self.cuts:
            places.append(slice(ends, ends + cut.count(rank)))
            ends += cut.count(rank)
        return places


def take_gradient(one: ShardedParameter) -> torch.Tensor:
    """A worker's whole gradient of a parameter, which no longer has it."""
    unsharded = one.unsharded
    assert unsharded is not None and unsharded.grad is not None
    gradient, unsharded.grad = unsharded.grad, None
    return gradient


class ShardedGradients:
    """A sharded model's gradients, from the turns of this process's logical workers to the reduced rows."""

    def __init__(self, model: torch.nn.Module, sharding: ModelSharding, find_unused: bool) -> None:
        refuse_modules(model)
        if find_unused:
            raise JobError("find_unused_parameters=True is not for sharded models; use every parameter in the loss")
        self.root: Any = model
        self.groups = [TrainedGroup(group) for group in sharding.groups]
        by_id = {id(one.parameter): one for group in self.groups for one in group.trained}
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self.parameters:
            refuse_untrained(model)
        self.sharded = [by_id[id(parameter)] for parameter in self.parameters]
        self.numbers = {id(one): index for index, one in enumerate(self.sharded)}
        self.outlines = [torch.empty(one.shape, dtype=one.dtype, device="meta") for one in self.parameters]
        self.layout = buckets.first_layout(self.outlines, False)
        self.rebuilt = False
        self.orders: list[list[FoldOrder]] = []
        self.works: list[Sending] = []
        self.watched: set[int] = set()
        self.worker: int | None = None
        self.guarding = self.holding = self.held = False
        #: What the turn has done so far, and what the first turn of the walk did.
        self.doing: list[Exchange] = []
        self.script: list[Exchange] = []
        self.order: list[int] = []
        self.ready_order: list[int] = []
        for number, group in enumerate(self.groups):
            group.group.module.set_custom_all_gather(GroupGather(self, number))  # type: ignore[arg-type]
            group.group.module.register_forward_pre_hook(partial(self.watch, number))  # type: ignore[attr-defined]

    # A place among processes.

    def configure(self, place: Place) -> None:
        """Take a place in a roster."""
        self.place = place
        self.local = place.local
        self.scale = 1.0 / place.roster.logical_workers
        self.watched.clear()
        for group in self.groups:
            group.configure(place)
        self.plan()

    def adopt_layout(self, indices: Sequence[Sequence[int]], rebuilt: bool) -> None:
        """Follow a layout that was recorded earlier."""
        self.use_layout(buckets.place(indices, self.outlines), rebuilt)

    def use_layout(self, layout: BucketLayout, rebuilt: bool) -> None:
        """Add in the order of these buckets from now on."""
        self.layout, self.rebuilt = layout, rebuilt
        self.plan()

    def plan(self) -> None:
        """Find the orders in which this process's rows are added: those of the buckets that DDP would have."""
        starts = find_starts(self.layout, self.outlines)
        self.orders = [
            [self.find_order(one, cut, starts) for one, cut in zip(group.trained, group.cuts, strict=True)]
            for group in self.groups
        ]

    def find_order(self, one: ShardedParameter, cut: RowCut, starts: dict[int, tuple[int, int]]) -> FoldOrder:
        """The order in which this process's rows of a parameter are added."""
        workers, rank = self.place.roster.logical_workers, self.place.rank
        bucket, start = starts[self.numbers[id(one)]]
        elements = self.layout.buckets[bucket].elements
        chunks = gloo_order.cut_chunks(elements, one.parameter.dtype.itemsize, workers)
        return FoldOrder(chunks, start + cut.find_rows(rank).start * cut.width)

    # A worker's turn.

    def begin_turn(self, worker: int) -> None:
        """Start a worker's turn."""
        if any(parameter.grad is not None for parameter in self.parameters):
            raise JobError(
                "a step began with gradients of the one before; a sharded model's gradients are not added up over "
                "steps: call optimizer.zero_grad() after optimizer.step(), and use accumulate= for larger batches"
            )
        self.worker = worker
        self.doing, self.order = [], []
        for group in self.groups:
            group.missing = len(group.trained)
            if worker == self.local[0]:
                group.forget()

    def begin_batch(self, holding: bool) -> None:
        """Start one of a turn's mini-batches; gradients leave in the backward of the last one."""
        self.holding = holding

    def before_forward(self) -> None:
        """The model is called."""
        if self.order and torch.is_grad_enabled():
            raise JobError(
                "the model was called again in a turn after a backward; a sharded model has one backward per turn. Add "
                "the losses and call backward once, or pass accumulate= to run.prepare"
            )

    def after_forward(self) -> None:
        """The model was called."""

    def watch(self, number: int, module: Any, inputs: Any) -> None:
        """A group was gathered: hear of the gradients of its whole parameters, which are made once per mesh."""
        if number in self.watched:
            return
        self.watched.add(number)
        for one in self.groups[number].trained:
            assert one.unsharded is not None
            one.unsharded.register_post_accumulate_grad_hook(partial(self.arrive, number, self.numbers[id(one)]))

    def arrive(self, number: int, index: int, parameter: torch.Tensor) -> None:
        """A gradient is there; when all of its group are, they leave."""
        if self.worker is None:
            raise JobError(
                f"a backward brought a gradient of {self.sharded[index].name} outside `for ... in step:`, where it is "
                "no logical worker's; call backward inside that loop"
            )
        if self.holding:
            self.held = True
            return
        if index in self.order:
            raise JobError(
                f"a second backward in a turn brought another gradient of {self.sharded[index].name}; add the losses "
                "and call backward once, or pass accumulate= to run.prepare"
            )
        self.order.append(index)
        self.groups[number].missing -= 1
        if not self.groups[number].missing:
            self.send(number)

    def note(self, exchange: Exchange) -> None:
        """Remember what all processes do at once, in a turn."""
        if self.worker is not None:
            self.doing.append(exchange)

    def send(self, number: int) -> None:
        """Start sending a group's gradients to their owners."""
        assert self.worker is not None
        group, round_ = self.groups[number], self.local.index(self.worker)
        staged = group.stage(self.scale)
        if self.place.group is None:
            group.parts[self.worker] = staged
            self.fold_last(number, round_)
            return
        self.note(Exchange(False, number))
        self.exchange(number, round_, staged)

    def exchange(self, number: int, round_: int, staged: torch.Tensor | None) -> None:
        """Take part in a round for a group, with nothing to send where this process has no such worker."""
        group, members = self.groups[number], self.place.group
        assert members is not None
        mine = group.sizes[members.rank]
        sizes_in = [mine if count > round_ else 0 for count in self.place.roster.counts]
        inbox = group.make_room(round_)
        source, sizes_out = (inbox[:0], [0] * members.size) if staged is None else (staged, group.sizes)
        work = members.scatter_parts(inbox, sizes_in, source, sizes_out)
        self.works.append(Sending(work, source, number, round_))
        self.receive(MOST_UNDER_WAY)

    def receive(self, under_way: int) -> None:
        """Wait for what was sent first, until no more than so many are under way."""
        while len(self.works) > under_way:
            sent = self.works.pop(0)
            sent.work.wait()
            self.fold_last(sent.group, sent.round)

    def fold_last(self, number: int, round_: int) -> None:
        """Add a group's parts where its last round has come."""
        if round_ == max(self.place.roster.counts) - 1:
            self.groups[number].fold(self.orders[number])

    def end_turn(self) -> None:
        """End a worker's turn."""
        if self.held and not self.order:
            raise JobError(
                "gradients were held back by run.no_sync() to the end of a turn; leave the turn's last backward out of "
                "it, or pass accumulate= to run.prepare"
            )
        names = [one.name for index, one in enumerate(self.sharded) if index not in set(self.order)]
        if names and self.order:
            raise JobError(
                f"parameters without a gradient in logical worker {self.worker}: {', '.join(names[:5])}; use every "
                "parameter of a sharded model in the loss"
            )
        self.check_alike()
        self.held = False
        self.worker = None
        self.receive(0)

    def check_alike(self) -> None:
        """Refuse a turn that did not do what the first of the walk did: processes would wait for each other."""
        if self.worker == self.local[0]:
            self.script, self.ready_order = self.doing, self.order
        elif (self.doing, self.order) != (self.script, self.ready_order):
            raise JobError(
                f"the model's forward or backward differs between logical workers {self.local[0]} and {self.worker}; "
                "it must not depend on the rank or on chance"
            )

    # The end of all turns.

    def send_rest(self) -> None:
        """Take part in the turns of others."""
        for round_ in range(len(self.local), max(self.place.roster.counts)):
            self.attend(round_)

    def end_walk(self) -> None:
        """Hand the sums to the parameters."""
        if not self.ready_order:
            return
        for group in self.groups:
            if group.trained:
                group.hand_over()
        if not self.rebuilt:
            self.rebuild()

    def attend(self, round_: int) -> None:
        """Go through a turn of others."""
        for exchange in self.script:
            if exchange.gathers:
                self.attend_gather(self.groups[exchange.group].group)
            else:
                self.exchange(exchange.group, round_, None)
        self.receive(0)

    def attend_gather(self, group: ShardedGroup) -> None:
        """Give others this process's rows of a group."""
        assert self.place.group is not None
        source = torch.cat([one.padded for one in group.parameters])
        self.place.group.gather_into(source.new_empty(source.numel() * self.place.group.size), source).wait()

    def rebuild(self) -> None:
        """After the first reduction: change to the buckets DDP would rebuild, by rank 0's order of readiness."""
        order = self.ready_order
        if self.place.group is not None:
            order = self.place.group.share(order, 0, self.parameters[0].device)
        if order != self.ready_order:
            raise JobError(
                f"the model's forward differs between logical worker 0 and {self.local[0]} in their first step: "
                "gradients became ready in another order; the forward must not depend on the rank or on chance"
            )
        self.use_layout(buckets.rebuilt_layout(self.outlines, order), True)

    def abandon(self) -> None:
        """Leave a walk that will not be finished."""
        self.worker = None
        self.held = self.holding = False
        self.root.reset_iter_state()


def find_starts(layout: BucketLayout, outlines: Sequence[torch.Tensor]) -> dict[int, tuple[int, int]]:
    """The bucket of each parameter, and the element at which it begins there."""
    starts: dict[int, tuple[int, int]] = {}
    for number, bucket in enumerate(layout.buckets):
        offset = 0
        for index in bucket.parameters:
            starts[index] = number, offset
            offset += outlines[index].numel()
    return starts
