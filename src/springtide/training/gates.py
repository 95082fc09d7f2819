"""Optimizers and schedulers that act once per global step, although every logical worker's turn calls them.

The user's objects stay what they are: only their `step` is replaced, so isinstance checks, state dicts, hooks and
schedulers that look at their optimizer keep working.
"""

import functools
from typing import Any

import torch

from springtide.errors import JobError
from springtide.training.turns import Turns


def gate_optimizer(optimizer: torch.optim.Optimizer, turns: Turns) -> None:
    """Let `optimizer.step()` act only after the last local worker's turn, on reduced gradients."""
    original = optimizer.step

    @functools.wraps(original)
    def step(closure: Any = None) -> Any:
        if closure is not None:
            raise JobError(
                f"{type(optimizer).__name__}.step was given a closure, which runs the model several times per step; "
                "use an optimizer without one"
            )
        if not turns.acting:
            return None
        turns.ensure_reduced()
        return original()

    optimizer.step = step  # type: ignore[method-assign]


def gate_scheduler(scheduler: Any, turns: Turns) -> None:
    """Let `scheduler.step(...)` act only outside turns or after the last local worker's.

    By a subclass and not by an attribute, because a scheduler's state dict is all of its attributes.
    """
    kind = type(scheduler)

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return kind.step(self, *args, **kwargs) if turns.acting else None

    scheduler.__class__ = type(kind.__name__, (kind,), {"step": step, "__module__": kind.__module__})
