"""Random generators that objects have for themselves, beside the global ones: found, read, and seeded.

Transforms of libraries (albumentations, MONAI) draw from such, and so do datasets. Where a dataset does, they are
seeded by (epoch, sample) as the global ones are: then a sample is the same, whichever process reads it and when.
"""

import pickle
import random
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from springtide.training.workers.randomness import mix

KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
#: What holds none, or is too much to be looked through.
WITHOUT = (str, bytes, int, float, type(None), type, ModuleType, BuiltinFunctionType, torch.Tensor, np.ndarray)
#: How deep objects are looked into, how many members of one, and how many in all.
DEEPEST = 7
MOST = 200
MOST_IN_ALL = 20_000


def is_global(one: Any) -> bool:
    """Whether a generator is one of those that are switched from worker to worker."""
    default = (torch.default_generator, *torch.cuda.default_generators, np.random.mtrand._rand, random._inst)
    return type(one) is random.SystemRandom or any(one is each for each in default)


def read_state(one: Any) -> Any:
    """What a generator draws its next numbers by, in parts: what only seeding changes, and the rest."""
    if isinstance(one, torch.Generator):
        return one.initial_seed(), one.get_state().numpy().tobytes()
    if isinstance(one, np.random.Generator):
        return 0, pickle.dumps(one.bit_generator.state)
    if isinstance(one, np.random.RandomState):
        inside: Any = one.get_state(legacy=False)["state"]
        return inside["key"].tobytes(), inside["pos"]
    _, numbers, _ = one.getstate()
    return numbers[:-1], numbers[-1]


def capture(one: Any) -> Any:
    """All that a generator draws its next numbers by, as it is given back."""
    if isinstance(one, torch.Generator):
        return one.get_state()
    if isinstance(one, np.random.Generator):
        return one.bit_generator.state
    return one.get_state(legacy=False) if isinstance(one, np.random.RandomState) else one.getstate()


def restore(one: Any, state: Any) -> None:
    """Give it back; LookupError if it is another kind of generator."""
    try:
        if isinstance(one, torch.Generator):
            one.set_state(state)
        elif isinstance(one, np.random.Generator):
            one.bit_generator.state = state
        elif isinstance(one, np.random.RandomState):
            one.set_state(state)
        else:
            one.setstate(state)
    except (TypeError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise LookupError(f"a {type(one).__name__} cannot go on from what was saved: {error}") from error


def seed(one: Any, number: int) -> None:
    """Seed a generator in place, for it may be shared."""
    if isinstance(one, torch.Generator):
        one.manual_seed(number)
    elif isinstance(one, np.random.Generator):
        bits: Any = one.bit_generator
        bits.state = type(bits)(number).state
    elif isinstance(one, np.random.RandomState):
        one.seed(number & 0xFFFFFFFF)
    else:
        one.seed(number)


def find_held(holder: Any) -> list[Any]:
    """The generators that an object leads to, each once, in the order of its attributes and items."""
    found: list[Any] = []
    seen: set[int] = set()
    level = [holder]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for one in level:
            if id(one) in seen or len(seen) > MOST_IN_ALL:
                continue
            seen.add(id(one))
            if issubclass(type(one), KINDS):
                found += [] if is_global(one) else [one]
            elif not issubclass(type(one), WITHOUT):
                inner += list_members(one)
        level = inner
    return found


def list_members(one: Any) -> Iterator[Any]:
    """What an object holds; of a function what it was made with, and the globals that it names."""
    if issubclass(type(one), dict):
        yield from list(one.values()) if len(one) <= MOST else ()
    elif issubclass(type(one), list | tuple):
        yield from one if len(one) <= MOST else ()
    elif issubclass(type(one), FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or () if has_content(cell))
        yield from (one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__)
    elif issubclass(type(one), MethodType):
        yield one.__self__
    else:
        held = getattr(one, "__dict__", None)
        yield from list(held.values()) if type(held) is dict else ()
        if type(one).__module__ == "functools" and type(one).__name__ == "partial":
            yield from (one.func, *one.args, *one.keywords.values())


def has_content(cell: Any) -> bool:
    """Whether a variable of a closure has a value by now."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


class HeldGenerators:
    """The generators of a dataset, or of a collate function, and whether reading it draws from them.

    What is drawn once, where something is first used, is left alone: it is the same in every process. What draws again
    when it is read again is seeded from then on.
    """

    def __init__(self, holder: Any) -> None:
        self.all = find_held(holder)
        self.moves = 0

    @property
    def is_seeded(self) -> bool:
        """Whether they are seeded for each sample."""
        return self.moves >= 2

    def seed(self, number: int) -> None:
        """Seed all of them alike for one sample, if that is needed; each draws numbers of its own."""
        if self.is_seeded:
            for place, one in enumerate(self.all):
                seed(one, mix(number, place))

    def read(self) -> list[Any]:
        """What all of them draw by."""
        return [read_state(one) for one in self.all]

    def note(self, before: list[Any]) -> bool:
        """Note whether they were drawn from since; whether what was read then is to be read again."""
        if self.is_seeded or self.read() == before:
            return False
        self.moves += 1
        return True
