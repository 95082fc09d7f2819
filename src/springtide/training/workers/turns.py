"""The turns of this process's logical workers within a global step: contexts, buffers and gradients switched together.

A *walk* is one loop over a step: every logical worker of the process takes its turn, then gradients are reduced and
the process's own context is active again. Data are in `loaders`, agreement between processes in `agreement`.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from springtide.errors import JobError
from springtide.training.living_objects import find_alive
from springtide.training.optimizer_wrappers import list_known
from springtide.training.parts import list_parameters, refuse_stray_optimizer, title_models
from springtide.training.workers.buffers import Buffers
from springtide.training.workers.contexts import Contexts
from springtide.training.workers.forward_hooks import ModelListener, is_compiled
from springtide.training.workers.model_gradients import ModelGradients, Place
from springtide.training.workers.steps import Step, refuse_form

if TYPE_CHECKING:
    from springtide.training.sharding.model_sharding import ModelSharding
    from springtide.training.sharding.sharded_gradients import ShardedGradients


def make_sharded(model: torch.nn.Module, sharding: "ModelSharding", find_unused: bool) -> "ShardedGradients":
    """The gradients of a sharded model; torch's part of it is imported only for those."""
    from springtide.training.sharding.sharded_gradients import ShardedGradients

    return ShardedGradients(model, sharding, find_unused)


class Turns:
    """Who is at work in this process, and with what."""

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        find_unused: bool,
        broadcast_buffers: bool,
        sharding: "ModelSharding | None" = None,
        word_size: int = 0,
    ) -> None:
        self.contexts = Contexts()
        # With several models, whose exchange comes first would depend on how many turns a process has: none leaves
        # before all turns have ended.
        self.gradients: list[ModelGradients | ShardedGradients] = [
            ModelGradients(model, title, find_unused, overlapping=len(models) == 1)
            if sharding is None
            else make_sharded(model, sharding, find_unused)
            for title, model in title_models(models)
        ]
        self.buffers = [
            Buffers(model, broadcast_buffers, 0 if number else word_size) for number, model in enumerate(models)
        ]
        #: What rank 0 says to all at the end of a walk; it travels with its buffers.
        self.word = self.buffers[0].coming.word
        self.parameters = [parameter for part in self.gradients for parameter in part.parameters]
        self.trained = {id(parameter) for parameter in self.parameters}
        #: All parameters of the models, trained or not.
        self.known = [parameter for model in models for parameter in model.parameters()]
        #: Whether a loop over a step is under way, and the worker whose turn it is.
        self.walking = False
        self.worker: int | None = None
        #: The optimizers that have stepped since the last walk.
        self.stepped: list[torch.optim.Optimizer] = []
        self.listeners = [
            ModelListener(model, partial(self.before_forward, number), partial(self.after_forward, number))
            for number, model in enumerate(models)
        ]

    def configure(self, place: Place) -> None:
        """Take a place in a roster."""
        self.place, self.local = place, place.local
        for part in self.gradients:
            part.configure(place)

    @property
    def waited_s(self) -> float:
        """Seconds of the turns of this walk in which other processes were waited for."""
        return sum(one.waited_s for one in self.buffers)

    def guard(self, in_step: bool) -> None:
        """Refuse backwards that are no worker's, or allow them, as between epochs."""
        for part in self.gradients:
            part.guarding = in_step

    def find_compiled(self) -> None:
        """Hear of what torch.compile has made of the models."""
        compiled = find_alive(is_compiled)
        for listener in self.listeners:
            listener.find_compiled(compiled)

    def begin_walk(self) -> None:
        """Start a loop over a step."""
        if self.walking:
            raise JobError("a loop over `step` began inside another one; let each logical worker finish its turn")
        self.walking = True
        for listener in self.listeners:
            listener.begin()
        self.versions = sum(parameter._version for parameter in self.parameters)
        for one in self.buffers:
            one.begin_walk(self.local)

    def begin_turn(self, worker: int) -> None:
        """Switch to a worker's context."""
        self.worker = worker
        self.contexts.enter(worker)
        for one in self.buffers:
            one.begin_turn(worker, worker == self.local[0])
        for part in self.gradients:
            part.begin_turn(worker)

    def begin_batch(self, holding: bool) -> None:
        """Start one of a turn's mini-batches."""
        for part in self.gradients:
            part.begin_batch(holding)

    def end_turn(self, worker: int) -> None:
        """Keep what the turn has made."""
        for part in self.gradients:
            part.end_turn()
        for one in self.buffers:
            one.end_turn(worker)
        self.worker = None

    def end_walk(self) -> None:
        """Reduce, and go back to the process's own context."""
        self.contexts.exit()
        # Rank 0's buffers and word travel while gradients are reduced: each wait for others costs a small model some
        # percent of a step.
        for part in self.gradients:
            part.send_rest()
        for one in self.buffers:
            one.share(self.place.group)
        for part in self.gradients:
            part.end_walk()
        for one in self.buffers:
            one.receive()
            one.end_walk(self.local)
        self.walking = False
        self.stepped = []
        if sum(parameter._version for parameter in self.parameters) != self.versions:
            raise JobError(
                "weights were changed inside `for ... in step:`, which runs once for every logical worker of a "
                "process; change them after that loop, which is once per global step"
            )

    def share_word(self) -> None:
        """Let all hear rank 0's word where nothing was walked."""
        self.walking = True
        self.buffers[0].share(self.place.group)
        self.buffers[0].receive()
        self.walking = False

    def abandon(self) -> int:
        """Leave a loop over a step in its middle, and return whose turn it was."""
        worker, self.worker = self.worker, None
        self.walking = False
        self.contexts.exit()
        for part in self.gradients:
            part.abandon()
        for one in self.buffers:
            one.abandon()
        return -1 if worker is None else worker

    # What the script does within a turn.

    def before_forward(self, number: int, inputs: Any) -> None:
        """A model is called."""
        if any(isinstance(one, Step) for one in inputs):
            refuse_form("given to a model")
        if self.worker is not None:
            self.gradients[number].before_forward()
            self.buffers[number].before_forward(self.worker == self.local[0], self.place.group)

    def after_forward(self, number: int) -> None:
        """A model was called."""
        if self.worker is not None:
            self.gradients[number].after_forward()
            self.buffers[number].after_forward(self.gradients[number].holding)

    @contextlib.contextmanager
    def hold(self, numbers: Sequence[int] | None = None) -> Iterator[None]:
        """Let backwards within add to the worker's own gradients of all models, or some, as DDP's `no_sync` does."""
        parts = self.gradients if numbers is None else [self.gradients[number] for number in numbers]
        before = [part.holding for part in parts]
        for part in parts:
            part.holding = True
        try:
            yield
        finally:
            for part, holding in zip(parts, before, strict=True):
                part.holding = holding

    def check_optimizer(self, known: Sequence[torch.optim.Optimizer], optimizer: torch.optim.Optimizer) -> None:
        """Refuse an optimizer that acts within turns, or that a resume would not know."""
        is_known = any(optimizer is one for one in list_known(known))
        if not is_known and not any(id(parameter) in self.trained for parameter in list_parameters(optimizer)):
            return
        if self.walking:
            raise JobError(
                f"{type(optimizer).__name__}.step() was called inside `for ... in step:`, which runs once for every "
                "logical worker of a process; call it after that loop, on the reduced gradients"
            )
        if not is_known:
            refuse_stray_optimizer(optimizer)
        self.stepped.append(optimizer)
