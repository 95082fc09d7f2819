"""Where the time of a step goes besides training: context switches between logical workers, and the guards."""

from time import thread_time_ns

from experiments.gangs import Methods, advance, timing
from experiments.loops import Loop
from springtide.training.state.divergence import DivergenceGuard
from springtide.training.state.turn_guard import TurnGuard
from springtide.training.workers.buffers import Buffers
from springtide.training.workers.contexts import Contexts

# What is done when one logical worker follows another: random state and buffers.
SWITCHES: Methods = (
    (Contexts, "enter"),
    (Contexts, "exit"),
    *((Buffers, name) for name in ("begin_walk", "begin_turn", "end_turn", "end_walk")),
)
#: What is done to find processes that differ, and turns that change what is common.
GUARDS: Methods = ((DivergenceGuard, "compare"), (TurnGuard, "begin"), (TurnGuard, "end"))


def measure_switches(loop: Loop, steps: int) -> tuple[float, float]:
    """CPU seconds per step spent in context switches, and in the whole step."""
    before = thread_time_ns()
    with timing(SWITCHES) as spent_ns:
        advance(loop, steps)
    whole_ns = thread_time_ns() - before
    return spent_ns[0] / steps / 1e9, whole_ns / steps / 1e9
