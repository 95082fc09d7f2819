"""Time spent in context switches between logical workers: the switching functions, timed where they stand."""

from collections.abc import Callable
from time import thread_time_ns
from typing import Any

from experiments.gangs import advance
from experiments.loops import Loop
from springtide.training.workers.buffers import Buffers
from springtide.training.workers.contexts import Contexts

# What is done when one logical worker follows another: random state and buffers.
SWITCHES = [(Contexts, "enter"), (Contexts, "exit")] + [
    (Buffers, name) for name in ("begin_walk", "begin_turn", "end_turn", "end_walk")
]


def measure_switches(loop: Loop, steps: int) -> tuple[float, float]:
    """CPU seconds per step spent in context switches, and in the whole step."""
    spent_ns = [0]
    originals = [getattr(owner, name) for owner, name in SWITCHES]
    for (owner, name), original in zip(SWITCHES, originals, strict=True):
        setattr(owner, name, timed(original, spent_ns))
    before = thread_time_ns()
    advance(loop, steps)
    whole_ns = thread_time_ns() - before
    for (owner, name), original in zip(SWITCHES, originals, strict=True):
        setattr(owner, name, original)
    return spent_ns[0] / steps / 1e9, whole_ns / steps / 1e9


def timed(function: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
    """The function, adding its CPU time to a sum."""

    def call(*args: Any) -> Any:
        before = thread_time_ns()
        result = function(*args)
        spent_ns[0] += thread_time_ns() - before
        return result

    return call
