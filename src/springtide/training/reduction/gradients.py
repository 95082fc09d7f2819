"""Gradients of each logical worker, staged in flat buffers in the layout DistributedDataParallel would use.

A worker's gradients are scaled by 1/N straight into its flat buffer when its backward ends (DDP multiplies, it does
not divide), and after the fold the parameters' .grad are views of the result. In which order gradients become ready is
watched here too; what is exchanged with other processes is in `reduction`.
"""

from collections.abc import Callable, Sequence
from functools import partial

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

    def arrange(self, layout: BucketLayout) -> None:
        """Cut the buffers into the views of a layout; what they held is lost."""
        views: dict[int, torch.Tensor] = {}
        self.spans = []
        for bucket in layout.buckets:
            flat = self.flats[bucket.dtype]
            self.spans.append(flat[bucket.offset : bucket.offset + bucket.elements])
            offset = bucket.offset
            for index in bucket.parameters:
                views[index] = view_like(self.parameters[index], flat, offset)
                offset += self.parameters[index].numel()
        self.views = [views[index] for index in range(len(self.parameters))]

    def store(self, indices: Sequence[int], scale: float) -> list[int]:
        """Scale the parameters' gradients into the buffer and take them away.

        Returns the parameters without a gradient, which count as zero.
        """
        missing = []
        for index in indices:
            parameter = self.parameters[index]
            gradient = parameter.grad
            if gradient is None:
                self.views[index].zero_()
                missing.append(index)
            else:
                torch.mul(gradient, scale, out=self.views[index])
                parameter.grad = None
        return missing


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


def trained_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters DDP would reduce, in its order: those that require a gradient, each once."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise JobError("the model has no parameter that requires a gradient; there is nothing to train")
    devices = {parameter.device for parameter in parameters}
    if len(devices) > 1:
        raise JobError(f"the model's parameters are on several devices ({sorted(map(str, devices))}); use one")
    return parameters


def refuse_modules(model: torch.nn.Module) -> None:
    """Refuse sparse gradients, whose reduction has no order to reproduce, and statistics over all ranks at once."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise JobError(
                f"module {name!r} is SyncBatchNorm, which needs the batches of all logical workers at once, but they "
                "take turns; use BatchNorm, whose statistics are each worker's own"
            )
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
            raise NondeterminismError(
                f"module {name!r} has sparse gradients; their reduction has no fixed order, so pass sparse=False"
            )


class Readiness:
    """The order in which a worker's gradients became ready, written down by hooks in the first step.

    DDP orders its rebuilt buckets by rank 0's; the other workers' must be the same, or their forward differs.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.order: list[int] = []
        self.handles = [
            parameter.register_post_accumulate_grad_hook(partial(self.add, index))
            for index, parameter in enumerate(parameters)
        ]

    def add(self, index: int, parameter: torch.Tensor) -> None:
        """This parameter's gradient is ready."""
        self.order.append(index)

    def pop_order(self) -> list[int]:
        """The order seen since the last call, each parameter once."""
        order = list(dict.fromkeys(self.order))
        self.order.clear()
        return order

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()


class Overlap:
    """Reduction during the backward: counts ready gradients, and calls `leave(bucket)` for each full one in its turn.

    Only for the last local worker of a step, and only with several processes; else there is nothing to overlap with.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], layout: BucketLayout, leave: Callable[[int], None]
    ) -> None:
        self.leave = leave
        self.sizes = [len(bucket.parameters) for bucket in layout.buckets]
        bucket_of = {index: number for number, bucket in enumerate(layout.buckets) for index in bucket.parameters}
        self.missing: list[int] = []
        self.next = 0
        self.armed = False
        self.handles = [
            parameter.register_post_accumulate_grad_hook(partial(self.count, bucket_of[index]))
            for index, parameter in enumerate(parameters)
        ]

    def count(self, bucket: int, parameter: torch.Tensor) -> None:
        """A gradient of this bucket is ready."""
        if self.armed:
            self.missing[bucket] -= 1
            self.advance()

    def arm(self) -> None:
        """Count the gradients of the backward that comes."""
        self.missing = list(self.sizes)
        self.next = 0
        self.armed = True

    def advance(self) -> None:
        """Let every full bucket leave, in order."""
        # In bucket order whatever becomes ready first: peers match collectives by their sequence.
        while self.next < len(self.missing) and self.missing[self.next] <= 0:
            self.next += 1
            self.leave(self.next - 1)

    def disarm(self) -> int:
        """Stop counting, and return how many buckets have left."""
        left, self.next = self.next, 0
        self.armed = False
        return left

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()
