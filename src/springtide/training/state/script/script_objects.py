"""What objects in a script's variables hold and nobody gave to the run: an average, a target network, a best score.

A process that joins or resumes makes such objects anew, by the lines before the loop, and would go on with what they
were at the very start. So what has changed in them since the loop was first entered belongs to the state: tensors are
put back in place, numbers into the lists, dicts and objects that hold them. A variable itself cannot be set from
outside (`loop_variables` names what is lost with one), and what the loop binds before it reads it is nobody's state.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from springtide.training.state.digests import is_plain, is_sharded
from springtide.training.state.divergence import number_tensor
from springtide.training.state.script.loop_code import find_carried, find_written
from springtide.training.state.script.loop_variables import YEAR_S, list_frames
from springtide.training.state.script.own_generators import is_looked_into
from springtide.training.state.state_tree import Path, move_placed, refill

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

PLAIN = (bool, int, float, str, type(None))
CONTAINERS = (dict, list, tuple)
#: Data are read again; optimizers and schedules are the run's, or refused.
OF_TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
LEFT_ALONE = (Dataset, Sampler, DataLoader, *OF_TRAINING)
#: What every module has for itself; its weights are found by their names.
OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}
#: How deep objects are looked into, and how many members of one.
DEEPEST = 5
MOST = 10_000
#: Numbers in a container that has other items than at the start and is still kept whole.
LARGEST = 1 << 24
#: Numbers of a large tensor that are looked at: what trains changes all of them.
SAMPLED = 1 << 16


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Where an object holds something: what is there, and how something else is put there, where that can be done."""

    value: Any
    put: Callable[[Any], None] | None = None


class ScriptObjects:
    """What objects of the script held when the loop was first entered, and what of it came from another process."""

    def __init__(self) -> None:
        self.first: dict[str, Any] = {}
        self.brought: set[str] = set()
        #: What `run.state` was given in `prepare`, which variables of the script may have by now.
        self.given: dict[str, Any] = {}

    def begin(self, run: "ElasticRun") -> None:
        """Remember what is there; called where the loop is entered, after what was saved is in its place."""
        self.first = {path: mark(place.value) for path, place in find_places(run).items()}

    def capture(self, run: "ElasticRun") -> dict[str, Any]:
        """What has become another since then, by its place, and the places of what is too much to be kept."""
        changed: dict[str, Any] = {}
        whole: tuple[str, ...] = ()
        for path, place in find_places(run).items():
            if path not in self.first or path.startswith(whole):
                continue
            if path not in self.brought and mark(place.value) == self.first[path]:
                continue
            changed[path] = place.value
            if isinstance(place.value, CONTAINERS):  # of one that has other items, all
                whole += (f"{path}[",)
        small = {path: value for path, value in changed.items() if is_small(value)}
        return {"values": small, "left_out": [path for path in changed if path not in small]}

    def adopt(self, run: "ElasticRun", saved: Mapping[str, Any]) -> list[str]:
        """Put what was saved into its place; a phrase for each that has none here, or was not saved."""
        places = find_places(run)
        values = saved["values"]
        lost = [path for path, value in values.items() if path not in places or not put_back(places[path], value)]
        self.brought |= values.keys()
        return [f"{path} is not what it was" for path in (*lost, *saved["left_out"])]


def adopt_user(run: "ElasticRun", user: Mapping[str, Any], placed: Iterable[Path], is_final: bool) -> None:
    """Give `run.state` what was saved: in `prepare`, and once more where the loop is entered.

    What is `placed` was on an accelerator, and goes to the run's device.
    `shadow = run.state.setdefault("shadow", ...)` between the two has what was given first, and goes on with it.
    """
    given, now = run.objects.given, run.state
    filled = {
        key: refill(given[key], value) if key in given and now.get(key) is given[key] else value
        for key, value in user.items()
    }
    move_placed(filled, placed, run.device)
    run.state.clear()
    run.state.update(filled)
    run.objects.given = {} if is_final else filled


def put_back(place: HeldPlace, value: Any) -> bool:
    """Put a value into its place; whether that could be done."""
    try:
        filled = refill(place.value, value)
    except RuntimeError:  # a tensor that may not be written to
        return False
    if filled is not place.value and place.put is None:
        return False
    if filled is not place.value and place.put is not None:
        place.put(filled)
    return True


def mark(value: Any) -> Any:
    """Something that is another when the value is; of a container when it has another number of items."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        step = max(1, len(flat) // SAMPLED)
        return tuple(value.shape), 0 if value.is_inference() else value._version, int(number_tensor(flat[::step]))
    return type(value).__name__, len(value) if isinstance(value, CONTAINERS) else repr(value)


def is_small(value: Any) -> bool:
    """Whether a value is one to be kept: any tensor that was there, but no container that fills, as a cache does."""
    return is_tree(value, DEEPEST) and (not isinstance(value, CONTAINERS) or count_numbers(value) <= LARGEST)


def count_numbers(value: Any) -> int:
    """How many numbers are in a value."""
    if isinstance(value, CONTAINERS):
        return sum(map(count_numbers, value.values() if isinstance(value, dict) else value))
    return value.numel() if isinstance(value, torch.Tensor) else 1


def is_tree(value: Any, depth: int) -> bool:
    """Whether a value is what state is made of, down to a depth."""
    if isinstance(value, CONTAINERS):
        has_keys = not isinstance(value, dict) or all(type(key) in (str, int) for key in value)
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and has_keys and all(is_tree(item, depth - 1) for item in items)
    return is_plain(value) if isinstance(value, torch.Tensor) else type(value) in PLAIN


# Where things are.


def find_places(run: "ElasticRun") -> dict[str, HeldPlace]:
    """Every place that variables of the script's frames lead to, by how one would write it there."""
    walk = Walk(list_known(run), list_memory(run))
    frames = list(list_frames())
    walk.seen |= {id(frame.f_globals) for frame in frames}
    for frame in frames:
        title = "" if frame.f_code.co_name == "<module>" else f"{frame.f_code.co_name}()."
        carried = find_carried(frame.f_code, frame.f_lasti)
        new = find_written(frame.f_code, frame.f_lasti) - carried
        for name, value in list(frame.f_locals.items()):
            if name.isidentifier() and not name.startswith("__") and name not in new:
                walk.visit(title + name, HeldPlace(value), 0)
    return walk.found


@dataclass
class Walk:
    """A walk through objects: those that were seen or are known already, known memory, and the places found."""

    seen: set[int]
    memory: set[int]
    found: dict[str, HeldPlace] = field(default_factory=dict)

    def visit(self, path: str, place: HeldPlace, depth: int) -> None:
        """Find what a place leads to."""
        value = place.value
        if type(value) in PLAIN:
            if place.put is not None and not is_time(value):
                self.found[path] = place
            return
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if is_plain(value) and value.numel() and find_memory(value) not in self.memory:
                self.found[path] = place
        elif depth < DEEPEST and not issubclass(type(value), LEFT_ALONE):
            if isinstance(value, CONTAINERS):
                self.found[path] = place
            for key, member in list_members(value):
                self.visit(path + key, member, depth + 1)


def list_members(value: Any) -> Iterator[tuple[str, HeldPlace]]:
    """What an object holds: a module its weights, a container its items, others of the script's classes attributes.

    Of containers with very many items nothing.
    """
    if issubclass(type(value), torch.nn.Module):
        yield from ((f".{name}", HeldPlace(one)) for name, one in (*value.named_parameters(), *value.named_buffers()))
    if isinstance(value, dict) and len(value) <= MOST:
        yield from (
            (f"[{key!r}]", HeldPlace(item, partial(value.__setitem__, key))) for key, item in list(value.items())
        )
    elif isinstance(value, list) and len(value) <= MOST:
        yield from (
            (f"[{number}]", HeldPlace(item, partial(value.__setitem__, number))) for number, item in enumerate(value)
        )
    elif isinstance(value, tuple) and len(value) <= MOST:
        yield from ((f"[{number}]", HeldPlace(item)) for number, item in enumerate(value))
    elif not isinstance(value, CONTAINERS) and is_own(value):
        held = vars(value)
        names = [name for name in held if isinstance(name, str) and name not in OF_MODULES]
        yield from ((f".{name}", HeldPlace(held[name], partial(held.__setitem__, name))) for name in names)


def is_own(value: Any) -> bool:
    """Whether a value is an object of the script's own classes, with attributes."""
    kind = type(value)
    if kind.__module__ == "builtins" or kind.__module__.startswith("springtide."):
        return False
    is_looked_at = issubclass(kind, SimpleNamespace | Namespace) or is_looked_into(value)
    return is_looked_at and type(getattr(value, "__dict__", None)) is dict


def is_time(value: Any) -> bool:
    """Whether a number is a time of this year, which another process has of its own."""
    return type(value) is float and abs(value - time.time()) < YEAR_S


# What the run has.


def list_known(run: "ElasticRun") -> set[int]:
    """The ids of what the run has or was given."""
    parts = [run, run.loader, run.loader.given, run.state, *run.models, *run.optimizers, *run.schedulers, *run.scalers]
    modules = [module for model in run.models for module in model.modules()]
    return {id(one) for one in (*parts, *modules, *run.kept.values())}


def list_memory(run: "ElasticRun") -> set[int]:
    """Where the tensors of the run's models and of modules that are kept lie."""
    modules = [one for one in (*run.models, *run.kept.values()) if issubclass(type(one), torch.nn.Module)]
    tensors = [one for module in modules for one in (*module.parameters(), *module.buffers())]
    return {find_memory(one) for one in tensors if not is_sharded(one)}


def find_memory(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor, or of what it is a view of, begins."""
    return tensor.untyped_storage().data_ptr()
