"""What objects in a script's variables hold and nobody gave to the run: an average, a target network, a best score.

A process that joins or resumes makes such objects anew, by the lines before the loop, and would go on with what they
were at the very start. So what has changed in them since the loop was first entered belongs to the state: tensors are
put back in place, numbers into the lists, dicts and objects that hold them. So does what the loop sets on models,
optimizers and data beside what the run itself keeps. A variable itself cannot be set from outside (`loop_variables`
names what is lost with one), and what the loop binds before it reads it is nobody's state.
"""

import copy
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from springtide.training.state.digests import is_sharded
from springtide.training.state.script.class_code import find_set_by_packages
from springtide.training.state.script.held_iterators import mark_iterator
from springtide.training.state.script.held_values import (
    CONTAINERS,
    from_plain,
    is_single,
    is_small,
    is_stateful,
    is_tree,
    mark,
    mark_whole,
    read_state,
    refill,
    to_plain,
)
from springtide.training.state.script.loop_code import find_carried, find_written
from springtide.training.state.script.loop_variables import OURS, is_installed, list_frames
from springtide.training.state.script.object_walk import HeldPlace, Walk, find_class, find_memory
from springtide.training.state.state_tree import Path, find_placed, move_placed
from springtide.training.state.state_tree import refill as refill_tree
from springtide.training.workers.generators import find_held

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: What places of data and of other modules begin with: of these nothing is told that is not kept, for they hold what
#: belongs to a process (files, caches, a library that was loaded).
DATA, MODULE = "prepared data", "module "


class ScriptObjects:
    """What objects of the script held when the loop was first entered, and what of it came from another process."""

    def __init__(self) -> None:
        self.first: dict[str, Any] = {}
        self.brought: set[str] = set()
        #: Objects that were looked into then, with the attributes that packages set in them, and which places had
        #: something that was found elsewhere, with where.
        self.holders: dict[str, frozenset[str]] = {}
        self.aliases: dict[str, str] = {}
        #: How far iterators had come then, and the generators of data, which are seeded wherever they are read.
        self.iterators: dict[str, str] = {}
        self.of_data: list[Any] | None = None
        #: What `run.state` was given in `prepare`, which variables of the script may have by now.
        self.given: dict[str, Any] = {}

    def begin(self, run: "ElasticRun") -> None:
        """Remember what is there before the first epoch's own lines, and what they have made where the loop is entered.

        By then what was saved is in its place.
        """
        if self.of_data is None:
            self.of_data = find_data_generators(run)
        walk = walk_script(run)
        self.iterators = {path: mark_iterator(one) for path, one in walk.iterators.items()} | self.iterators
        holders = {path: find_set_by_packages(find_class(one), but="torch.nn.") for path, one in walk.holders.items()}
        aliases = {path: walk.seen[id(place.value)] for path, place in walk.aliases.items()}
        known = self.first.keys() | self.aliases.keys()
        self.first |= {path: mark_place(one.value) for path, one in walk.found.items() if path not in known}
        self.aliases |= {path: to for path, to in aliases.items() if path not in known}
        self.holders |= {path: names for path, names in holders.items() if path not in self.holders}

    def capture(self, run: "ElasticRun") -> dict[str, Any]:
        """What has become another since then, by its place, and the places of what is too much to be kept."""
        walk = walk_script(run)
        changed: dict[str, Any] = {}
        whole: tuple[str, ...] = ()
        states: set[str] = set()
        for path, place in walk.found.items():
            if path.startswith(whole) or not self.has_changed(path, place):
                continue
            changed[path] = read_state(place.value) if is_stateful(place.value) else place.value
            states |= {path} if is_stateful(place.value) else set()
            if isinstance(place.value, CONTAINERS):  # of one that has other items, all
                whole += (f"{path}[",)
        kept = [path for path, value in changed.items() if is_tree(value) and (path in states or is_small(value))]
        small = {path: to_plain(changed[path]) for path in kept}
        aliases = {path: walk.seen[id(place.value)] for path, place in walk.aliases.items()}
        moved = {path: to for path, to in aliases.items() if not path.startswith(whole) and self.has_moved(path, to)}
        left_out = [path for path in changed if path not in small and not path.startswith((DATA, MODULE))]
        return {
            "values": small,
            "left_out": left_out,
            "aliases": moved,
            "missing": [path for path in self.list_missing(walk) if not path.startswith(whole)],
            "placed": find_placed(small),
            "iterators": {path: text for path, text in list_moved(walk, self.iterators)},
        }

    def has_changed(self, path: str, place: HeldPlace) -> bool:
        """Whether a place has another value than at first, or an object has it that had not got it then."""
        if path in self.first:
            return path in self.brought or bool(mark_place(place.value) != self.first[path])
        return path in self.aliases or self.is_later(path)

    def has_moved(self, path: str, to: str) -> bool:
        """Whether a place has something that is found elsewhere, and has not had that at first."""
        if self.is_of_package(path):
            return False
        if path in self.aliases:
            return path in self.brought or self.aliases[path] != to
        return path in self.first or self.is_later(path)

    def is_later(self, path: str) -> bool:
        """Whether a place is an attribute that an object of the start has got since."""
        owner, _, name = path.rpartition(".")
        is_new = owner in self.holders and name.isidentifier() and path not in self.holders
        return is_new and name not in self.holders[owner]

    def is_of_package(self, path: str) -> bool:
        """Whether a place is an attribute that a package sets, from whose class one of the script's is derived."""
        owner, _, name = path.rpartition(".")
        return owner in self.holders and name in self.holders[owner]

    def list_missing(self, walk: Walk) -> Iterator[str]:
        """Places of the start that are no longer found, and objects that are found now and were not."""
        found = walk.found.keys() | walk.aliases.keys() | walk.passed
        for path in self.first:
            is_told = find_root(path) in walk.roots and not path.startswith((DATA, MODULE))
            if is_told and path not in found and not self.is_of_package(path):
                yield path
        yield from (path for path in walk.holders if self.is_later(path) and not path.startswith(MODULE))

    def adopt(self, run: "ElasticRun", saved: Mapping[str, Any]) -> list[str]:
        """Put what was saved into its place; a phrase for each that has none here, or was not saved."""
        walk = walk_script(run)
        values = move_placed(dict(saved["values"]), saved.get("placed", ()), run.device)
        lost = [path for path, value in values.items() if not put_back(walk, path, value)]
        aliases = saved.get("aliases", {})
        for path, to in aliases.items():
            put_alias(walk, path, to)
        self.brought |= values.keys() | aliases.keys()
        missing = [path for path in saved.get("missing", ()) if path not in walk.holders]  # else made here, too
        now = {path: mark_iterator(one) for path, one in walk.iterators.items()}
        behind = [path for path, text in saved.get("iterators", {}).items() if now.get(path, text) != text]
        phrases = [f"{path} is not what it was" for path in (*lost, *saved["left_out"], *missing)]
        return phrases + [f"the iterator {path} is not where it was" for path in behind]


def adopt_user(run: "ElasticRun", user: Mapping[str, Any], placed: Iterable[Path], is_final: bool) -> None:
    """Give `run.state` what was saved: in `prepare`, and once more where the loop is entered.

    What is `placed` was on an accelerator, and goes to the run's device.
    `shadow = run.state.setdefault("shadow", ...)` between the two has what was given first, and goes on with it.
    """
    given, now = run.objects.given, run.state
    filled = {
        key: refill_tree(given[key], value) if key in given and now.get(key) is given[key] else value
        for key, value in user.items()
    }
    move_placed(filled, placed, run.device)
    run.state.clear()
    run.state.update(filled)
    run.objects.given = {} if is_final else filled


def put_back(walk: Walk, path: str, value: Any) -> bool:
    """Put a value into its place; whether that could be done."""
    place = walk.found.get(path)
    if place is not None and is_stateful(place.value):
        return load_state(place.value, from_plain(value))
    try:
        filled = refill(None if place is None else place.value, from_plain(value))
    except (RuntimeError, LookupError):  # a tensor that may not be written to, or a class that is known nowhere here
        return False
    if place is None:
        return put_anew(walk, path, filled)
    if filled is not place.value and place.put is None:
        return is_single(place.value) and bool(mark(filled) == mark(place.value))
    if filled is not place.value and place.put is not None:
        place.put(filled)
    return True


def load_state(one: Any, state: Any) -> bool:
    """Give an object of a package its state; whether it takes it."""
    try:
        one.load_state_dict(copy.deepcopy(state))
    except Exception:  # a package's, which may be another version than the one that was saved from
        return False
    return True


def put_anew(walk: Walk, path: str, value: Any) -> bool:
    """Put a value where something is that others have as well, or where an object has nothing yet."""
    if path in walk.aliases:
        place = walk.aliases[path]
        assert place.put is not None
        place.put(value)
        return True
    owner, _, name = path.rpartition(".")
    if owner not in walk.holders or not name.isidentifier():
        return False
    object.__setattr__(walk.holders[owner], name, value)
    return True


def put_alias(walk: Walk, path: str, to: str) -> None:
    """Let a place have what is found elsewhere; where that is not, nothing is done."""
    place = walk.aliases.get(path) or walk.found.get(path)
    if to not in walk.known:
        return
    if place is None:
        put_anew(walk, path, walk.known[to])
    elif place.put is not None and place.value is not walk.known[to]:
        place.put(walk.known[to])


def mark_place(value: Any) -> Any:
    """A mark of what is in a place."""
    return mark_whole(read_state(value)) if is_stateful(value) else mark(value)


def list_moved(walk: Walk, before: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The iterators that have gone on since the start, and how far."""
    for path, one in walk.iterators.items():
        text = mark_iterator(one)
        if before.get(path, text) != text:
            yield path, text


# Where things are.


def find_root(path: str) -> str:
    """The variable that a place is reached from, with the function that has it."""
    title, call, rest = path.rpartition("().")
    return title + call + re.split(r"[.\[:]", rest, maxsplit=1)[0]


def walk_script(run: "ElasticRun") -> Walk:
    """Every place that variables of the script's frames lead to, by how one would write it there; and more.

    The script's other modules, what it has set on models and optimizers, and on data.
    """
    frames = list(list_frames())
    walk = Walk(list_known(run), list_memory(run), {pair for frame in frames for pair in list_cells(frame)})
    walk.seen |= {id(frame.f_globals): "" for frame in frames}
    walk.begin_all([dict(list_variables(frame)) for frame in frames])
    for number, model in enumerate(run.models):
        walk.visit_model(f"prepared model{number or ''}", model)
    for number, optimizer in enumerate(run.optimizers):
        walk.visit_optimizer(f"prepared optimizer{number or ''}", optimizer)
    walk.visit_data(f"{DATA}", run.loader.feed.dataset)
    walk.visit_data(f"{DATA} (collate)", run.loader.feed.collate)
    for module, names in list_modules(frames):
        for name, value in names.items():
            if not name.startswith("__") and not is_single(value):
                walk.begin(f"{MODULE}{module}.{name}", HeldPlace(value))
    return walk


def list_variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The variables of a frame, but for those that its loop sets before it reads them."""
    title = "" if frame.f_code.co_name == "<module>" else f"{frame.f_code.co_name}()."
    new = find_written(frame.f_code, frame.f_lasti) - find_carried(frame.f_code, frame.f_lasti)
    for name, value in list(frame.f_locals.items()):
        if name.isidentifier() and not name.startswith("__") and name not in new:
            yield title + name, value


def list_cells(frame: FrameType) -> Iterator[tuple[str, int]]:
    """The variables of a frame that functions made in it have as well."""
    names = (*frame.f_code.co_cellvars, *frame.f_code.co_freevars)
    values = frame.f_locals
    return ((name, id(values[name])) for name in names if name in values)


def list_modules(frames: Iterable[FrameType]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The other modules of the script: those that lie in its folders."""
    files = {os.path.dirname(frame.f_code.co_filename) for frame in frames}
    folders = tuple(f"{file}{os.sep}" for file in files if os.path.isabs(file))
    known = {id(frame.f_globals) for frame in frames}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_near = isinstance(file, str) and file.startswith(folders) and not is_installed(file)
        if is_near and not f"{name}.".startswith(OURS) and id(vars(module)) not in known:
            yield name, dict(vars(module))


# What the run has.


def list_known(run: "ElasticRun") -> dict[str, Any]:
    """What the run has or was given, each by a name."""
    parts = [run, run.loader, run.loader.given, run.state, *run.models, *run.optimizers, *run.schedulers, *run.scalers]
    modules = [module for model in run.models for module in model.modules()]
    known = (*parts, *modules, *run.kept.values(), *(run.objects.of_data or ()))
    return {f"known {number}": one for number, one in enumerate(known)}


def find_data_generators(run: "ElasticRun") -> list[Any]:
    """The generators that data, samplers and loaders of the run hold."""
    feed = run.loader.feed
    return find_held([feed.dataset, feed.sampler, feed.batch_sampler, feed.collate, run.loader.given])


def list_memory(run: "ElasticRun") -> set[int]:
    """Where the tensors of the run's models and of modules that are kept lie."""
    modules = [one for one in (*run.models, *run.kept.values()) if issubclass(type(one), torch.nn.Module)]
    tensors = [one for module in modules for one in (*module.parameters(), *module.buffers())]
    return {find_memory(one) for one in tensors if not is_sharded(one)}
