"""All objects of a process by their types: what a script has made, and has not given to `prepare`.

With a framework a process has a million objects, and a look at each takes a tenth of a second: many steps of a small
model. So what is there when a loop is entered is set aside from then on, by `gc.freeze`, as a fork server does with
what it has imported; only what somebody may ask for is remembered. What a look then goes over was made since.
"""

import gc
import weakref
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

#: What is asked for beside what schedules an optimizer.
KINDS = (torch.nn.Module, _BaseDataLoaderIter)
#: The objects of such kinds among those that were set aside; None where one has gone.
_aside: list[Callable[[], Any]] = []


def find_alive(is_wanted: Callable[[type], bool]) -> list[Any]:
    """Every living object of the types that are wanted; while some are set aside, only of those that are asked for."""
    # There are thousands of types and, with a framework, a million objects: over these go only loops without bytecode.
    objects = gc.get_objects()
    types = list(map(type, objects))
    wanted = set(filter(is_wanted, set(types)))
    found: Iterable[Any] = compress(objects, map(wanted.__contains__, types)) if wanted else ()
    held = (find() for find in _aside)
    both = (*found, *(one for one in held if one is not None and is_wanted(type(one))))
    return list({id(one): one for one in both}.values())  # a script may have brought back what we have set aside


def is_schedule(kind: type) -> bool:
    """Whether objects of a type may schedule an optimizer, or are one."""
    return all(hasattr(kind, name) for name in ("step", "state_dict", "load_state_dict"))


def is_asked_for(kind: type) -> bool:
    """Whether somebody may ask for objects of a type while others are set aside."""
    return issubclass(kind, KINDS) or is_schedule(kind)


def set_aside() -> None:
    """Let later looks go over what is made from now on, and the garbage collector as well.

    Not where somebody else has, as a fork server: what it has imported could not be told from the rest any more.
    """
    if not gc.get_freeze_count():
        _aside[:] = map(remember, find_alive(is_asked_for))
        gc.freeze()


def bring_back() -> None:
    """Let looks go over everything again."""
    if _aside:
        _aside.clear()
        gc.unfreeze()


def remember(one: Any) -> Callable[[], Any]:
    """How to find an object as long as it lives; for ever, if nothing but a reference can tell."""
    try:
        return weakref.ref(one)
    except TypeError:
        return lambda: one
