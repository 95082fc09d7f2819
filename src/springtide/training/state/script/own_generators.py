"""Random generators of a script's own (`np.random.default_rng(0)`, `torch.Generator()`) from which turns draw.

In DDP every rank has such a generator to itself. Here the logical workers of a process would draw from one, each going
on where the one before it has stopped, and a resume would begin it anew. Looked for in a process's first turns, in the
variables of the script's frames and what they hold. One that is seeded in every turn is as good as the global ones.
"""

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from springtide.errors import JobError
from springtide.training.state.script.alive_objects import list_members
from springtide.training.state.script.loop_variables import is_own, list_frames
from springtide.training.workers.generators import KINDS, is_global, read_state

#: What has generators rightly: a dataset that repeats its items seeds its own, and samplers draw once in an epoch.
DATA = (Dataset, Sampler, DataLoader)
#: Turns that must have drawn. One that is seeded alike in every turn is changed by the first only.
SEEN = 3
#: Members of a container that are looked at.
MOST = 200


class GeneratorWatch:
    """What the generators were before a turn, and in how many turns each was drawn from."""

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        #: Held, so that no other has the place of one in memory.
        self.held: dict[int, Any] = {}
        self.drawn: Counter[int] = Counter()

    def begin_turn(self, models: Sequence[torch.nn.Module]) -> None:
        """Before a turn."""
        found = list(find_generators(models))
        self.held |= {id(one): one for _, one in found}
        self.before = {id(one): read_state(one) for _, one in found}

    def end_turn(self, models: Sequence[torch.nn.Module], state: Mapping[str, Any]) -> None:
        """After a turn of a worker with this state of its own: refuse one that turns go on drawing from."""
        for name, one in find_generators(models):
            was, now = self.before.pop(id(one), None), read_state(one)
            if was is not None and has_gone_on(was, now) and not is_kept(one, state):
                self.drawn[id(one)] += 1
                if self.drawn[id(one)] == SEEN:
                    refuse_generator(name, one)


def find_generators(models: Sequence[torch.nn.Module]) -> Iterator[tuple[str, Any]]:
    """The generators that variables of the script's frames, their members and modules of the models hold, by name."""
    named = [pair for frame in list_frames() for pair in list(frame.f_locals.items())]
    named += [(f"{type(one).__name__}", one) for model in models for one in model.modules()]
    data = [value for _, value in named if issubclass(type(value), DATA)]
    owned = {id(item) for one in data for item in getattr(one, "__dict__", {}).values()}
    for name, value in named:
        for key, item in [("", value), *(islice(list_members(value), MOST) if is_looked_into(value) else ())]:
            if issubclass(type(item), KINDS) and id(item) not in owned and not is_global(item):
                yield name + key, item


def is_looked_into(value: Any) -> bool:
    """Whether a value's members are looked at: containers, and objects of the script's own classes."""
    kind = type(value)  # a proxy may answer isinstance by doing things, its type does not
    if issubclass(kind, dict | list | tuple):
        return True
    if issubclass(kind, (type, ModuleType, *DATA)):
        return False
    return is_own(kind)


def has_gone_on(before: Any, after: Any) -> bool:
    """Whether a generator was drawn from without being seeded.

    Python's and NumPy's old ones hide it where they make numbers ahead, once in 624; the turns around that show it.
    """
    return bool(before[0] == after[0] and before[1] != after[1])


def is_kept(one: Any, state: Mapping[str, Any]) -> bool:
    """Whether a worker's own state has what the generator goes on from."""
    if isinstance(one, torch.Generator):
        now = one.get_state()
        return any(isinstance(each, torch.Tensor) and torch.equal(each.cpu(), now) for each in state.values())
    if isinstance(one, np.random.Generator):
        return any(isinstance(each, dict) and pickle.dumps(each) == read_state(one)[1] for each in state.values())
    return False


def refuse_generator(name: str, one: Any) -> None:
    """Refuse a generator that turns draw from."""
    raise JobError(
        f"`{name}` is a random generator of the script's own ({type(one).__module__}.{type(one).__name__}) from which "
        "turns draw: every rank of DDP has one to itself, here the logical workers of a process share it and draw "
        "other numbers on other numbers of processes. Draw from the global generators (torch.randn(...), np.random, "
        "random), which are each worker's own, saved and resumed; or seed it anew in every turn, from step.number and "
        "step.worker.rank"
    )
