"""Gradients of each logical worker, staged in flat buffers in the layout DistributedDataParallel would use.

A worker's gradients are scaled by 1/N straight into its flat buffer (DDP multiplies, it does not divide), and after the
fold the parameters' .grad are copies of the result. Which gradients a backward brings, and in which order, is watched
here too; what is exchanged with other processes is in `reduction`.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, Protocol

import torch

from springtide.errors import JobError, NondeterminismError
from springtide.training.reduction.buckets import BucketLayout


class FlatGradients:
    """One worker's flat gradient buffer per data type, with a view per parameter and per bucket."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters = parameters
        totals: dict[torch.dtype, int] = {}
        for parameter in parameters:
            totals[parameter.dtype] = totals.get(parameter.dtype, 0) + parameter.numel()
        device = parameters[0].device
        self.flats = {dtype: torch.empty(total, dtype=dtype, device=device) for dtype, total in totals.items()}
        self.views: list[torch.Tensor] = []
        self.spans: list[torch.Tensor] = []
        #: Per bucket, its parameters with their views.
        self.pairs: list[list[tuple[torch.Tensor, torch.Tensor]]] = []

    def arrange(self, layout: BucketLayout) -> None:
        """Cut the buffers into the views of a layout; what they held is lost."""
        views: dict[int, torch.Tensor] = {}
        self.spans = []
        for bucket in layout.buckets:
            flat = self.flats[bucket.dtype]
            self.spans.append(as_numbers(flat[bucket.offset : bucket.offset + bucket.elements]))
            offset = bucket.offset
            for index in bucket.parameters:
                views[index] = view_like(self.parameters[index], flat, offset)
                offset += self.parameters[index].numel()
        self.views = [views[index] for index in range(len(self.parameters))]
        self.pairs = [[(self.parameters[index], views[index]) for index in one.parameters] for one in layout.buckets]

    def store(self, bucket: int, scale: float) -> None:
        """Scale the gradients of a bucket's parameters into the buffer; one that is not there counts as zero."""
        for parameter, view in self.pairs[bucket]:
            gradient = parameter.grad
            if gradient is None:
                view.zero_()
            else:
                torch.mul(gradient, scale, out=view)

    def keep(self) -> None:
        """Copy all gradients into the buffer as they are."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            gradient = parameter.grad
            if gradient is None:
                view.zero_()
            else:
                view.copy_(gradient)


def as_numbers(flat: torch.Tensor) -> torch.Tensor:
    """A flat tensor's real numbers, without a copy."""
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat


def view_like(parameter: torch.Tensor, flat: torch.Tensor, offset: int) -> torch.Tensor:
    """The part of a flat buffer that holds a parameter's gradient, in the parameter's memory format."""
    part = flat[offset : offset + parameter.numel()]
    if parameter.is_contiguous() or not is_dense(parameter):
        return part.view(parameter.shape)
    return part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills its memory without gaps or overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def fill_own(
    sums: Sequence[torch.Tensor | None],
    made: Sequence[torch.Tensor | None],
    kept: Sequence[torch.Tensor | None],
    layout: BucketLayout,
) -> list[torch.Tensor | None]:
    """The sums in tensors of their own: those that autograd has `made` in a turn, as DDP does, or new ones.

    A script may keep one beyond its step, and where one begins in memory decides the bits of its dot products. What
    nobody has used is the tensor that was `kept`, untouched.
    """
    gradients, sources, targets = list(sums), [], []
    shared, are_views = find_shared(made)
    for index in (index for bucket in layout.buckets for index in bucket.parameters):
        total, own = sums[index], made[index] if made else None
        if total is None or total is kept[index]:
            continue
        # One that is shared a script has kept, or another tensor on its memory, as that worker's.
        if own is None or index in shared or own.stride() != total.stride() or own.dtype != total.dtype:
            gradients[index] = total.clone()
            continue
        gradients[index] = own
        sources.append(total)
        targets.append(own)
    if are_views:
        # Autograd has made gradients of several parameters as views of one tensor. Where they overlap the last copy is
        # what all of them have, in DDP's order, which _foreach_copy_ does not promise.
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
    elif targets:
        torch._foreach_copy_(targets, sources)
    return gradients


@dataclass(frozen=True, slots=True)
class MemoryLook:
    """A number for the memory that each of some tensors lies in, and for how many are on it.

    Counted are views, what .detach() or .numpy() gave, and the storage itself. Each of the tensors counts the others.
    """

    memories: list[int]
    sharers: list[int]


def find_shared(made: Sequence[torch.Tensor | None]) -> tuple[set[int], bool]:
    """Which of these tensors anybody else has, or another on their memory; and whether some lie in one memory."""
    holders = count_holders(made)
    places = [index for index, one in enumerate(made) if one is not None]
    look = look_at_memories([one for one in made if one is not None])
    tensors = Counter(look.memories)
    beside = [UNSHARED + (tensors[memory] - 1) * BESIDE for memory in look.memories]
    seen = zip(places, look.sharers, beside, strict=True)
    shared = {index for index, sharers, own in seen if holders[index] > ALONE or sharers > own}
    return shared, len(tensors) < len(places)


def count_holders(tensors: Sequence[torch.Tensor | None]) -> list[int]:
    """How many references Python has to each of these."""
    return list(map(sys.getrefcount, tensors))


def look_at_memories(tensors: Sequence[torch.Tensor]) -> MemoryLook:
    """Look at the memories that tensors lie in, all at once: one by one takes five times as long."""
    storages = [one.untyped_storage() for one in tensors]
    memories = [one._cdata for one in storages]
    if not COUNTS_SHARERS:
        return MemoryLook(memories, [sys.maxsize] * len(memories))
    counts = zip(map(torch._C._storage_Use_Count, memories), map(sys.getrefcount, storages), strict=True)
    return MemoryLook(memories, [tensors + references for tensors, references in counts])


#: Whether this torch says how many share a memory. If it does not, all count as shared, and gradients are new tensors.
COUNTS_SHARERS = hasattr(torch._C, "_storage_Use_Count")
#: What is counted where nobody but a list has a tensor; where it is alone on its memory; and for each one beside it.
_lone = torch.empty(1)
ALONE = count_holders([torch.empty(1)])[0]
UNSHARED = look_at_memories([_lone]).sharers[0] if COUNTS_SHARERS else 0
BESIDE = look_at_memories([_lone, _lone.detach()]).sharers[0] - UNSHARED


def trained_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters DDP would reduce, in its order: those that require a gradient, each once."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        refuse_untrained(model)
    devices = {parameter.device for parameter in parameters}
    if len(devices) > 1:
        raise JobError(f"the model's parameters are on several devices ({sorted(map(str, devices))}); use one")
    return parameters


def refuse_untrained(model: torch.nn.Module) -> NoReturn:
    """Refuse a module that DDP would not take either: a criterion with buffers only, a frozen teacher."""
    raise JobError(
        f"{type(model).__name__} was given to run.prepare and has no parameter that requires a gradient; there is "
        "nothing to train in it. If it is a criterion or a teacher, leave it out: name it in run.keep(...), so that a "
        "resume brings it back, and change its buffers after `for ... in step:`, by run.mean(...)"
    )


def refuse_modules(model: torch.nn.Module) -> None:
    """Refuse sparse gradients, whose reduction has no order, statistics over all ranks at once, and changing graphs."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise JobError(
                f"module {name!r} is SyncBatchNorm, which needs the batches of all logical workers at once, but they "
                "take turns; use BatchNorm, whose statistics are each worker's own"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise JobError(
                f"module {name!r} is one of torch.jit, whose first calls run other graphs than those after them, so "
                "that gradients come in another order in each worker; give the plain module, and use torch.compile"
            )
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
            raise NondeterminismError(
                f"module {name!r} has sparse gradients; their reduction has no fixed order, so pass sparse=False"
            )


class Receiver(Protocol):
    """Who the gradients that a backward brings are for."""

    @property
    def worker(self) -> int | None:
        """The logical worker whose turn it is."""

    @property
    def holding(self) -> bool:
        """Whether backwards are held back."""

    def turn_away(self, index: int, gradient: torch.Tensor | None) -> None:
        """A gradient came that is not to be reduced: refuse it, or leave it where it is."""


class Arrivals:
    """The gradients that a backward has brought so far, told by hooks on the parameters: whatever the loss was made of.

    A gradient is there when autograd has accumulated it. In `order` each parameter stands once, as it came; DDP orders
    its rebuilt buckets by rank 0's. `brought` has what came, and how often it had been written to by then.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], receiver: Receiver) -> None:
        self.receiver = receiver
        self.order: list[int] = []
        self.brought: list[tuple[torch.Tensor, int]] = []
        self.seen = bytearray(len(parameters))
        self.departures: Departures | None = None
        for index, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self.add, index))

    def add(self, index: int, parameter: torch.Tensor) -> None:
        """This parameter's gradient is there."""
        gradient, receiver = parameter.grad, self.receiver  # read once: as many come as there are parameters
        is_due = receiver.worker is not None and not receiver.holding and not self.seen[index]
        if gradient is None or gradient.requires_grad or not is_due:
            receiver.turn_away(index, gradient)
            return
        self.seen[index] = 1
        self.order.append(index)
        self.brought.append((gradient, gradient._version))
        if self.departures is not None:
            self.departures.count(index)

    def pop(self) -> list[int]:
        """The order seen since the last call."""
        order, self.order, self.brought = self.order, [], []
        self.seen = bytearray(len(self.seen))
        self.departures = None
        return order


class Departures:
    """Reduction during a backward: counts what has arrived, and lets each full bucket leave in its turn."""

    def __init__(self, layout: BucketLayout, leave: Callable[[int], None]) -> None:
        self.leave = leave
        self.sizes = [len(bucket.parameters) for bucket in layout.buckets]
        pairs = ((index, number) for number, bucket in enumerate(layout.buckets) for index in bucket.parameters)
        self.bucket_of = [number for _, number in sorted(pairs)]
        self.begin()

    def begin(self) -> "Departures":
        """Before a backward: nothing has arrived, and no bucket has left."""
        self.missing = list(self.sizes)
        self.left = 0
        return self

    def count(self, index: int) -> None:
        """This gradient has arrived."""
        self.missing[self.bucket_of[index]] -= 1
        # In bucket order whatever becomes ready first: peers match collectives by their sequence.
        while self.left < len(self.missing) and self.missing[self.left] <= 0:
            self.left += 1
            self.leave(self.left - 1)
