"""Optimizers and schedulers that act once per global step, although every logical worker's turn calls them.

The user's objects stay what they are: only their `step` is replaced, so isinstance checks, state dicts, hooks and
schedulers that look at their optimizer keep working.
"""

import functools
from typing import Any, Protocol

import torch

from springtide.errors import JobError


class Moment(Protocol):
    """What a gate asks: is it time?"""

    @property
    def acting(self) -> bool:
        """Whether optimizers and schedulers act now."""

    @property
    def accumulating(self) -> bool:
        """Whether a worker's gradients wait for more mini-batches of the same step."""

    def ensure_reduced(self) -> None:
        """Make sure the parameters hold the reduced gradients."""


def is_accumulating(micro: int, began_backward: bool, accumulate: int) -> bool:
    """Whether gradients of mini-batches 0..micro of a step are there and incomplete, so that clearing must wait."""
    if micro == accumulate - 1 and began_backward:
        return False
    return micro > 0 or (began_backward and accumulate > 1)


def gate_optimizer(optimizer: torch.optim.Optimizer, moment: Moment) -> None:
    """Let `optimizer.step()` act only after the last local worker's turn, on reduced gradients.

    `zero_grad()` concerns the worker whose turn it is, and is passed over while that worker accumulates.
    """
    original = optimizer.step
    clear = optimizer.zero_grad

    @functools.wraps(original)
    def step(closure: Any = None) -> Any:
        if closure is not None:
            raise JobError(
                f"{type(optimizer).__name__}.step was given a closure, which runs the model several times per step; "
                "use an optimizer without one"
            )
        if not moment.acting:
            return None
        moment.ensure_reduced()
        return original()

    @functools.wraps(clear)
    def zero_grad(set_to_none: bool = True) -> None:
        if not moment.accumulating:
            clear(set_to_none=set_to_none)

    optimizer.zero_grad = zero_grad  # type: ignore[method-assign]
    optimizer.step = step  # type: ignore[method-assign]


def gate_scheduler(scheduler: Any, moment: Moment) -> None:
    """Let `scheduler.step(...)` act only outside turns or after the last local worker's.

    By a subclass and not by an attribute, because a scheduler's state dict is all of its attributes.
    """
    kind = type(scheduler)

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return kind.step(self, *args, **kwargs) if moment.acting else None

    scheduler.__class__ = type(kind.__name__, (kind,), {"step": step, "__module__": kind.__module__})
