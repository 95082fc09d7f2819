"""What callbacks of a script remember between steps, which a process that joins or resumes has not.

Plain values are told of by the run where they differ, as variables of a script are. Tensors that change from update to
update, as an average of the weights, would be others after a rescale or a kill: they are refused.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from springtide.errors import JobError
from springtide.integrations.callback_sources import is_set_anew
from springtide.training.state.divergence import number_tensor
from springtide.training.state.script.loop_variables import is_own, watch_called

#: A process's first updates, before each of which is looked, and how many changes of an attribute are too many.
LOOKS = 50
MOST = 3
#: After them, one part in so many of the time is spent on looking: before a few updates in succession, for an average
#: that begins late changes with each. What changes now and then, as the best weights, must not stop a run half way.
PARTS = 600
#: Looks in succession: between these lie as many changes as are too many.
SERIES = MOST + 1
#: Objects that the run or the framework knows, attributes that hold data, and a length that only data have.
LEFT_ALONE = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, DataLoader, Dataset, type)
DATA = ("train_dataset", "eval_dataset")
LONGEST = 4096


class CallbackMemory:
    """The callbacks and other objects of a script that a framework calls, and how often their tensors have changed."""

    def __init__(self, run: Any, callbacks: Iterable[Any], others: Iterable[Any]) -> None:
        self.run = run
        callbacks = [one for one in callbacks if is_own(type(one))]
        watch_called(callbacks)
        self.owners = [*callbacks, *(one for one in others if is_own(type(one)))]
        self.count = len(callbacks)
        self.updates = 0
        self.due_s = self.spent_s = 0.0
        #: How many looks are left of a few in succession.
        self.left = 0
        self.before: dict[tuple[int, str], int] = {}
        self.changes: Counter[tuple[int, str]] = Counter()

    def look(self) -> None:
        """Before an update: refuse tensors that nobody would bring back."""
        began_s = time.monotonic()
        self.updates += 1
        if not self.owners:
            return
        if self.updates > LOOKS:
            if not self.left:
                if began_s < self.due_s:
                    return
                self.begin_series()
            self.left -= 1
        numbers = self.number_attributes()
        self.changes.update(key for key, number in numbers.items() if self.before.get(key, number) != number)
        self.before = numbers
        for (place, name), count in self.changes.items():
            if count >= MOST and not is_set_anew(type(self.owners[place]), name):
                refuse_tensors(self.owners[place], name)
        now_s = time.monotonic()
        self.spent_s += now_s - began_s
        self.due_s = now_s + PARTS * self.spent_s

    def begin_series(self) -> None:
        """Count changes anew, before some updates in succession."""
        self.left, self.spent_s, self.before = SERIES, 0.0, {}
        self.changes.clear()

    def number_attributes(self) -> dict[tuple[int, str], int]:
        """A number for what is in the tensors of each attribute."""
        held = self.list_held()
        if not held:
            return {}  # as nearly always: spares a walk over the models
        trained = [one for model in self.run.models for one in (*model.parameters(), *model.buffers())]
        known = {one.data_ptr() for one in trained}
        found = {}
        for key, tensors in held.items():
            numbers = [int(number_tensor(one)) for one in tensors if one.data_ptr() not in known]
            if numbers:
                found[key] = hash(tuple(numbers))
        return found

    def list_held(self) -> dict[tuple[int, str], list[torch.Tensor]]:
        """The tensors that attributes have, but for those of the framework and what the run knows."""
        kept = {id(one) for one in self.run.kept.values()}
        held = {}
        for place, owner in enumerate(self.owners):
            for name, value in vars(owner).items() if id(owner) not in kept else ():
                is_theirs = place >= self.count and (name.startswith("_") or name in DATA)  # the framework's
                is_known = is_theirs or id(value) in kept or any(value is model for model in self.run.models)
                if not is_known and (tensors := list(list_tensors(value))):
                    held[place, name] = tensors
        return held


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of several numbers in a value, or in what it would save."""
    if isinstance(value, LEFT_ALONE) or (isinstance(value, Mapping | list | tuple) and len(value) > LONGEST):
        return
    if isinstance(value, torch.Tensor):
        if value.numel() > 1:
            yield value.detach()
    elif isinstance(value, Mapping):
        yield from (one for item in value.values() for one in list_tensors(item))
    elif isinstance(value, list | tuple):
        yield from (one for item in value for one in list_tensors(item))
    elif hasattr(value, "state_dict"):
        yield from list_tensors(value.state_dict())


def refuse_tensors(owner: Any, attribute: str) -> None:
    """Refuse an attribute that a process which joins or resumes would begin anew."""
    kind = type(owner).__name__
    keep = (
        f"Give {kind} the methods state_dict and load_state_dict, and hand it to run.keep before training begins "
        f"(run = springtide.init(...), run.keep({attribute.strip('_')}=...)); under Lightning a callback with these "
        "methods is kept as it is"
    )
    buffer = f"Make it a buffer: self.register_buffer({attribute!r}, torch.zeros(...)), changed in place"
    raise JobError(
        f"{kind} changes its attribute {attribute!r}, which has tensors, between updates: a process that joins or "
        f"resumes would begin it anew. {buffer if isinstance(owner, torch.nn.Module) else keep}"
    )
