"""Tensors and queues that turns change where they are and that gradients depend on: a bank of features, a memory.

`bank[index] = z.detach()` and `queue.append(z)` write to no variable, so what they hand from turn to turn is seen by
what is in them before a turn and after it. What a turn sets as a whole before it reads it is left alone; where the
order cannot be told it is said in a warning.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

from springtide.errors import JobError
from springtide.training.state.script.flow_values import Names, find_owner
from springtide.training.state.script.held_values import is_kept, mark
from springtide.training.state.script.loop_code import CodeSpan, find_loop
from springtide.training.state.script.loop_variables import find_value

#: Turns that must have changed it.
SEEN = 3
#: Items of a container that are looked at.
MOST = 256
#: Methods that set all of a tensor or a container, and those that put something into a part of it.
SETTING = {"zero_", "fill_", "copy_", "clear", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
FILLING = {"index_copy_", "index_fill_", "scatter_", "masked_fill_", "masked_scatter_"}
READING = ("BINARY_", "COMPARE_", "CONTAINS_", "POP_", "STORE_", "COPY", "UNPACK_", "FOR_ITER", "GET_ITER", "RETURN_")
#: A place: the code of a frame, and a variable or a member of one.
Place = tuple[CodeType, str]


class InPlaceWatch:
    """What such values were before a turn, and in how many turns each was changed."""

    def __init__(self) -> None:
        self.before: dict[Place, tuple[Any, Any]] = {}
        self.changed: Counter[Place] = Counter()

    def begin_turn(self, frames: Iterable[tuple[FrameType, Names]]) -> None:
        """Before a turn, with the variables that gradients depend on in each frame."""
        self.before = {(frame.f_code, name): (value, read(value)) for frame, name, value in list_held(frames)}

    def end_turn(self, frames: Iterable[tuple[FrameType, Names]], warn: Callable[[str], None]) -> None:
        """After a turn: refuse what it has changed, as those before it have; or warn."""
        for frame, name, value in list_held(frames):
            key = frame.f_code, name
            held, was = self.before.get(key, (None, None))
            if held is value and has_changed(was, read(value)):
                self.changed[key] += 1
                if self.changed[key] == SEEN:
                    judge(frame, name, value, warn)


def list_held(frames: Iterable[tuple[FrameType, Names]]) -> Iterator[tuple[FrameType, str, Any]]:
    """The tensors and queues that gradients depend on, and that the loop has not made."""
    for frame, trained in frames:
        loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
        written = set() if loop is None else loop.list_written()
        for name in sorted(trained - written):
            value = find_value(frame, name) if find_owner(name) not in written else None
            if is_memory(value):
                yield frame, name, value


def is_memory(value: Any) -> bool:
    """Whether a value may hold what turns have left: several floating numbers, or a container of such."""
    if type(value) is torch.Tensor:
        return value.numel() > 1 and value.is_floating_point() and value.grad_fn is None and is_kept(value)
    if type(value) is np.ndarray:
        return value.size > 1 and value.dtype.kind == "f"
    if type(value) is deque:
        return value.maxlen != 1 and 0 < len(value) <= MOST and any(map(is_memory, value))
    return type(value) is list and 0 < len(value) <= MOST and any(map(is_memory, value))


def read(value: Any) -> Any:
    """What is in it."""
    return [mark(one) if is_memory(one) else None for one in value] if type(value) in (deque, list) else mark(value)


def has_changed(was: Any, now: Any) -> bool:
    """Whether it is another; not of a list that only grows, in which turns collect."""
    return bool(was != now[: len(was)] if type(was) is list and len(now) >= len(was) else was != now)


def judge(frame: FrameType, name: str, value: Any, warn: Callable[[str], None]) -> None:
    """Refuse what a turn goes on from, and warn of what it may set anew in places not seen."""
    loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
    use = "read" if loop is None else find_first_use(loop, name)
    if use == "set":
        return
    is_queue = type(value) is deque
    text = describe(name)
    if name.isidentifier() and (is_queue or (use == "read" and type(value) is not list)):
        raise JobError(text)
    warn(f"{text}. If every turn sets all that it reads of it before it reads it, nothing is wrong")


def find_first_use(loop: CodeSpan, name: str) -> str:
    """What the loop does first with a variable: "set" it as a whole, "fill" a part of it, or "read" it."""
    places = [place for place in loop.list_accesses_of(name, "LOAD") if place > loop.here]
    if not places:
        return "fill"
    for one in loop.code[min(places) + 1 : loop.last]:
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            return "set" if one.argval in SETTING else "fill" if one.argval in FILLING else "read"
        if one.opname in ("STORE_SUBSCR", "STORE_SLICE") or one.opname.startswith(("CALL", "PRECALL")):
            return "fill"
        if one.opname.startswith(READING):
            return "read"
    return "read"


def describe(name: str) -> str:
    """What is wrong, and what to write instead."""
    return (
        f"`{name}` is changed in place in every turn, and gradients depend on it: each logical worker of a process "
        "would find what the one before it has left, which in DDP are different ranks, and other numbers of processes "
        f"would train otherwise. Keep it in step.worker.state[{name!r}], which is each worker's own and moves with it, "
        "or collect what the turns bring in a list and fill it after `for ... in step:`, by run.mean(...) or "
        "run.sum(...), once per global step"
    )
