"""Optimizers and schedulers that act once per global step, although every logical worker's turn calls them.

The user's objects stay what they are: only their bound `step` is replaced, so isinstance checks, state dicts, hooks
and schedulers that look at their optimizer keep working.
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
    """Let `scheduler.step(...)` act only outside turns or after the last local worker's."""
    original = scheduler.step

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if turns.acting else None

    scheduler.step = step
