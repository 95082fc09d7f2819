"""The walk from a script's variables to all that their objects hold: each place, and how something is put there.

Through containers, objects and classes of the script's own, closures, and modules; of packages' objects only what they
say of themselves. What the run was given is looked into for what the script has put there beside what the run keeps.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from springtide.training.state.script.class_code import (
    find_set_by,
    find_set_by_packages,
    find_set_in_use,
    is_own_class,
    sets_items_in_use,
)
from springtide.training.state.script.held_iterators import is_iterator
from springtide.training.state.script.held_values import (
    CONTAINERS,
    DEEPEST,
    MOST,
    PLAIN,
    SETS,
    is_kept,
    is_single,
    is_stateful,
    read_state,
)
from springtide.training.state.script.loop_variables import YEAR_S, is_installed
from springtide.training.state.script.own_generators import is_looked_into

#: Data are read again; optimizers and schedules are the run's, or refused.
OF_TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
LEFT_ALONE = (Dataset, Sampler, DataLoader, *OF_TRAINING)
#: What every module has for itself; its weights are found by their names.
OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}
#: What `left_between_steps` keeps of the run's modules, where its name is public.
SETTINGS = (bool, int, float, str)
FUNCTIONS = (FunctionType, MethodType)
#: Members of a container of data that are looked at.
FEW = 200


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Where an object holds something: what is there, and how something else is put there, where that can be done."""

    value: Any
    put: Callable[[Any], None] | None = None


@dataclass
class Walk:
    """A walk through objects: those that are known already, by name, known memory, and the places found."""

    known: dict[str, Any]
    memory: set[int]
    #: Variables of functions that are at work, which closures of theirs have as well, by name and value.
    active: set[tuple[str, int]] = field(default_factory=set)
    found: dict[str, HeldPlace] = field(default_factory=dict)
    #: Places of something that is found elsewhere, too.
    aliases: dict[str, HeldPlace] = field(default_factory=dict)
    #: Objects that were looked into and may have further attributes, by their paths.
    holders: dict[str, Any] = field(default_factory=dict)
    #: Places with what nothing is known of: objects of packages, functions, data.
    passed: set[str] = field(default_factory=set)
    #: Iterators, which cannot be set: only how far they have come is known.
    iterators: dict[str, Any] = field(default_factory=dict)
    #: Where the walk begins, and which of these places an object has its name from, wherever else it is found first.
    roots: set[str] = field(default_factory=set)
    named: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = {id(one): name for name, one in self.known.items()}

    def begin_all(self, frames: Sequence[Mapping[str, Any]]) -> None:
        """Walk from the variables of frames, of the innermost first.

        An object that is a variable of several has the name that it has in the outermost: there the run begins, before
        a function with the loop is given it. What is in containers has the innermost name: an outer list may be put
        together anew, of what the loop has in its own.
        """
        for variables in reversed(frames):
            for path, value in variables.items():
                if not is_single(value) and not issubclass(type(value), LEFT_ALONE):
                    self.named.setdefault(id(value), path)
        for variables in frames:
            for path, value in variables.items():
                self.begin(path, HeldPlace(value))

    def begin(self, path: str, place: HeldPlace) -> None:
        """Walk from a variable."""
        self.roots.add(path)
        self.visit(path, place, 0)

    def see(self, path: str, value: Any) -> None:
        """Note that something is found at a place."""
        self.seen[id(value)] = path
        self.known[path] = value

    def visit(self, path: str, place: HeldPlace, depth: int) -> None:
        """Find what a place leads to."""
        value = place.value
        if is_single(value):
            if place.put is not None and not is_time(value):
                self.found[path] = place
            return
        if id(value) in self.seen or self.named.get(id(value), path) != path:
            if place.put is not None:
                self.aliases[path] = place
            return
        if is_kept(value):
            self.see(path, value)
            if not issubclass(type(value), torch.Tensor) or find_memory(value) not in self.memory:
                self.found[path] = place
        elif issubclass(type(value), LEFT_ALONE):
            self.passed.add(path)
        elif depth < DEEPEST:
            self.see(path, value)
            self.look_into(path, place, depth)

    def look_into(self, path: str, place: HeldPlace, depth: int) -> None:
        """Find what is in a container or an object."""
        value = place.value
        if isinstance(value, tuple):
            if place.put is not None:
                self.found[path] = place
        elif isinstance(value, CONTAINERS):
            self.found[path] = place
        elif is_iterator(value):
            self.iterators[path] = value
        elif is_packaged(value):
            if is_stateful(value) and read_state(value) is not None:
                self.found[path] = place
                return
            self.passed.add(path)
        elif is_own(value) or issubclass(type(value), torch.nn.Module):
            self.holders[path] = value
        elif not issubclass(type(value), (torch.Tensor, *SETS)):
            self.passed.add(path)
        for key, member in self.list_members(value):
            self.visit(path + key, member, depth + 1)
        if path in self.holders and is_own(value):
            kind = type(value)
            self.visit(f"{kind.__module__}.{kind.__qualname__}", HeldPlace(kind), depth + 1)

    def list_members(self, value: Any) -> Iterator[tuple[str, HeldPlace]]:
        """What a value holds; of containers with very many items nothing."""
        if isinstance(value, CONTAINERS):
            yield from list_items(value) if len(value) <= MOST else ()
        elif issubclass(type(value), FUNCTIONS):
            yield from self.list_enclosed(value)
        elif issubclass(type(value), type):
            yield from list_of_class(value) if is_script_class(value) else ()
        elif issubclass(type(value), torch.nn.Module):
            yield from list_of_module(value)
        elif is_packaged(value):
            held = getattr(value, "__dict__", None)
            modules = [(name, one) for name, one in list((held if type(held) is dict else {}).items())]
            yield from ((f".{name}", HeldPlace(one)) for name, one in modules if issubclass(type(one), torch.nn.Module))
        elif is_own(value):
            yield from list_attributes(value)

    def list_enclosed(self, function: Any) -> Iterator[tuple[str, HeldPlace]]:
        """What a function of the script was made with and keeps; the object of a method."""
        if issubclass(type(function), MethodType):
            yield ".__self__", HeldPlace(function.__self__)
            return
        if is_installed(function.__code__.co_filename):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if has_content(cell) and name != "__class__" and (name, id(cell.cell_contents)) not in self.active:
                yield f":{name}", HeldPlace(cell.cell_contents, partial(setattr, cell, "cell_contents"))
        held = vars(function)
        yield from ((f".{name}", HeldPlace(held[name], partial(held.__setitem__, name))) for name in list(held))

    # What the run was given.

    def visit_model(self, title: str, model: torch.nn.Module) -> None:
        """Find what the script's modules hold that is neither a weight, nor a plain attribute, nor of a turn."""
        self.roots.add(title)
        for name, module in model.named_modules():
            path, kind = f"{title}.{name}" if name else title, find_class(module)
            self.holders[path] = module
            for key, place in list_own_of_module(module, find_skipped(kind) | find_used(kind), with_settings=False):
                self.visit(path + key, place, 1)
            if is_script_class(kind):
                self.visit(f"{kind.__module__}.{kind.__qualname__}", HeldPlace(kind), 1)

    def visit_optimizer(self, title: str, optimizer: torch.optim.Optimizer) -> None:
        """Find what an optimizer holds beside what torch's have: of a package's class numbers only."""
        self.roots.add(title)
        self.holders[title] = optimizer
        kind, held = find_class(optimizer), vars(optimizer)
        is_own_kind = is_own_class(kind) or kind.__module__.startswith("torch.")
        of_torch = {name for one in kind.__mro__ if one.__module__.startswith("torch.") for name in find_set_by(one)}
        for name in [one for one in held if one not in of_torch]:
            if is_own_kind or type(held[name]) in (int, float):
                self.visit(f"{title}.{name}", HeldPlace(held[name], partial(held.__setitem__, name)), 1)

    def visit_data(self, path: str, value: Any, depth: int = 0) -> None:
        """Find what the loop may set on data: attributes that reading does not set, of the script's own objects."""
        if is_single(value) or is_kept(value) or id(value) in self.seen or depth > DEEPEST:
            return
        self.see(path, value)
        if issubclass(type(value), FUNCTIONS):
            members = list(self.list_enclosed(value))
        elif isinstance(value, CONTAINERS):
            members = list(list_items(value)) if len(value) <= FEW else []
        elif type(getattr(value, "__dict__", None)) is dict and not issubclass(type(value), type | ModuleType):
            members = list(list_attributes(value))
        else:
            return
        if is_own(value, data_too=True):
            self.visit_settings(path, find_class(value), members)
        for key, place in members:
            self.visit_data(path + key, place.value, depth + 1)

    def visit_settings(self, path: str, kind: Any, members: Sequence[tuple[str, HeldPlace]]) -> None:
        """Find those attributes of an object of data; of one that fills a cache as it is read, single values only."""
        left = find_set_in_use(kind) | find_set_by_packages(kind)
        for key, place in members:
            if key[1:] in left or (sets_items_in_use(kind) and not is_single(place.value)):
                continue
            if is_single(place.value) or is_kept(place.value):
                self.visit(path + key, place, 1)
            elif type(place.value) is dict and len(place.value) <= FEW:
                for item, held in list_items(place.value):
                    if is_single(held.value):
                        self.visit(path + key + item, held, 1)


# What is in a value.


def list_items(value: Any) -> Iterator[tuple[str, HeldPlace]]:
    """The items of a container."""
    if isinstance(value, dict):
        pairs: Sequence[tuple[Any, Any]] = list(value.items())
    else:
        pairs = list(enumerate(value))
    for number, (key, item) in enumerate(pairs):
        # Of an object as a key the place alone is the same in every process.
        title = repr(key) if type(key) in (*PLAIN, tuple) else f"{type(key).__name__} {number}"
        yield f"[{title}]", HeldPlace(item, None if isinstance(value, tuple) else partial(value.__setitem__, key))


def list_attributes(value: Any) -> Iterator[tuple[str, HeldPlace]]:
    """The attributes of an object, in slots too."""
    held = getattr(value, "__dict__", {})
    for name in [one for one in held if isinstance(one, str)]:
        yield f".{name}", HeldPlace(held[name], partial(held.__setitem__, name))
    for name in list_slots(type(value)):
        if hasattr(value, name):
            yield f".{name}", HeldPlace(getattr(value, name), partial(object.__setattr__, value, name))


def list_slots(kind: type) -> list[str]:
    """The names of a class's slots."""
    slots = [vars(one).get("__slots__", ()) for one in kind.__mro__]
    names = [name for one in slots for name in ((one,) if isinstance(one, str) else tuple(one))]
    return [name for name in names if not name.startswith("__")]


def list_of_class(kind: type) -> Iterator[tuple[str, HeldPlace]]:
    """The values that a class of the script has, not its functions."""
    for name, value in list(vars(kind).items()):
        is_value = is_single(value) or is_kept(value) or isinstance(value, CONTAINERS)
        if not name.startswith("__") and is_value:
            yield f".{name}", HeldPlace(value, partial(setattr, kind, name))


def list_of_module(module: torch.nn.Module) -> Iterator[tuple[str, HeldPlace]]:
    """The weights of a module that the run was not given, and what the modules in it have beside them."""
    yield from ((f".{name}", HeldPlace(one)) for name, one in module.named_parameters())
    yield from ((f".{name}", HeldPlace(one)) for name, one in module.named_buffers())
    for name, one in module.named_modules():
        own = list_own_of_module(one, find_skipped(find_class(one)))
        yield from ((f".{name}{key}" if name else key, place) for key, place in own)


def list_own_of_module(
    module: torch.nn.Module, skipped: frozenset[str], with_settings: bool = True
) -> Iterator[tuple[str, HeldPlace]]:
    """What a module has beside weights and submodules, and is no part of a graph; plain settings only if asked for."""
    held = vars(module)
    for name, value in list(held.items()) if is_looked_at(find_class(module)) else ():
        if name in skipped or (not with_settings and type(value) in SETTINGS and not name.startswith("_")):
            continue
        if not issubclass(type(value), torch.Tensor) or value.grad_fn is None:
            yield f".{name}", HeldPlace(value, partial(held.__setitem__, name))


@lru_cache(maxsize=4096)
def find_skipped(kind: Any) -> frozenset[str]:
    """The attributes of a class of modules that are torch's or a package's."""
    if is_own_class(kind):
        return OF_MODULES | find_set_by_packages(kind, but="torch.nn.")
    return OF_MODULES


@lru_cache(maxsize=4096)
def is_looked_at(kind: Any) -> bool:
    """Whether a class of modules is of the script's own, or of torch's layers."""
    return is_own_class(kind) or bool(kind.__module__.startswith("torch.nn."))


@lru_cache(maxsize=4096)
def find_used(kind: Any) -> frozenset[str]:
    """The attributes of a class of the script's modules that calling them sets."""
    return find_set_in_use(kind) if is_own_class(kind) else frozenset()


def has_content(cell: CellType) -> bool:
    """Whether a variable of a closure has a value by now."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


# What is whose.


def find_class(value: Any) -> Any:
    """The class of an object, which has a hash, as mypy does not know."""
    return type(value)


def is_own(value: Any, data_too: bool = False) -> bool:
    """Whether a value is an object of the script's own classes, with attributes."""
    kind = find_class(value)
    if kind.__module__ == "builtins" or f"{kind.__module__}.".startswith("springtide."):
        return False
    if issubclass(kind, Enum) or not hasattr(kind, "__mro__"):
        return False
    is_looked_at = issubclass(kind, SimpleNamespace | Namespace) or is_looked_into(value)
    is_looked_at = is_looked_at or (data_too and issubclass(kind, Dataset) and is_own_class(kind))
    return is_looked_at and (type(getattr(value, "__dict__", None)) is dict or bool(list_slots(kind)))


def is_script_class(kind: Any) -> bool:
    """Whether a class is of the script's own files, and no enumeration."""
    is_ours = f"{kind.__module__}.".startswith(("springtide.", "builtins."))
    return not is_ours and not issubclass(kind, Enum) and is_own_class(kind)


def is_packaged(value: Any) -> bool:
    """Whether a value is an object of an installed package, no module and no function."""
    kind = type(value)
    if kind.__module__ in ("builtins", "_io") or issubclass(
        kind, (*FUNCTIONS, ModuleType, type, torch.nn.Module, *CONTAINERS)
    ):
        return False
    return not f"{kind.__module__}.".startswith(("springtide.", "functools.")) and not is_own(value)


def is_time(value: Any) -> bool:
    """Whether a number is a time of this year, which another process has of its own."""
    return isinstance(value, float) and abs(value - time.time()) < YEAR_S


def find_memory(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor, or of what it is a view of, begins."""
    return tensor.untyped_storage().data_ptr()
