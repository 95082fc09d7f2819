"""The gradients of a sharded model within a global step: each worker's rows sent to their owners as they come.

When all gradients of a group of parameters have come, they leave for their owners and are let go. Owners keep a part
per logical worker and add them, when all turns have ended, in the order in which DDP on N ranks would. In a turn
modules are gathered too, by all processes at once: a process that has fewer logical workers than others goes through
the same exchanges without one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from springtide.errors import JobError
from springtide.training.reduction import buckets, gloo_order
from springtide.training.reduction.buckets import BucketLayout
from springtide.training.reduction.gradients import refuse_modules
from springtide.training.reduction.reduction import BLOCK_ELEMENTS, Fold, plan_folds
from springtide.training.sharding.model_sharding import ModelSharding
from springtide.training.sharding.sharded_parameters import RowCut, ShardedGroup, ShardedParameter, cut_rows
from springtide.training.workers.model_gradients import Place

MOST_UNDER_WAY = 2


class Exchange(NamedTuple):
    """What all processes do at once in a turn: gather a group's parameters, or send its gradients."""

    gathers: bool
    group: int


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
        self.parts: dict[int, torch.Tensor] = {}
        self.inboxes: list[torch.Tensor] = []

    def configure(self, place: Place) -> None:
        """Make room for every worker's part, by rounds of senders."""
        size = len(place.roster.names)
        self.cuts: list[RowCut] = [cut_rows(one.parameter.shape, size) for one in self.trained]
        #: Elements that each process owns.
        self.sizes = [sum(cut.count(rank) for cut in self.cuts) for rank in range(size)]
        mine, counts = self.sizes[place.rank], place.roster.counts
        self.inboxes, self.parts = [], {}
        if not self.trained:
            return
        first = self.trained[0].parameter
        for round_ in range(max(counts)):
            senders = [rank for rank, count in enumerate(counts) if count > round_]
            inbox = torch.empty(len(senders) * mine, dtype=first.dtype, device=first.device)
            self.inboxes.append(inbox)
            for number, rank in enumerate(senders):
                self.parts[place.roster.workers_of(rank)[round_]] = inbox[number * mine : (number + 1) * mine]

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
            raise JobError("the model has no parameter that requires a gradient; there is nothing to train")
        self.sharded = [by_id[id(parameter)] for parameter in self.parameters]
        self.numbers = {id(one): index for index, one in enumerate(self.sharded)}
        self.outlines = [torch.empty(one.shape, dtype=one.dtype, device="meta") for one in self.parameters]
        self.layout = buckets.first_layout(self.outlines, False)
        self.rebuilt = False
        self.folds: list[Fold] = []
        self.works: list[tuple[Any, torch.Tensor]] = []
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
        """Lay out the folds of this process's rows, in the order of the buckets that DDP would have."""
        workers, rank = self.place.roster.logical_workers, self.place.rank
        starts = find_starts(self.layout, self.outlines)
        self.folds = []
        for group in self.groups:
            for one, cut, place in zip(group.trained, group.cuts, group.find_places(rank), strict=True):
                bucket, start = starts[self.numbers[id(one)]]
                elements = self.layout.buckets[bucket].elements
                chunks = gloo_order.cut_chunks(elements, one.parameter.dtype.itemsize, workers)
                sources = {worker: part[place] for worker, part in group.parts.items()}
                target = sources[self.local[0]]
                scratch = target.new_empty(min(target.numel(), BLOCK_ELEMENTS))
                first = start + cut.find_rows(rank).start * cut.width
                self.folds += plan_folds(chunks, first, sources, target, scratch)

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
        group = self.groups[number]
        staged = group.stage(self.scale)
        if self.place.group is None:
            group.parts[self.worker].copy_(staged)
            return
        self.note(Exchange(False, number))
        self.exchange(number, self.local.index(self.worker), staged)

    def exchange(self, number: int, round_: int, staged: torch.Tensor | None) -> None:
        """Take part in a round for a group, with nothing to send where this process has no such worker."""
        group, members = self.groups[number], self.place.group
        assert members is not None
        mine = group.sizes[members.rank]
        sizes_in = [mine if count > round_ else 0 for count in self.place.roster.counts]
        inbox = group.inboxes[round_]
        source, sizes_out = (inbox[:0], [0] * members.size) if staged is None else (staged, group.sizes)
        self.works.append((members.scatter_parts(inbox, sizes_in, source, sizes_out), source))
        if len(self.works) > MOST_UNDER_WAY:  # what is sent is in memory until it has arrived
            self.works.pop(0)[0].wait()

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
        self.wait()

    def check_alike(self) -> None:
        """Refuse a turn that did not do what the first of the walk did: processes would wait for each other."""
        if self.worker == self.local[0]:
            self.script, self.ready_order = self.doing, self.order
        elif (self.doing, self.order) != (self.script, self.ready_order):
            raise JobError(
                f"the model's forward or backward differs between logical workers {self.local[0]} and {self.worker}; "
                "it must not depend on the rank or on chance"
            )

    def wait(self) -> None:
        """Wait for what was sent."""
        for work, _ in self.works:
            work.wait()
        self.works.clear()

    # The end of all turns.

    def end_walk(self) -> None:
        """Take part in the turns of others, add, and hand the sums to the parameters."""
        for round_ in range(len(self.local), max(self.place.roster.counts)):
            self.attend(round_)
        self.wait()
        if not self.ready_order:
            return
        for fold in self.folds:
            fold.run()
        for group in self.groups:
            part = group.parts[self.local[0]] if group.trained else None
            for one, place in zip(group.trained, group.find_places(self.place.rank), strict=True):
                assert part is not None
                one.parameter.grad = one.wrap(part[place].view(one.local.shape))
        if not self.rebuilt:
            self.rebuild()

    def attend(self, round_: int) -> None:
        """Go through a turn of others."""
        for exchange in self.script:
            if exchange.gathers:
                self.attend_gather(self.groups[exchange.group].group)
            else:
                self.exchange(exchange.group, round_, None)
        self.wait()

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
        # The sums lie in these parts, which stay as they are: only the order of the next folds changes.
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
