"""Every module, optimizer, scheduler and scaler alive in this process, whether `prepare` was given it or not.

And copies of a module's weights that are in no module, as averages by hand and those of packages are: lists and dicts
of tensors with the weights' shapes that variables of the script lead to.

For `springtide verify`: state that a resume or a rescale would lose (an EMA, a scheduler of the script's own) must be
seen to differ. An object is named by the variable that holds it in the script; those without one are compared as a set
per class, because nothing else tells them apart in every process.
"""

import gc
import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from springtide.training.living_objects import bring_back
from springtide.training.state.script.loop_code import find_carried, find_written

Digest = Callable[[torch.Tensor], str]

#: Modules that torch makes of a user's by itself.
MADE_BY_TORCH = ("torch.fx.", "torch.jit.", "torch._")
#: Frames between the script and here, whose variables mean nothing to the user.
OURS = ("springtide.", "runpy", "torch.")
#: How far from a variable copies of weights are looked for, and among how many members.
DEEPEST, MOST = 3, 10_000
#: What is not looked into.
ENDS = (torch.nn.Module, torch.Tensor, torch.optim.Optimizer, Dataset, DataLoader, ModuleType, FunctionType, type)
KINDS = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)


def digest_alive(known: Collection[int], digest: Digest) -> dict[str, str]:
    """A digest per piece of state of all that is alive, but for the tensors that are known already, by their ids."""
    bring_back()
    gc.collect()  # what is garbage already must not count, for when it is collected differs from process to process
    objects = find_objects()
    names = name_objects(objects)
    found: dict[str, str] = {}
    nameless: dict[str, list[str]] = defaultdict(list)
    for one in objects:
        parts = {key: digest_value(value, digest) for key, value in list_state(one, known) if is_state(value)}
        if id(one) in names:
            label = f"{find_cause(one, known)} {names[id(one)]} ({type(one).__name__})"
            found.update({f"{label} {key}": value for key, value in parts.items()})
        elif parts:
            nameless[type(one).__name__].append(hash_text(repr(sorted(parts.items()))))
    for name, value in find_copies(objects, known):
        found[f"alive {name}"] = digest_value(list_tensors(value), digest)
    return found | {f"alive {name} without a name": hash_text(repr(sorted(all_))) for name, all_ in nameless.items()}


def find_copies(objects: Sequence[Any], known: Collection[int]) -> Iterator[tuple[str, Any]]:
    """Lists and dicts of tensors with the shapes of a module's weights, by how one would write them.

    Nothing else in containers is compared: what turns sum up or note is another on every number of processes, rightly.
    """
    from springtide.training.state.script.loop_variables import list_frames  # which needs what digests are made by

    modules = [one for one in objects if isinstance(one, torch.nn.Module)]
    forms = {tuple(tuple(one.shape) for one in form) for module in modules for form in list_forms(module)}
    seen: set[int] = {id(one) for one in objects}
    scopes: list[Mapping[str, Any]] = []
    for frame in list_frames():
        new = find_written(frame.f_code, frame.f_lasti) - find_carried(frame.f_code, frame.f_lasti)
        scope = frame.f_locals  # which later Pythons make anew for whoever asks, at a place that may be another's then
        scopes.append(scope)
        seen |= {id(frame.f_globals), id(scope)}
        open_ = [(name, value, 0) for name, value in scope.items() if name.isidentifier() and name not in new]
        while open_:
            name, value, depth = open_.pop()
            if id(value) in seen or issubclass(type(value), ENDS):
                continue
            seen.add(id(value))
            tensors = list_tensors(value)
            if tuple(tuple(one.shape) for one in tensors) in forms and not all(id(one) in known for one in tensors):
                yield name, value
            elif depth < DEEPEST:
                open_ += [(name + key, item, depth + 1) for key, item in islice(list_members(value), MOST)]


def list_forms(module: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """What copies of a module's weights may be copies of: all, those that are trained, its state."""
    parameters = list(module.parameters())
    for tensors in (parameters, [one for one in parameters if one.requires_grad], [*parameters, *module.buffers()]):
        if len(tensors) > 1:
            yield list(tensors)
    state = [value for value in module.state_dict().values() if isinstance(value, torch.Tensor)]
    if len(state) > 1:
        yield state


def list_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors that a container is made of, if it is made of nothing else."""
    items = list(value.values()) if isinstance(value, dict) else value if type(value) in (list, tuple) else []
    return list(items) if all(isinstance(one, torch.Tensor) for one in items) else []


def find_objects() -> list[Any]:
    """The objects of our kinds; modules that are part of another are left to it."""
    # A proxy may answer isinstance by doing things, its type does not.
    alive = [each for each in gc.get_objects() if issubclass(type(each), KINDS)]
    modules = [each for each in alive if isinstance(each, torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [each for each in alive if id(each) not in inner and not type(each).__module__.startswith(MADE_BY_TORCH)]


def list_state(one: Any, known: Collection[int]) -> Iterator[tuple[str, Any]]:
    """The state of one object that is not known already, each piece under a name."""
    if isinstance(one, torch.nn.Module):
        named = (*one.named_parameters(), *one.named_buffers())
        yield from ((name, tensor) for name, tensor in named if id(tensor) not in known)
    elif isinstance(one, torch.optim.Optimizer):
        yield from list_optimizer_state(one, known)
    else:
        yield from one.state_dict().items()


def find_cause(one: Any, known: Collection[int]) -> str:
    """Whether an object is an optimizer that was prepared, so that all its tensors are known, or just alive."""
    if not isinstance(one, torch.optim.Optimizer):
        return "alive"
    tensors = [value for state in one.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    trained = [parameter for group in one.param_groups for parameter in group["params"]]
    return "optimizer" if all(id(tensor) in known for tensor in (*trained, *tensors)) else "alive"


def list_optimizer_state(one: torch.optim.Optimizer, known: Collection[int]) -> Iterator[tuple[str, Any]]:
    """An optimizer's options by group, and its state by the place of the parameter."""
    for number, group in enumerate(one.param_groups):
        yield from ((f"group {number} {key}", value) for key, value in group.items() if key != "params")
    places = [parameter for group in one.param_groups for parameter in group["params"]]
    for place, parameter in enumerate(places):
        state = one.state.get(parameter, {})
        yield from ((f"{key} {place}", value) for key, value in state.items() if id(value) not in known)


def is_state(value: Any) -> bool:
    """Whether a value is made of what can be compared: tensors, numbers, words, and containers of them."""
    if isinstance(value, Mapping):
        return all(is_state(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(is_state(item) for item in value)
    return value is None or isinstance(value, torch.Tensor | bool | int | float | str)


def digest_value(value: Any, digest: Digest) -> str:
    """A digest of a piece of state."""
    if isinstance(value, torch.Tensor):
        return digest(value)
    if isinstance(value, Mapping):
        return hash_text(repr([(key, digest_value(item, digest)) for key, item in value.items()]))
    if isinstance(value, list | tuple):
        return hash_text(repr([digest_value(item, digest) for item in value]))
    return hash_text(repr(value))


def hash_text(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def name_objects(objects: list[Any]) -> dict[int, str]:
    """The variable that holds each object, by its id: of the outermost frame that has one, or a member of its value."""
    wanted = {id(one) for one in objects}
    names: dict[int, str] = {}
    scopes = list(list_scopes())
    for scope in scopes:
        for name, value in scope.items():
            if id(value) in wanted:
                names.setdefault(id(value), name)
    for scope in scopes:
        for name, value in scope.items():
            for key, item in list_members(value):
                if id(item) in wanted:
                    names.setdefault(id(item), f"{name}{key}")
    return names


def list_scopes() -> Iterator[Mapping[str, Any]]:
    """The variables of the script's frames, outermost first."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(OURS):
            frames.append(frame)
        frame = frame.f_back
    return (dict(frame.f_locals) for frame in reversed(frames))


def list_members(value: Any) -> Iterator[tuple[str, Any]]:
    """What a variable's value holds: items of containers, attributes of objects of the script's classes."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", item) for place, item in enumerate(value))
    elif not str(type(value).__module__).startswith(OURS):
        attributes = getattr(value, "__dict__", None)
        yield from ((f".{key}", item) for key, item in (list(attributes.items()) if type(attributes) is dict else ()))
