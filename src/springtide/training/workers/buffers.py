"""A model's buffers while logical workers take turns: each starts from rank 0's, as DDP broadcasts them.

The model keeps its own tensors, so that it can be saved and copied at any time; what is exchanged lies in flat tensors
beside them. Outside turns a model has rank 0's buffers on every process, and what is written there stays.
"""

import time
from collections.abc import Sequence

import torch

from springtide.errors import JobError
from springtide.training.group.groups import Group, PendingWork

ALIGNMENT = 16
WORD_BYTES = 8


class FlatBuffers:
    """Values of all buffers of a model as one run of bytes, with a view per buffer, and room for a word behind them."""

    def __init__(self, tensors: Sequence[torch.Tensor], device: torch.device, word_size: int = 0) -> None:
        sizes = [-(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT for tensor in tensors]
        self.whole = torch.zeros(sum(sizes) + word_size * WORD_BYTES, dtype=torch.uint8, device=device)
        self.flat = self.whole[: sum(sizes)]
        self.word = self.whole[sum(sizes) :].view(torch.int64)
        self.views = []
        offset = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            part = self.flat[offset : offset + tensor.numel() * tensor.element_size()]
            self.views.append(part.view(tensor.dtype).view(tensor.shape))
            offset += size


class Buffers:
    """The buffers of one model."""

    def __init__(self, model: torch.nn.Module, broadcasting: bool, word_size: int = 0) -> None:
        found = [
            (module, key, buffer)
            for module in model.modules()
            for key, buffer in module._buffers.items()
            if buffer is not None
        ]
        self.owners = found
        # As .data, of which autograd counts no versions, as DDP: a graph may have saved what is broadcast over.
        self.distinct = list({id(buffer): buffer for _, _, buffer in found}.values())
        self.live = [buffer.data for buffer in self.distinct]
        self.pointers = [buffer.data_ptr() for buffer in self.distinct]
        self.broadcasting = broadcasting
        #: Rank 0's at the start of a walk, what its turn has made of them, and a place for others.
        device = self.live[0].device if self.live else find_device(model)
        self.agreed, self.scratch = FlatBuffers(self.live, device), FlatBuffers(self.live, device)
        self.coming = FlatBuffers(self.live, device, word_size)
        self.take(self.coming)
        #: What rank 0 had before each further forward of its turn.
        self.between: list[torch.Tensor] = []
        #: Every local worker's own, where DDP is told not to broadcast.
        self.kept: dict[int, torch.Tensor] = {}
        self.forwards = 0
        #: Seconds that the turns of this walk have waited for others.
        self.waited_s = 0.0
        self.syncing = True
        self.sharing: PendingWork | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the model has none."""
        return not self.live

    def take(self, place: FlatBuffers) -> None:
        """Copy the model's buffers into a flat place."""
        self.gather()
        copy_each(place.views, self.live)

    def put(self, place: FlatBuffers) -> None:
        """Give the model the buffers of a flat place."""
        self.gather()
        copy_each(self.live, place.views)

    def gather(self) -> None:
        """Bring buffers that a module has replaced (self.count = self.count + 1) back to where they were.

        Where one has other memory (`buffer.data = ...`, as where averages are swapped in), that is its memory from now
        on: the old may be another's by now.
        """
        for module, key, expected in self.owners:
            if module._buffers[key] is not expected:
                bring_back(module, key, expected)
        for place, (buffer, pointer) in enumerate(zip(self.distinct, self.pointers, strict=True)):
            if buffer.data_ptr() != pointer:
                self.live[place] = follow(self.live[place], buffer, self.find_title(buffer))
                self.pointers[place] = buffer.data_ptr()

    def find_title(self, buffer: torch.Tensor) -> str:
        """What a buffer is called in the module that has it."""
        return next(f"{key!r} of {type(module).__name__}" for module, key, one in self.owners if one is buffer)

    # A walk.

    def begin_walk(self, workers: Sequence[int]) -> None:
        """Take what the model has now, whoever wrote it, for rank 0's."""
        if self.is_empty:
            return
        self.follow_writes(workers)
        self.take(self.agreed)
        self.between.clear()
        self.waited_s = 0.0

    def follow_writes(self, workers: Sequence[int]) -> None:
        """Where every worker has its own: what was written outside turns is written to all of them.

        Before a walk, and before what they have is saved or changes hands: there it would look like rank 0's alone.
        """
        if self.is_empty or self.broadcasting:
            return
        self.gather()
        written = [differ(live, before) for live, before in zip(self.live, self.coming.views, strict=True)]
        for worker in workers:
            self.scratch.flat.copy_(self.kept.get(worker, self.coming.flat))
            for view, live, is_new in zip(self.scratch.views, self.live, written, strict=True):
                if is_new:
                    view.copy_(live)
            self.kept[worker] = self.scratch.flat.clone()

    def begin_turn(self, worker: int, is_first: bool) -> None:
        """Give the model the buffers this worker starts its turn with."""
        self.forwards = 0
        self.syncing = True
        if self.is_empty:
            return
        if not self.broadcasting:
            self.scratch.flat.copy_(self.kept[worker])
            self.put(self.scratch)
        elif not is_first:
            self.put(self.agreed)

    def before_forward(self, is_first: bool, group: Group | None) -> None:
        """Before each further forward of a turn: rank 0's buffers as they are there by then."""
        if self.is_empty or not self.broadcasting or not self.syncing:
            return
        place, self.forwards = self.forwards, self.forwards + 1
        if place == 0:
            return
        if is_first:
            self.take(self.scratch)
            if group is not None:
                began_s = time.monotonic()
                group.broadcast(self.scratch.flat, 0).wait()
                self.waited_s += time.monotonic() - began_s
            self.between.append(self.scratch.flat.clone())
        self.scratch.flat.copy_(self.between[place - 1])
        self.put(self.scratch)

    def after_forward(self, holding: bool) -> None:
        """DDP broadcasts before a forward if the one before was to be reduced."""
        self.syncing = torch.is_grad_enabled() and not holding

    def end_turn(self, worker: int) -> None:
        """Keep what rank 0's turn has made of the buffers, or every worker's where each has its own."""
        if self.is_empty:
            return
        if not self.broadcasting:
            self.take(self.scratch)
            self.kept[worker] = self.scratch.flat.clone()
        if worker == 0:
            self.take(self.coming)

    def share(self, group: Group | None) -> None:
        """Start sending rank 0's buffers, and the word that is with them, to every process."""
        if group is not None and self.coming.whole.numel():
            self.sharing = group.broadcast(self.coming.whole, 0)

    def receive(self) -> None:
        """Wait for what is shared."""
        if self.sharing is not None:
            self.sharing.wait()
            self.sharing = None

    def end_walk(self, workers: Sequence[int]) -> None:
        """Give the model rank 0's buffers on every process."""
        if not self.is_empty and list(workers) != [0]:
            self.put(self.coming)

    def abandon(self) -> None:
        """Leave a walk in its middle: the model has what rank 0 began it with."""
        if not self.is_empty:
            self.put(self.agreed)


def find_device(model: torch.nn.Module) -> torch.device:
    """The device of the model's parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one type and shape have other bits: NaN is NaN, and -0.0 is not 0.0."""
    return bool((view_bytes(one) != view_bytes(other)).any())


def view_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes in the order of its elements."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def copy_each(places: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Copy each value to its place."""
    for place, value in zip(places, values, strict=True):
        place.copy_(value)


def follow(before: torch.Tensor, buffer: torch.Tensor, title: str) -> torch.Tensor:
    """The memory that a buffer was given in place of another: of the same form, for it is exchanged as that was."""
    if (buffer.shape, buffer.dtype, buffer.device) != (before.shape, before.dtype, before.device):
        raise JobError(
            f"buffer {title} was given other .data: {buffer.dtype}, shape {tuple(buffer.shape)}, on {buffer.device} "
            f"in place of {before.dtype}, shape {tuple(before.shape)}, on {before.device}; a buffer must keep its "
            "form, so that every logical worker can have its own"
        )
    return buffer.data


def bring_back(module: torch.nn.Module, key: str, expected: torch.Tensor) -> None:
    """Copy one replaced buffer's values into the tensor that was there, and put that back into the module."""
    found = module._buffers[key]
    if found is None or found.shape != expected.shape:
        shape = None if found is None else tuple(found.shape)
        raise JobError(
            f"buffer {key!r} of {type(module).__name__} changed to shape {shape}; a buffer must keep its "
            "shape, so that every logical worker can have its own"
        )
    with torch.no_grad():
        expected.copy_(found)
    module._buffers[key] = expected
