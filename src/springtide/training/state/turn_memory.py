"""What a script or a model remembers from the turn of one logical worker to that of the next: found, and refused.

In DDP a hidden state, a bank of features or a counter in `forward` is a rank's own. In a process with several logical
workers each would find what the one before it has left, and other numbers of processes would give other bits. Looked
for in the first turns at each place where a script walks a step, and again where the guard of turns looks: variables of
`for ... in step:` by its bytecode, attributes of modules by what becomes of them. Numbers are nearly always printed,
and nothing else: only those are refused that gradients depend on. Whoever joins processes that have looked runs the
script that they have looked at, and need not: reading its code takes longer than all else of a rescale.
"""

import ast
import inspect
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from types import CodeType, FrameType, FunctionType, MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from springtide.errors import JobError
from springtide.training.state.script.flow_values import Names
from springtide.training.state.script.in_place import InPlaceWatch
from springtide.training.state.script.loop_code import (
    find_collected,
    find_left,
    find_passed_on,
    find_remembered,
    read_code,
)
from springtide.training.state.script.loop_variables import find_value, is_installed, list_frames, write_plain
from springtide.training.state.script.own_generators import GeneratorWatch
from springtide.training.state.script.trained_variables import (
    find_counted,
    find_counted_around,
    find_kept,
    find_place,
    find_trained,
)

#: Turns at a place that are looked at, and how many of them must have begun with a value: a hidden state is often
#: None at first. What is set anew now and then, as a cache that grows, does not change in all of these.
FIRST = 5
SEEN = 3
#: Objects that are looked at elsewhere, or that nothing of a turn goes into.
LEFT_ALONE = (Dataset, Sampler, DataLoader, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
#: Modules whose classes are no script's: Python's, and ours, which lie beside a script's in a checkout.
NOT_OF_SCRIPTS = ("builtins", "springtide.")
#: In the place of an owner: that it is a variable.
VARIABLE = "<variable>"
#: Attributes of modules and of other objects, by the name of the owner and theirs.
Attributes = dict[tuple[str, str], Any]


@dataclass(frozen=True, slots=True, eq=False)
class HeldTensor:
    """What an object of the script holds, and the object, which may be another in every turn as a batch is."""

    owner: Any
    value: Any


class TurnMemory:
    """What turns hand on, by the place of the loop over a step: looked at in the first turns that it has there."""

    def __init__(self, warn: Callable[[str], None] = warnings.warn) -> None:
        self.warn = warn
        #: The places whose first turns have been, ever, and since turns were last to be looked at again.
        self.known: set[str] = set()
        self.over: set[str] = set()
        #: What looks have taken since that was last asked.
        self.spent_s = 0.0
        #: Those where they are under way.
        self.looks: dict[str, TurnLook] = {}
        #: Where the present turn is, if it is looked at.
        self.place: str | None = None

    def list_over(self) -> list[str]:
        """The places that have been looked at."""
        return sorted(self.known)

    def look_again(self) -> None:
        """Look at the next turns at every place, in which the script may do what it has not done before."""
        self.over.clear()

    def take_spent(self) -> float:
        """The seconds that looks have taken since this was last asked."""
        spent_s, self.spent_s = self.spent_s, 0.0
        return spent_s

    def skip(self, places: Iterable[str]) -> None:
        """Look at nothing there: processes with the same script have."""
        self.known |= set(places)
        self.over |= self.known

    def begin_turn(self, models: Sequence[torch.nn.Module]) -> None:
        """Before a turn."""
        place = " ".join(name_place(frame.f_code, frame.f_lasti) for frame in list_walking())
        self.place = None if place in self.over else place
        if self.place is not None:
            began_s = time.monotonic()
            self.looks.setdefault(place, TurnLook(self.warn)).begin_turn(models)
            self.spent_s += time.monotonic() - began_s

    def end_turn(self, models: Sequence[torch.nn.Module], state: Mapping[str, Any] = MappingProxyType({})) -> None:
        """After a turn of a worker with this state of its own: refuse what it hands on to the next."""
        place, self.place = self.place, None
        if place is None:
            return
        began_s, look = time.monotonic(), self.looks[place]
        look.end_turn(models, state)
        if look.turns == FIRST:
            self.known.add(place)
            self.over.add(place)
            del self.looks[place]
        self.spent_s += time.monotonic() - began_s


class TurnLook:
    """What was found before a turn at one place, in how many turns each was there, and became another."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        #: The looks that this code was too much for.
        self.failed: set[str] = set()
        self.turns = 0
        self.before: Attributes = {}
        self.seen: Counter[tuple[str, str]] = Counter()
        self.changes: Counter[tuple[str, str]] = Counter()
        #: The objects that turns began with; only what these hold can be handed on.
        self.owners: dict[int, weakref.ref[Any]] = {}
        self.generators, self.in_place = GeneratorWatch(), InPlaceWatch()
        #: The variables that gradients depend on, by the code and the place in it of a loop over a step.
        self.trained: dict[tuple[CodeType, int], Names] = {}
        #: What variables that the loop may leave as they are were before a turn, in words, and how many changed them.
        self.words: dict[tuple[CodeType, str], str] = {}
        self.rewritten: Counter[tuple[CodeType, str]] = Counter()

    def begin_turn(self, models: Sequence[torch.nn.Module]) -> None:
        """Before a turn."""
        self.attempt(self.note_attributes, models)
        self.attempt(self.note_variables)
        self.attempt(self.generators.begin_turn, models)
        self.attempt(self.note_in_place)

    def end_turn(self, models: Sequence[torch.nn.Module], state: Mapping[str, Any]) -> None:
        """After a turn."""
        self.turns += 1
        self.attempt(self.count_variables)
        self.attempt(self.refuse_numbers)
        self.attempt(self.refuse_variables)
        self.attempt(self.refuse_in_place)
        self.attempt(self.generators.end_turn, models, state)
        self.attempt(self.count_attributes, models)
        if self.turns == FIRST:
            refuse_attributes([key for key, count in self.changes.items() if count == self.seen[key] >= SEEN])

    def attempt(self, look: Callable[..., None], *given: Any) -> None:
        """Look, where the code can be followed: else it is said once, and no reason to end a script that may be right.

        Versions of Python have instructions of their own, in orders not thought of.
        """
        if look.__qualname__ in self.failed:
            return
        try:
            look(*given)
        except JobError:
            raise
        except Exception as error:
            if not self.failed:
                name = "".join([one.f_code.co_name for one in list_walking()][-1:])
                self.warn(
                    f"the code of {name} could not be followed ({type(error).__name__}: {error}); whether its turns "
                    "hand on something that gradients depend on is not known. Compare with springtide verify"
                )
            self.failed.add(look.__qualname__)

    # Variables.

    def note_variables(self) -> None:
        """Note what variables are that a turn may leave as they are."""
        self.words = dict(list_left())

    def count_variables(self) -> None:
        """Count those that it has not."""
        self.rewritten.update(key for key, text in list_left() if key in self.words and text != self.words[key])

    def is_handed_on(self, frame: FrameType, name: str) -> bool:
        """Whether turns go on from a variable: one that a turn may leave as it is must have become another in several.

        What is made in the first turn and kept, as a mask and the flag beside it, is not handed on.
        """
        return name not in find_left(frame.f_code, frame.f_lasti) or self.rewritten[frame.f_code, name] >= SEEN

    def refuse_variables(self) -> None:
        """Refuse a variable of the loop over a step that carries tensors from turn to turn.

        Not one that turns collect outputs in, as far as it is known what gradients depend on.
        """
        for frame in list_walking():
            trained = self.find_known(frame)
            collected = find_collected(frame.f_code, frame.f_lasti) - trained if trained else frozenset()
            for name in sorted(find_passed_on(frame.f_code, frame.f_lasti) - collected):
                if holds_tensor(find_value(frame, name)) and self.is_handed_on(frame, name):
                    refuse_tensor(name)

    def refuse_numbers(self) -> None:
        """Refuse a number that the loop over a step carries from turn to turn, and that gradients depend on."""
        for frame in list_walking():
            trained = self.find_trained(frame)
            for name in sorted(find_counted(frame, trained)):
                if holds_number(find_member(frame, name)) and self.is_handed_on(frame, name):
                    refuse_variable(name)
            place = find_place(frame)
            if place is not None and place in trained:
                refuse_place(place)

    def find_trained(self, frame: FrameType) -> Names:
        """The variables that gradients depend on in a loop that is under way; its code is read once."""
        key = frame.f_code, frame.f_lasti
        if key not in self.trained:
            self.trained[key] = frozenset()  # if it cannot be followed
            self.trained[key] = find_trained(frame)
        return self.trained[key]

    # What is changed where it is.

    def note_in_place(self) -> None:
        """Note what is in tensors and queues that gradients depend on."""
        self.in_place.begin_turn((frame, self.find_known(frame)) for frame in list_walking())

    def refuse_in_place(self) -> None:
        """Refuse those that turns change."""
        self.in_place.end_turn(((frame, self.find_known(frame)) for frame in list_walking()), self.warn)

    # Attributes.

    def note_attributes(self, models: Sequence[torch.nn.Module]) -> None:
        """Note what attributes of modules and of the script's objects are."""
        self.before = self.list_attributes(models)
        owners = (one.owner for one in self.before.values() if isinstance(one, HeldTensor))
        self.owners |= {id(one): weakref.ref(one) for one in owners if type(one).__weakrefoffset__}

    def count_attributes(self, models: Sequence[torch.nn.Module]) -> None:
        """Count those that have become others."""
        after = self.list_attributes(models)
        found = {key: value for key, value in self.before.items() if self.was_there(value, after.get(key))}
        self.seen.update(found.keys())
        self.changes.update(key for key, value in found.items() if key in after and differ(value, after[key]))

    def was_there(self, before: Any, after: Any) -> bool:
        """Whether what has an attribute was there when a turn began: a batch was not."""
        if not isinstance(before, HeldTensor) or not isinstance(after, HeldTensor) or after.owner is before.owner:
            return True
        reference = self.owners.get(id(after.owner))
        return reference is not None and reference() is after.owner

    def list_attributes(self, models: Sequence[torch.nn.Module]) -> Attributes:
        """What attributes of modules and of the script's objects are."""
        counted = chain.from_iterable(list_counted(frame, self.find_known(frame)) for frame in list_walking())
        return {**dict(list_remembered(models)), **dict(list_held()), **dict(counted)}

    def find_known(self, frame: FrameType) -> Names:
        """The variables that gradients depend on, if the loop was read: its first turn has to be over for that."""
        return self.trained.get((frame.f_code, frame.f_lasti), frozenset())


@lru_cache(maxsize=256)
def name_place(code: CodeType, place: int) -> str:
    """A place in code, by a text that is the same in all processes with the same script."""
    return f"{code.co_qualname}:{crc32(code.co_code):x}:{place}"


def list_walking() -> Iterator[FrameType]:
    """The frames of the script that walk a step: generators that pass its batches on, or train, and who asks them."""
    for frame in list_frames():
        yield frame
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return


def list_left() -> Iterator[tuple[tuple[CodeType, str], str]]:
    """What variables are, in words, that the loop over a step writes under a condition."""
    for frame in list_walking():
        for name in find_left(frame.f_code, frame.f_lasti):
            value = find_member(frame, name)
            yield (frame.f_code, name), write_plain(value) or (repr(value) if holds_number(value) else "")


def refuse_tensor(name: str) -> None:
    """Refuse a variable that carries a tensor."""
    raise JobError(
        f"`{name}` carries a tensor from the turn of one logical worker to that of the next, which in DDP are "
        f"different ranks. Keep it in step.worker.state[{name!r}], which is each worker's own and moves with it, "
        "or set it anew in every turn; what is only collected, as predictions are, appends to a list"
    )


def refuse_place(name: str) -> None:
    """Refuse a number of turns by enumerate(...)."""
    raise JobError(
        f"`{name}` counts turns, of which a process has as many as it has logical workers, and gradients depend "
        "on it: other numbers of processes would train otherwise. Write "
        f"`for {name}, batch in step.enumerate():`, which counts as enumerate(loader) does on a rank of DDP"
    )


def refuse_variable(name: str) -> None:
    """Refuse a variable that carries a number."""
    refuse_number(f"`{name}` carries a number from the turn of one logical worker to that of the next", name)


def refuse_number(what: str, name: str) -> None:
    """Refuse a number that turns count, or go on from."""
    raise JobError(
        f"{what}, which in DDP are different ranks, and gradients depend on it: other numbers of processes would train "
        "otherwise. Take step.number (in the run) or step.index (in the epoch), or change it after `for ... in step:`, "
        f"once per global step; what is a rank's own belongs into step.worker.state[{name!r}]"
    )


def find_member(frame: FrameType, name: str) -> object:
    """The value of a variable, of an attribute or of an item by a constant."""
    variable, bracket, key = name.partition("[")
    if not bracket:
        return find_value(frame, name)
    value = find_value(frame, variable)
    try:
        return value[ast.literal_eval(key.removesuffix("]"))] if isinstance(value, dict | list) else None
    except (KeyError, IndexError):
        return None


def holds_number(value: Any) -> bool:
    """Whether a value is a number, or a container of such."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    if type(value) in (list, tuple):
        return any(map(holds_number, value))
    return isinstance(value, int | float | np.number)


def refuse_attributes(keys: Iterable[tuple[str, str]]) -> None:
    """Refuse modules, other objects and variables around functions that turns change and go on from."""
    for module, attribute in keys:
        if module.startswith("`"):
            refuse_held(module, attribute)
        if module == VARIABLE:
            refuse_variable(attribute)
        if module.startswith("number of "):
            owner = module.removeprefix("number of ")
            refuse_number(f"{owner} changes its attribute {attribute!r} in every turn and goes on from it", attribute)
        raise JobError(
            f"module {module} changes its attribute {attribute!r} in every forward and reads it there, so each logical "
            "worker of a process would find what the one before it has left. Make it a buffer "
            f"(self.register_buffer({attribute!r}, torch.tensor(...)), changed in place), which is handled as by DDP, "
            "or change it after `for ... in step:`"
        )


def refuse_held(owner: str, attribute: str) -> None:
    """Refuse an object of the script that goes on in a turn from what the turn before has left in it."""
    raise JobError(
        f"{owner} changes its attribute {attribute!r}, a tensor, in every turn and goes on from it in the next, which "
        f"in DDP is that of another rank. Keep it in step.worker.state[{attribute!r}], which is each worker's own and "
        "moves with it, or set it anew in every turn"
    )


def holds_tensor(value: Any) -> bool:
    """Whether a value is a tensor of several numbers, or has one in it."""
    if isinstance(value, torch.Tensor):
        return value.numel() > 1
    if isinstance(value, Mapping):
        return any(map(holds_tensor, value.values()))
    return isinstance(value, list | tuple) and any(map(holds_tensor, value))


def list_remembered(models: Sequence[torch.nn.Module]) -> Iterator[tuple[tuple[str, str], Any]]:
    """The attributes of modules that their own code goes on from, and that are numbers or hold tensors.

    Those that are only shown too: a property, an owner of the module or a class of the script's may read them.
    """
    for name, module in chain.from_iterable(model.named_modules() for model in models):
        for attribute in find_own(type(module)):  # type: ignore[arg-type]  # every class of modules has a hash
            value = module.__dict__.get(attribute)
            if type(value) in (int, float) or holds_tensor(value):
                yield (f"{name or type(module).__name__}", attribute), value


def list_held() -> Iterator[tuple[tuple[str, str], Any]]:
    """The same of other objects that variables of the script hold: tensors only, for numbers are mostly printed."""
    for frame in list_frames():
        for variable, value in list(frame.f_locals.items()):
            kind = type(value)
            if kind.__module__.startswith(NOT_OF_SCRIPTS) or issubclass(kind, (type, *LEFT_ALONE)):
                continue
            for attribute in find_held(kind):  # type: ignore[arg-type]  # every class that is held has a hash
                item = getattr(value, "__dict__", {}).get(attribute)
                if holds_tensor(item) and f"{variable}.{attribute}" not in list_set(frame.f_code):
                    yield (f"`{variable}` ({kind.__name__})", attribute), HeldTensor(value, item)


def list_counted(frame: FrameType, trained: Names) -> Iterator[tuple[tuple[str, str], Any]]:
    """The numbers that gradients depend on, and that functions count in: of the script's objects, and around these."""
    for name in sorted(find_kept(frame, trained)):
        variable, _, attribute = name.partition(".")
        value, kind = find_value(frame, name), type(find_value(frame, variable))
        if type(value) in (int, float) and attribute in find_going_on(kind):  # type: ignore[arg-type]  # as below
            yield (f"number of `{variable}` ({kind.__name__})", attribute), value
    for name in sorted(find_counted_around(frame, trained)):
        value = find_value(frame, name)
        if type(value) in (int, float):
            yield (VARIABLE, name), value


@lru_cache(maxsize=4096)
def find_held(kind: Any) -> frozenset[str]:
    """The attributes that a class of the script's own goes on from: none of its functions sets them without that.

    Else a function may go on from what another has set in the same turn. A mere sum is left alone, as a variable is.
    """
    return find_going_on(kind) - {name for code in list_methods(kind) for name in find_sums(code)}


@lru_cache(maxsize=4096)
def find_going_on(kind: Any) -> frozenset[str]:
    """The same, mere sums included."""
    own = list_methods(kind)
    held = frozenset(chain.from_iterable(find_remembered(code) for code in own))
    return held - {name for code in own for name in list_own_set(code) - find_remembered(code)}


def list_methods(kind: Any) -> list[CodeType]:
    """The code of a class's functions that are of the script's own, but for what makes an object."""
    functions = [value for one in kind.__mro__ for value in vars(one).values() if isinstance(value, FunctionType)]
    return [
        one.__code__ for one in functions if one.__name__ != "__init__" and not is_installed(one.__code__.co_filename)
    ]


def find_sums(code: CodeType) -> frozenset[str]:
    """The attributes of its first argument that a function adds to, and does nothing else with."""
    whole = read_code(code)
    return frozenset(name for name in list_own_set(code) if whole.is_sum(f"{code.co_varnames[0]}.{name}"))


def list_own_set(code: CodeType) -> frozenset[str]:
    """The attributes of its first argument that a function sets."""
    owner = f"{code.co_varnames[0]}." if code.co_argcount else "."
    return frozenset(name.removeprefix(owner) for name in list_set(code) if name.startswith(owner))


@lru_cache(maxsize=4096)
def list_set(code: CodeType) -> frozenset[str]:
    """The variables and attributes that a function sets."""
    return frozenset(read_code(code).list_written())


def differ(before: Any, after: Any) -> bool:
    """Whether an attribute is another value; tensors by whether they are the same object."""
    before, after = (one.value if isinstance(one, HeldTensor) else one for one in (before, after))
    return (
        bool(before != after) if type(before) in (int, float) and type(after) in (int, float) else before is not after
    )


@lru_cache(maxsize=4096)
def find_own(kind: Any) -> frozenset[str]:
    """The attributes that functions of a class of modules go on from and set, where these are of the script's own.

    Installed packages are left alone: what they count (a metric its updates, a cache its length) is theirs to know.
    """
    return frozenset(chain.from_iterable(map(find_remembered, list_methods(kind))))
