"""Values as the look at gradients follows them: what variables they are made of, and what they are, if that is known.

A container that is made with constant keys is followed by its items: `batch = {"x": x, "n": n}` has `n` in an item that
`model(batch["x"])` does not read.
"""

import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

from springtide.training.state.script.loop_variables import MISSING, is_installed, is_own

CALL = "__call__"
#: Kinds of functions that return something else than what `return` has.
GIVING_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Names = frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A function of the script's own that a value is, and the object whose method it is, by its variable."""

    function: FunctionType
    owner: object = MISSING
    owner_name: str = ""
    #: How many of its arguments it has been given already.
    bound: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A value on the stack: the variables that it is made of, and what it is, where that is known."""

    names: Names = frozenset()
    value: object = MISSING
    #: The variable, or the member of one, that it is or was reached through.
    variable: str = ""
    called: Called | None = None
    #: Of a container that is made here, what each of its items is made of.
    items: Mapping[object, Names] | None = None
    #: The variable whose value a call of this changes.
    changes: str = ""
    #: Of a function that is called, what each item of what it returns is made of.
    gives: Mapping[object, Names] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """The variables of a function that its backwards depend on, or what it returns if it has none."""

    names: Names
    has_backward: bool = False
    #: The same of each item, where it returns a tuple or a dictionary.
    items: Mapping[object, Names] = field(default_factory=dict)


@dataclass
class Scope:
    """What names mean where code runs, and which functions led there."""

    variables: dict[str, Any]
    all_: dict[str, Any]
    above: tuple[object, ...] = ()
    #: What was found in functions, by which, of which object, and how deep.
    known: dict[tuple[object, ...], Trained] = field(default_factory=dict)

    def find(self, name: str) -> object:
        """The value of a variable."""
        return self.variables.get(name, self.all_.get(name, MISSING))


def merge(old: list[Slot] | None, new: list[Slot]) -> list[Slot] | None:
    """The values that may be on the stack by two ways; None if the second brings nothing new."""
    if old is None:
        return new
    pairs = list(zip(old, new, strict=False))
    if all(two.names <= one.names and one.items in (None, two.items) for one, two in pairs):
        return None
    return [merge_slots(one, two) for one, two in pairs]


def merge_slots(one: Slot, two: Slot) -> Slot:
    """A value that may be one of two."""
    value = one.value if one.value is two.value else MISSING
    return Slot(one.names | two.names, value, one.variable, one.called, changes=one.changes)


def join(slots: Iterable[Slot]) -> Names:
    """The variables that several values are made of."""
    return frozenset().union(*(slot.names for slot in slots))


def list_items(slots: list[Slot]) -> dict[object, Names] | None:
    """The items of a dictionary that is made of keys and values in turn, if all keys are constants."""
    keys = [slot.value for slot in slots[::2]]
    if not all(isinstance(key, str | int) for key in keys):
        return None
    return {key: slot.names for key, slot in zip(keys, slots[1::2], strict=True)}


def find_called(slots: list[Slot]) -> Called | None:
    """The function of the script that one of the values is."""
    return next((slot.called for slot in slots if slot.called is not None), None)


def find_function(value: object, name: str) -> Called | None:
    """What is called where a variable is: a function of the script's own, or an object of its own by its method."""
    if isinstance(value, functools.partial):
        return make_called(value.func, bound=len(value.args))
    if isinstance(value, MethodType):
        return make_called(value.__func__, value.__self__)
    return make_called(find_method(value, CALL), value, name) if is_object(value) else make_called(value)


def find_method(value: object, name: str) -> object:
    """A function of an object's class."""
    return getattr(type(value), name, None)


def make_called(function: object, owner: object = MISSING, owner_name: str = "", bound: int = 0) -> Called | None:
    """A function whose code is looked into, the one that decorators were put around: of the script's own files.

    A generator's is not: what it yields goes elsewhere than what a function returns.
    """
    inner = inspect.unwrap(function) if isinstance(function, FunctionType) else function
    if not isinstance(inner, FunctionType) or inner.__code__.co_flags & GIVING_LATER:
        return None
    return None if is_installed(inner.__code__.co_filename) else Called(inner, owner, owner_name, bound)


def is_object(value: object) -> bool:
    """Whether a value is an object of the script's own classes, whose code can be read."""
    kind = type(value)
    return value is not MISSING and kind.__module__ != "builtins" and not issubclass(kind, type) and is_own(kind)


def list_parameters(function: FunctionType) -> list[str]:
    """The names of a function's arguments."""
    code = function.__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def list_outer(called: Called, names: Names) -> set[str]:
    """Those of a function's variables, and of their members and items by a constant, that are not its own."""
    code = called.function.__code__
    own = (*code.co_varnames, *code.co_cellvars)
    return {name for name in names if (root := find_owner(name)).isidentifier() and root not in own}


def find_owner(name: str) -> str:
    """The variable of a name, which may be that of a member of its value."""
    return name.partition(".")[0].partition("[")[0]


def list_places(called: Called, count: int, words: tuple[str, ...]) -> list[str | None]:
    """The parameter that each argument of a call is for; None where that is not known."""
    code = called.function.__code__
    names = list(code.co_varnames[: code.co_argcount])[called.bound + (called.owner is not MISSING) :]
    known = list_parameters(called.function)
    positions = [names[place] if place < len(names) else None for place in range(count - len(words))]
    return [*positions, *(word if word in known else None for word in words)]


def read_cell(cell: Any) -> object:
    """What a variable of an outer function is."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING
