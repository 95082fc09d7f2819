"""What a script or a model remembers from the turn of one logical worker to that of the next: found, and refused.

In DDP a hidden state, a bank of features or a counter in `forward` is a rank's own. In a process with several logical
workers each would find what the one before it has left, and other numbers of processes would give other bits. Looked
for in a process's first turns: variables of `for ... in step:` by its bytecode, attributes of modules by what becomes
of them. Numbers in variables are left alone; they are nearly always printed, and nothing else.
"""

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from types import FunctionType, MappingProxyType
from typing import Any

import torch

from springtide.errors import JobError
from springtide.training.state.loop_code import find_passed_on, find_remembered
from springtide.training.state.loop_variables import find_value, is_installed, list_frames
from springtide.training.state.own_generators import GeneratorWatch

#: Turns of a process that are looked at, and how many of them must have begun with a value: a hidden state is often
#: None at first. What is set anew now and then, as a cache that grows, does not change in all of these.
FIRST = 5
SEEN = 3
#: Attributes of modules, by the name of the module and theirs.
Attributes = dict[tuple[str, str], Any]


class TurnMemory:
    """What the models' attributes were before a turn, in how many turns each was there, and became another."""

    def __init__(self) -> None:
        self.turns = 0
        self.before: Attributes = {}
        self.seen: Counter[tuple[str, str]] = Counter()
        self.changes: Counter[tuple[str, str]] = Counter()
        self.generators = GeneratorWatch()

    def begin_turn(self, models: Sequence[torch.nn.Module]) -> None:
        """Before a turn."""
        if self.turns < FIRST:
            self.before = dict(list_remembered(models))
            self.generators.begin_turn(models)

    def end_turn(self, models: Sequence[torch.nn.Module], state: Mapping[str, Any] = MappingProxyType({})) -> None:
        """After a turn of a worker with this state of its own: refuse what it hands on to the next."""
        if self.turns == FIRST:
            return
        self.turns += 1
        refuse_variables()
        self.generators.end_turn(models, state)
        after = dict(list_remembered(models))
        self.seen.update(self.before.keys())
        self.changes.update(key for key, value in self.before.items() if key in after and differ(value, after[key]))
        if self.turns == FIRST:
            refuse_attributes([key for key, count in self.changes.items() if count == self.seen[key] >= SEEN])
            self.before = {}
            self.generators = GeneratorWatch()


def refuse_variables() -> None:
    """Refuse a variable of the loop over a step that carries tensors from turn to turn."""
    for name in find_handed_on():
        raise JobError(
            f"`{name}` carries a tensor from the turn of one logical worker to that of the next, which in DDP are "
            f"different ranks. Keep it in step.worker.state[{name!r}], which is each worker's own and moves with it, "
            "or set it anew in every turn"
        )


def find_handed_on() -> Iterator[str]:
    """The variables of the loop over a step, and of generators that pass its batches on, that carry tensors."""
    for frame in list_frames():
        passed_on = find_passed_on(frame.f_code, frame.f_lasti)
        yield from (name for name in sorted(passed_on) if holds_tensor(find_value(frame, name)))
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return


def refuse_attributes(keys: Iterable[tuple[str, str]]) -> None:
    """Refuse modules that change what they read."""
    for module, attribute in keys:
        raise JobError(
            f"module {module} changes its attribute {attribute!r} in every forward and reads it there, so each logical "
            "worker of a process would find what the one before it has left. Make it a buffer "
            f"(self.register_buffer({attribute!r}, torch.tensor(...)), changed in place), which is handled as by DDP, "
            "or change it after `for ... in step:`"
        )


def holds_tensor(value: Any) -> bool:
    """Whether a value is a tensor of several numbers, or has one in it."""
    if isinstance(value, torch.Tensor):
        return value.numel() > 1
    if isinstance(value, Mapping):
        return any(map(holds_tensor, value.values()))
    return isinstance(value, list | tuple) and any(map(holds_tensor, value))


def list_remembered(models: Sequence[torch.nn.Module]) -> Iterator[tuple[tuple[str, str], Any]]:
    """The attributes of modules that their own code goes on from, and that are numbers or hold tensors."""
    for name, module in chain.from_iterable(model.named_modules() for model in models):
        for attribute in find_own(type(module)):  # type: ignore[arg-type]  # every class of modules has a hash
            value = module.__dict__.get(attribute)
            if type(value) in (int, float) or holds_tensor(value):
                yield (f"{name or type(module).__name__}", attribute), value


def differ(before: Any, after: Any) -> bool:
    """Whether an attribute is another value; tensors by whether they are the same object."""
    return (
        bool(before != after) if type(before) in (int, float) and type(after) in (int, float) else before is not after
    )


@lru_cache(maxsize=4096)
def find_own(kind: Any) -> frozenset[str]:
    """The attributes that functions of a class of modules go on from and set, where these are of the script's own.

    Installed packages are left alone: what they count (a metric its updates, a cache its length) is theirs to know.
    """
    classes = [one for one in kind.__mro__ if issubclass(one, torch.nn.Module) and one is not torch.nn.Module]
    functions = [value for one in classes for value in vars(one).values() if isinstance(value, FunctionType)]
    own = [one.__code__ for one in functions if not is_installed(one.__code__.co_filename)]
    return frozenset(chain.from_iterable(map(find_remembered, own)))
