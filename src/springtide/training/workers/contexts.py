"""Logical workers: the context each one owns (random state, module buffers) and the switch from one to the next.

Parameters and optimizer are shared by all of a process's workers and are not handled here; gradients are staged in
`gradients`. Buffers follow DistributedDataParallel: at the start of a step every worker gets rank 0's.
"""

from collections.abc import Iterable
from typing import Any

import torch

from springtide.errors import JobError
from springtide.training.workers import randomness
from springtide.training.workers.randomness import RngState

HEADER_BYTES = 64


class Buffers:
    """A model's buffers as views of one flat byte tensor, so that a worker's set is one copy.

    `live` is what the model reads and writes. `agreed` is a header of HEADER_BYTES for the processes' agreement,
    followed by rank 0's buffers at the end of the last step: what DDP broadcasts before each forward. `coming` is
    what rank 0's turn in this step has made of them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        found = [
            (module, key, buffer)
            for module in model.modules()
            for key, buffer in module._buffers.items()
            if buffer is not None
        ]
        self.owners = [(module, key) for module, key, _ in found]
        self.expected = [buffer for _, _, buffer in found]
        tensors = list({id(buffer): buffer for buffer in self.expected}.values())
        sizes = [-(-buffer.numel() * buffer.element_size() // 16) * 16 for buffer in tensors]
        device = tensors[0].device if tensors else find_device(model)
        self.agreed = torch.zeros(HEADER_BYTES + sum(sizes), dtype=torch.uint8, device=device)
        self.live = torch.zeros_like(self.agreed)
        self.coming = torch.zeros_like(self.agreed)
        self.body = self.agreed[HEADER_BYTES:]
        self.header = self.agreed[:HEADER_BYTES].view(torch.int64)
        offset = HEADER_BYTES
        for buffer, size in zip(tensors, sizes, strict=True):
            move_into(buffer, self.live, offset)
            offset += size
        self.keep()
        self.agree()

    def keep(self) -> None:
        """Keep the live buffers as the coming ones: rank 0's turn has ended."""
        self.gather()
        self.coming.copy_(self.live)

    def agree(self) -> None:
        """Make the coming buffers the agreed ones: every worker's turn has ended."""
        self.body.copy_(self.coming[HEADER_BYTES:])

    def load(self) -> None:
        """Give the model the agreed buffers: what DDP's broadcast does before a forward."""
        self.gather()
        self.live[HEADER_BYTES:].copy_(self.body)

    def copy(self) -> torch.Tensor:
        """A copy of the live buffers."""
        self.gather()
        return self.live.clone()

    def restore(self, copy: torch.Tensor) -> None:
        """Make the live buffers equal to a copy that was taken."""
        self.gather()
        self.live.copy_(copy)

    def gather(self) -> None:
        """Bring buffers that a module has replaced (self.count = self.count + 1) back into the flat tensor."""
        for (module, key), expected in zip(self.owners, self.expected, strict=True):
            if module._buffers[key] is not expected:
                bring_back(module, key, expected)


def bring_back(module: torch.nn.Module, key: str, expected: torch.Tensor) -> None:
    """Copy one replaced buffer's values into its place, and put the place back into the module."""
    found = module._buffers[key]
    if found is None or found.shape != expected.shape:
        shape = None if found is None else tuple(found.shape)
        raise JobError(
            f"buffer {key!r} of {type(module).__name__} changed to shape {shape}; a buffer must keep its "
            "shape, so that every logical worker can have its own"
        )
    expected.copy_(found)
    module._buffers[key] = expected


def find_device(model: torch.nn.Module) -> torch.device:
    """The device of the model's parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def move_into(buffer: torch.Tensor, flat: torch.Tensor, offset: int) -> None:
    """Make a tensor a view of `flat` at a byte offset, keeping its values and its identity."""
    size = buffer.numel() * buffer.element_size()
    place = flat[offset : offset + size].view(buffer.dtype).view(buffer.shape)
    place.copy_(buffer)
    buffer.data = place


class Contexts:
    """The contexts of the logical workers that live in this process, and which of them is active.

    Outside the data loader none is active: the process's own `outside` state is, so that evaluation draws nothing
    from a worker.
    """

    def __init__(self, buffers: Buffers, broadcast_buffers: bool) -> None:
        self.buffers = buffers
        self.broadcast_buffers = broadcast_buffers
        self.states: dict[int, RngState] = {}
        self.kept: dict[int, torch.Tensor] = {}
        self.active: int | None = None
        self.outside: RngState | None = None

    def seed(self, workers: Iterable[int], seed: int) -> None:
        """Give each worker a fresh context, seeded with seed + rank as the reference run does."""
        before = randomness.capture()
        for worker in workers:
            randomness.seed_all(seed + worker)
            self.states[worker] = randomness.capture()
            self.kept[worker] = self.buffers.copy()
        randomness.restore(before)

    def enter(self, worker: int) -> None:
        """Switch to a worker's turn; no cost if it is active already."""
        if self.active == worker:
            return
        if self.active is None:
            self.outside = randomness.capture()
        else:
            self.leave_turn()
        randomness.restore(self.states[worker])
        self.active = worker

    def load_buffers(self, worker: int) -> None:
        """Give the model the buffers this worker starts its step with."""
        if self.broadcast_buffers:
            self.buffers.load()
        else:
            self.buffers.restore(self.kept[worker])

    def leave_turn(self) -> None:
        """Keep the active worker's random state."""
        if self.active is not None:
            self.states[self.active] = randomness.capture()

    def keep_buffers(self, worker: int) -> None:
        """Keep what a worker's step has made of the buffers: rank 0's will be the agreed ones."""
        if worker == 0:
            self.buffers.keep()
        if not self.broadcast_buffers:
            self.kept[worker] = self.buffers.copy()

    def exit(self) -> None:
        """End the active worker's turn and go back to the state outside the loader."""
        if self.active is None:
            return
        self.leave_turn()
        self.active = None
        self.buffers.load()
        if self.outside is not None:
            randomness.restore(self.outside)

    def to_plain(self, workers: Iterable[int]) -> dict[int, dict[str, Any]]:
        """The contexts of these workers as tensors and numbers."""
        return {
            worker: {"rng": randomness.to_plain(self.states[worker]), "buffers": self.kept.get(worker)}
            for worker in workers
        }

    def from_plain(self, contexts: dict[int, dict[str, Any]], workers: Iterable[int]) -> None:
        """Take over these workers from what `to_plain` wrote."""
        for worker in workers:
            self.states[worker] = randomness.from_plain(contexts[worker]["rng"])
            if contexts[worker]["buffers"] is not None:
                self.kept[worker] = contexts[worker]["buffers"]

    def forget(self, workers: Iterable[int]) -> None:
        """Drop every worker that is not among these."""
        keep = set(workers)
        self.states = {worker: state for worker, state in self.states.items() if worker in keep}
        self.kept = {worker: copy for worker, copy in self.kept.items() if worker in keep}
