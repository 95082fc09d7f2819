"""Logical workers: the context each one owns (random state, the user's state of it) and the switch between them.

Parameters and optimizer are shared by all of a process's workers and are not handled here; gradients are staged in
`model_gradients`, buffers in `buffers`. Between turns the process's own context is active, which is the same on every
process.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from springtide.training.state import state_tree
from springtide.training.workers import randomness
from springtide.training.workers.randomness import RngState


@dataclass(slots=True)
class LogicalWorker:
    """A logical worker as the script sees it in its turn: `step.worker`."""

    #: Its rank in the DDP run that is imitated.
    rank: int
    #: The user's own state of this worker, such as an RNN's hidden state: it is saved, resumed, and moves with the
    #: worker from process to process.
    state: dict[str, Any] = field(default_factory=dict)


class Contexts:
    """The contexts of the logical workers that live in this process, and which of them is active."""

    def __init__(self) -> None:
        self.states: dict[int, RngState] = {}
        self.workers: dict[int, LogicalWorker] = {}
        self.active: int | None = None
        self.outside: RngState | None = None

    def seed(self, workers: Iterable[int], seed: int) -> None:
        """Give each worker a fresh context, seeded with seed + rank as the reference run does."""
        before = randomness.capture()
        for worker in workers:
            randomness.seed_all(seed + worker)
            self.states[worker] = randomness.capture()
            self.workers[worker] = LogicalWorker(worker)
        randomness.restore(before)

    def enter(self, worker: int) -> None:
        """Switch to a worker's turn; no cost if it is active already."""
        if self.active == worker:
            return
        if self.active is None:
            self.outside = randomness.capture()
        else:
            self.states[self.active] = randomness.capture()
        randomness.restore(self.states[worker])
        self.active = worker

    def exit(self) -> None:
        """End the active worker's turn and go back to the process's own context."""
        if self.active is None:
            return
        self.states[self.active] = randomness.capture()
        self.active = None
        if self.outside is not None:
            randomness.restore(self.outside)

    def to_plain(self, workers: Iterable[int]) -> dict[int, dict[str, Any]]:
        """The contexts of these workers as tensors and numbers."""
        return {
            worker: {
                "rng": randomness.to_plain(self.states[worker]),
                "state": dict(self.workers[worker].state),
                "placed": state_tree.find_placed(self.workers[worker].state),
            }
            for worker in workers
        }

    def from_plain(self, contexts: dict[int, dict[str, Any]], workers: Iterable[int], device: torch.device) -> None:
        """Have these workers as `to_plain` wrote them, and no others; what was on an accelerator goes to the device."""
        wanted = list(workers)
        self.states = {worker: randomness.from_plain(contexts[worker]["rng"]) for worker in wanted}
        self.workers = {worker: LogicalWorker(worker, dict(contexts[worker]["state"])) for worker in wanted}
        for worker, one in self.workers.items():
            state_tree.move_placed(one.state, contexts[worker].get("placed", ()), device)
