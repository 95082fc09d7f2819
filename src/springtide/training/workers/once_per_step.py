"""Optimizers, schedulers and gradient scalers that act once per global step, although every worker's turn calls them.

The user's objects stay what they are: only their `step` is replaced, so isinstance checks, state dicts, hooks and
schedulers that look at their optimizer keep working.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from springtide.errors import JobError

SCALERS = torch.amp.GradScaler.__module__


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


def call_on_backward(output: Any, callback: Callable[[torch.Tensor], None]) -> None:
    """Have `callback` called when a backward comes to a model's output, whatever that is made of."""
    leaves = [output] if isinstance(output, torch.Tensor) else pytree.tree_leaves(output)
    leaf = next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad), None)
    if leaf is not None:
        leaf.register_hook(callback)


def is_accumulating(micro: int, began_backward: bool, accumulate: int) -> bool:
    """Whether gradients of mini-batches 0..micro of a step are there and incomplete, so that clearing must wait."""
    if micro == accumulate - 1 and began_backward:
        return False
    return micro > 0 or (began_backward and accumulate > 1)


def gate(optimizers: Iterable[Any], schedulers: Iterable[Any], scalers: Iterable[Any], moment: Moment) -> None:
    """Let all of a run's parts act only when it is time."""
    for optimizer in optimizers:
        gate_optimizer(optimizer, moment)
    for scheduler in schedulers:
        gate_scheduler(scheduler, moment)
    for scaler in scalers:
        gate_scaler(scaler, moment)


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
        refuse_stray_scaler(sys._getframe(1))
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


def gate_scaler(scaler: torch.amp.GradScaler, moment: Moment) -> None:
    """Let a gradient scaler unscale, step and update only after the last local worker's turn, on reduced gradients.

    Every process then sees the same gradients, finds the same overflows and keeps the same scale, as ranks of DDP do.
    """
    unscale, step, update = scaler.unscale_, scaler.step, scaler.update

    @functools.wraps(unscale)
    def unscale_(optimizer: torch.optim.Optimizer) -> None:
        if moment.acting:
            moment.ensure_reduced()
            unscale(optimizer)

    @functools.wraps(step)
    def gated_step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if not moment.acting:
            return None
        moment.ensure_reduced()
        return step(optimizer, *args, **kwargs)

    @functools.wraps(update)
    def gated_update(new_scale: Any = None) -> None:
        if moment.acting:
            update(new_scale)

    scaler.unscale_ = unscale_  # type: ignore[method-assign]
    scaler.step = gated_step  # type: ignore[method-assign]
    scaler.update = gated_update  # type: ignore[method-assign]
    _gated.add(scaler)


# Scalers that were given to `prepare`; a script has one, or a few.
_gated: weakref.WeakSet[torch.amp.GradScaler] = weakref.WeakSet()


def refuse_stray_scaler(caller: FrameType) -> None:
    """Refuse a step asked for by a gradient scaler that `prepare` was not given: it would unscale one turn's share."""
    if caller.f_globals.get("__name__") != SCALERS:
        return
    scaler = caller.f_locals.get("self")
    if isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled() and scaler not in _gated:
        raise JobError(
            "a GradScaler steps the optimizer but was not given to run.prepare, so it would see the gradients of one "
            "logical worker only; write: model, optimizer, scaler, loader = run.prepare(model, optimizer, scaler, ...)"
        )


def gate_scheduler(scheduler: Any, moment: Moment) -> None:
    """Let `scheduler.step(...)` act only outside turns or after the last local worker's.

    By a subclass and not by an attribute, because a scheduler's state dict is all of its attributes.
    """
    original = type(scheduler)

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original.step(self, *args, **kwargs) if moment.acting else None

    scheduler.__class__ = type(original.__name__, (original,), {"step": step, "__module__": original.__module__})
