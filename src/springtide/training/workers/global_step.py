"""One global step as this process sees it: its logical workers take turns, then the gradients are reduced once.

Owns the gradient buffers, the bucket layout and the reduction. Random state and module buffers of a turn are in
`workers`, data in `loaders`, agreement between processes in `agreement`.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch

from springtide.errors import JobError
from springtide.training.group.groups import Group
from springtide.training.group.rosters import Roster
from springtide.training.reduction import buckets
from springtide.training.reduction.buckets import BucketLayout
from springtide.training.reduction.gradients import (
    FlatGradients,
    Overlap,
    Readiness,
    refuse_modules,
    trained_parameters,
)
from springtide.training.reduction.reduction import Reduction, make_reduction
from springtide.training.workers.contexts import Contexts
from springtide.training.workers.once_per_step import call_on_backward, is_accumulating


class Turns:
    """The turns of this process's logical workers within a global step."""

    def __init__(self, model: torch.nn.Module, contexts: Contexts, find_unused: bool) -> None:
        refuse_modules(model)
        self.contexts = contexts
        self.parameters = trained_parameters(model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.names = [names[id(parameter)] for parameter in self.parameters]
        self.find_unused = find_unused
        self.layout: BucketLayout = buckets.first_layout(self.parameters, find_unused)
        self.rebuilt = find_unused
        self.readiness = None if find_unused else Readiness(self.parameters)
        self.ready_order: list[int] = []
        self.flats: dict[int, FlatGradients] = {}
        self.overlap: Overlap | None = None
        self.missing: list[int] = []
        self.unused = [0] * len(self.parameters)
        self.carry: list[torch.Tensor | None] | None = None
        self.carry_cloned = False
        self.worker: int | None = None
        self.micro, self.accumulate = 0, 1
        self.began_backward = False
        self.awaiting_end = False
        self.syncing = False
        self.staged = False
        model.register_forward_hook(self.after_forward)

    def configure(self, roster: Roster, rank: int, group: Group | None, backend: str) -> None:
        """Take a place in a roster: buffers for its logical workers, and a reduction over its processes."""
        self.roster = roster
        self.group = group
        self.backend = backend
        self.local = list(roster.workers_of(rank))
        self.scale = 1.0 / roster.logical_workers
        spare = [flat for worker, flat in self.flats.items() if worker not in self.local]
        kept = {worker: flat for worker, flat in self.flats.items() if worker in self.local}
        for worker in self.local:
            if worker not in kept:
                kept[worker] = spare.pop() if spare else FlatGradients(self.parameters)
        self.flats = {worker: kept[worker] for worker in self.local}
        self.arrange()

    def arrange(self) -> None:
        """Cut the buffers by the present layout and plan the reduction over it."""
        for flat in self.flats.values():
            flat.arrange(self.layout)
        self.reduction: Reduction = make_reduction(self.layout, self.flats, self.roster, self.group, self.backend)
        if self.overlap is not None:
            self.overlap.remove()
        self.overlap = None if self.group is None else Overlap(self.parameters, self.layout, self.send)

    def adopt_layout(self, indices: Sequence[Sequence[int]], rebuilt: bool) -> None:
        """Follow a layout that was recorded earlier, before any step is taken with another."""
        self.layout = buckets.place(indices, self.parameters)
        self.rebuilt = rebuilt
        if rebuilt and self.readiness is not None:
            self.readiness.remove()
            self.readiness = None
        self.arrange()

    @property
    def acting(self) -> bool:
        """Whether optimizers act now: outside any turn, or at the end of the last local worker's."""
        return self.worker is None or (self.syncing and self.worker == self.local[-1])

    @property
    def accumulating(self) -> bool:
        """Whether the worker whose turn it is has gradients that wait for more mini-batches."""
        return self.worker is not None and is_accumulating(self.micro, self.began_backward, self.accumulate)

    def begin(self, worker: int) -> None:
        """Start a worker's turn, with the gradients every rank would have had at this point."""
        if worker == self.local[0]:
            present = any(parameter.grad is not None for parameter in self.parameters)
            self.carry = [parameter.grad for parameter in self.parameters] if present else None
            self.carry_cloned = False
        elif self.carry is not None:
            self.place_carry(self.carry)
        self.worker = worker
        self.staged = False
        self.syncing = False

    def begin_batch(self, micro: int, accumulate: int) -> None:
        """Start one of a turn's mini-batches; after the backward of the last one DDP would reduce."""
        self.micro, self.accumulate = micro, accumulate
        self.began_backward = False
        self.awaiting_end = False
        self.syncing = micro == accumulate - 1
        if not self.syncing:
            return
        if self.readiness is not None:
            self.readiness.pop_order()
        if self.overlap is not None and self.worker == self.local[-1]:
            self.overlap.arm()

    def after_forward(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        """Keep gradients carried over from the last step, if still there, and listen for the end of the backward."""
        if self.worker is None or not torch.is_grad_enabled():
            return
        if self.carry is not None and not self.carry_cloned:
            self.keep_carry()
        call_on_backward(output, self.on_backward)

    def keep_carry(self) -> None:
        """Clone gradients that the user has not cleared, or forget them if they were cleared by now."""
        self.carry_cloned = True
        if all(parameter.grad is None for parameter in self.parameters):
            self.carry = None
            return
        self.carry = [None if parameter.grad is None else parameter.grad.clone() for parameter in self.parameters]
        self.place_carry(self.carry)

    def place_carry(self, carry: Sequence[torch.Tensor | None]) -> None:
        """Start a worker from carried gradients, in memory of its own."""
        for parameter, gradient in zip(self.parameters, carry, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()

    def on_backward(self, gradient: torch.Tensor) -> None:
        """Ask autograd to call back when the whole backward has ended."""
        self.began_backward = True
        if not self.awaiting_end:  # a model that ran twice in a step is come to twice in one backward
            self.awaiting_end = True
            torch.autograd.Variable._execution_engine.queue_callback(self.end_backward)

    def end_backward(self) -> None:
        """Stage the turn's gradients if this was its last backward."""
        self.awaiting_end = False
        if self.worker is not None and self.syncing:
            self.stage()

    def stage(self) -> None:
        """Move the worker's gradients into its buffer and send them; after the last local worker, reduce."""
        if self.worker is None:
            return
        if self.staged:
            raise JobError(
                "a second backward in one step: DDP would reduce after each; add the losses and call backward once, "
                "or pass accumulate= to run.prepare"
            )
        self.staged = True
        left = self.overlap.disarm() if self.overlap is not None else 0
        for number in range(left, len(self.layout.buckets)):
            self.send(number)
        self.check_gradients(self.worker)
        if self.worker == self.local[-1]:
            self.reduce()

    def send(self, number: int) -> None:
        """Stage one bucket of the worker whose turn it is, and start its exchange."""
        assert self.worker is not None
        self.missing += self.flats[self.worker].store(self.layout.buckets[number].parameters, self.scale)
        self.reduction.launch(self.worker, number)

    def check_gradients(self, worker: int) -> None:
        """Refuse missing gradients as DDP does, and a forward that differs between logical workers."""
        missing, self.missing = self.missing, []
        for index in missing:
            self.unused[index] += 1
        if missing and not self.find_unused:
            names = [self.names[index] for index in sorted(missing)]
            raise JobError(
                f"parameters without a gradient in logical worker {worker}: {', '.join(names[:5])}"
                f"{' and more' if len(names) > 5 else ''}; use them in the loss, or pass find_unused_parameters=True "
                "to run.prepare"
            )
        if self.readiness is not None:
            self.check_order(worker, self.readiness.pop_order())

    def check_order(self, worker: int, order: list[int]) -> None:
        """Refuse a backward whose gradients come in another order than the first local worker's."""
        if worker == self.local[0]:
            self.ready_order = order
        elif order != self.ready_order:
            pairs = enumerate(zip_longest(order, self.ready_order))
            place, (found, expected) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
            raise JobError(
                f"the model's forward differs between logical workers {self.local[0]} and {worker} in their first "
                f"step: gradient number {place} is {self.name(found)} instead of {self.name(expected)}; the forward "
                "must not depend on the rank or on chance"
            )

    def name(self, index: int | None) -> str:
        """A parameter's name, for errors."""
        return "none" if index is None else self.names[index]

    def reduce(self) -> None:
        """Sum over all logical workers and hand the result to the parameters."""
        self.reduction.finish()
        result = self.flats[self.local[0]].views
        for parameter, view in zip(self.parameters, result, strict=True):
            parameter.grad = view
        if self.find_unused:
            self.drop_unused()

    def drop_unused(self) -> None:
        """Leave alone the gradients of parameters that no logical worker used, as DDP does."""
        counts = torch.tensor(self.unused, dtype=torch.int32, device=self.parameters[0].device)
        if self.group is not None:
            self.group.all_reduce(counts).wait()
        for index, count in enumerate(counts.tolist()):
            if count == self.roster.logical_workers:
                self.parameters[index].grad = None if self.carry is None else self.carry[index]
        self.unused = [0] * len(self.parameters)

    def end(self) -> None:
        """End a worker's turn; a turn whose backward was not noticed is staged now."""
        if self.worker is not None and not self.staged:
            self.stage()
        self.worker = None

    def abandon(self) -> None:
        """Leave a step that will not be finished: the loop was left in its middle."""
        self.worker = None
        self.staged = False
        if self.overlap is not None:
            self.overlap.disarm()

    def ensure_reduced(self) -> None:
        """Make sure the parameters hold the reduced gradients, before an optimizer or a norm reads them."""
        if self.worker is not None and not self.staged:
            self.stage()

    def rebuild(self) -> None:
        """After the first step: change to the buckets DDP would rebuild, by rank 0's order of readiness."""
        if self.rebuilt:
            return
        order = self.ready_order
        if self.group is not None:
            order = self.group.share(order, 0, self.parameters[0].device)
        if order != self.ready_order:
            raise JobError(
                f"the model's forward differs between logical worker 0 and {self.local[0]} in their first step: "
                "gradients became ready in another order; the forward must not depend on the rank or on chance"
            )
        self.adopt_layout(buckets.rebuilt_layout(self.parameters, order).indices, rebuilt=True)
