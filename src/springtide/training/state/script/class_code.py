"""What the functions of a class set, by their bytecode: what belongs to a package, and what reading or calling leaves.

An attribute that a model's `forward` sets, or a dataset's `__getitem__`, is of a turn or of a process that reads (an
activation, a cache, a file that is open), and not what the script's loop sets between steps.
"""

import dis
import functools
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from springtide.training.state.script.loop_variables import is_installed, is_own

#: What is called in a turn, or to read a sample or a batch, and what that calls is found from there.
USING = frozenset({"forward", "__call__", "__getitem__", "__getitems__", "__iter__", "__next__", "__len__"})
#: What has functions in it, and where.
INNER: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    FunctionType: ("__wrapped__",),
}
SET_ATTRIBUTE, SET_ITEM = dis.opmap["STORE_ATTR"], dis.opmap["STORE_SUBSCR"]


@lru_cache(maxsize=4096)
def is_own_class(kind: Any) -> bool:
    """Whether a class, or one that it is derived from, is of the script's own files."""
    return any(is_of_script(one) for one in kind.__mro__)


def is_of_script(kind: type) -> bool:
    """Whether a class itself is."""
    name = kind.__module__
    is_known = name in sys.builtin_module_names or f"{name}.".startswith("springtide.")
    return not is_known and is_own(kind)


@lru_cache(maxsize=4096)
def find_set_by(kind: Any) -> frozenset[str]:
    """The attributes that functions of a class itself set."""
    return frozenset(name for code in list_codes(kind) for name in list_set(code))


@lru_cache(maxsize=4096)
def find_set_by_packages(kind: Any, but: str = " ") -> frozenset[str]:
    """The attributes that classes of installed packages set, from which a class is derived; but for some packages'."""
    packaged = [one for one in kind.__mro__ if not is_of_script(one) and not one.__module__.startswith(but)]
    return frozenset(name for one in packaged for name in find_set_by(one))


@lru_cache(maxsize=4096)
def find_set_in_use(kind: Any) -> frozenset[str]:
    """The attributes that the script's own functions set when an object of a class is called, or read."""
    return frozenset(name for code in list_used(kind) for name in list_set(code))


@lru_cache(maxsize=4096)
def find_read_in_use(kind: Any) -> frozenset[str]:
    """The attributes that such functions read, whosever they are."""
    return frozenset(name for code in list_used(kind) for name in list_names(code))


@lru_cache(maxsize=4096)
def sets_items_in_use(kind: Any) -> bool:
    """Whether such functions set items of what the object holds, as one does that fills a cache."""
    return any(SET_ITEM in code.co_code[::2] for code in list_used(kind))


def list_used(kind: Any) -> list[CodeType]:
    """The own functions that run when an object of a class is called, or read, as far as their names tell."""
    own: dict[str, list[CodeType]] = {}
    for code in (code for one in kind.__mro__ if is_of_script(one) for code in list_codes(one)):
        if not is_installed(code.co_filename):
            own.setdefault(code.co_name, []).append(code)
    used: set[str] = set()
    named = set(USING)
    while named:
        used |= named
        named = {name for each in named for code in own.get(each, ()) for name in list_names(code)} & own.keys() - used
    return [code for name in used for code in own.get(name, ())]


@lru_cache(maxsize=8192)
def list_codes(kind: Any) -> tuple[CodeType, ...]:
    """The code of the functions that a class itself has."""
    found: list[CodeType] = []
    for value in vars(kind).values():
        # A proxy may answer a question by doing things, its type does not.
        asked = INNER.get(type(value), ())
        inner = [getattr(value, name, None) for name in asked]
        found += [one.__code__ for one in (value, *inner) if type(one) is FunctionType]
    return tuple(found)


def list_names(code: CodeType) -> Iterator[str]:
    """The names that a function mentions, and the functions within it."""
    yield from code.co_names
    yield from (name for inner in list_inner(code) for name in list_names(inner))


def list_set(code: CodeType) -> Iterator[str]:
    """The names of the attributes that a function sets, whosever they are."""
    extended = 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        if operation == dis.EXTENDED_ARG:
            extended = (extended | argument) << 8
            continue
        if operation == SET_ATTRIBUTE:
            yield code.co_names[extended | argument]
        extended = 0
    yield from (name for inner in list_inner(code) for name in list_set(inner))


def list_inner(code: CodeType) -> Iterable[CodeType]:
    """The functions that are made within a function."""
    return (one for one in code.co_consts if isinstance(one, CodeType))
