"""All objects of a process by their types: what a script has made, and has not given to `prepare`.

With a framework a process has a million objects, and a look at each takes a tenth of a second: many steps of a small
model. So what is there when a loop is entered is set aside from then on, by `gc.freeze`, as a fork server does with
what it has imported; only what somebody may ask for is remembered. What a look then goes over was made since.
"""

import gc
import weakref
from collections.abc import Callable
from itertools import compress
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

#: What is asked for beside what schedules an optimizer.
KINDS = (torch.nn.Module, _BaseDataLoaderIter)
#: As many objects take some milliseconds to look at.
MANY = 50_000
#: The objects of such kinds among those that were set aside; None where one has gone.
_aside: list[Callable[[], Any]] = []


def find_alive(is_wanted: Callable[[type], bool]) -> list[Any]:
    """Every living object of the types that are wanted; while some are set aside, only of those that are asked for."""
    held = [one for one in (find() for find in _aside) if one is not None and is_wanted(type(one))]
    # A script may have brought back what we have set aside.
    return list({id(one): one for one in (*pick(gc.get_objects(), is_wanted), *held)}.values())


def pick(objects: list[Any], is_wanted: Callable[[type], bool]) -> list[Any]:
    """Those of the types that are wanted."""
    # There are thousands of types and, with a framework, a million objects: over these go only loops without bytecode.
    types = list(map(type, objects))
    wanted = set(filter(is_wanted, set(types)))
    return list(compress(objects, map(wanted.__contains__, types))) if wanted else []


def is_schedule(kind: type) -> bool:
    """Whether objects of a type may schedule an optimizer, or are one."""
    return all(hasattr(kind, name) for name in ("step", "state_dict", "load_state_dict"))


def is_asked_for(kind: type) -> bool:
    """Whether somebody may ask for objects of a type while others are set aside."""
    return issubclass(kind, KINDS) or is_schedule(kind)


def set_aside() -> None:
    """Let later looks go over what is made from now on, and the garbage collector as well.

    Not where there is little, as where a fork server has frozen what it has imported: that would be brought back, too.
    """
    objects = gc.get_objects()
    if len(objects) >= MANY and not _aside:
        _aside.extend(map(remember, pick(objects, is_asked_for)))
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
