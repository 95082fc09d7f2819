"""Evaluation over a loader that an Accelerator has prepared: in rounds of N batches, one of each rank's.

A process walks its logical workers' batches; where others have more workers it walks its last batch again, so that all
walk as many. What is gathered comes out with the last batch of a round, in the order of ranks; before that, nothing of
the same form does. So what a script collects or adds up is what it would be on N ranks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from springtide.integrations.accelerate_data import find_generator, find_rest
from springtide.integrations.eval_walk import count_rounds, cut, list_walked, walk_parts

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


class Padding(NamedTuple):
    """How values of ranks get one size before they meet, as `pad_across_processes` is told."""

    dim: int
    value: int
    is_first: bool

    def pad(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """All values with the size of the largest."""
        if self.dim >= values[0].dim():
            return values
        size = max(value.shape[self.dim] for value in values)
        return [self.pad_one(value, size) for value in values]

    def pad_one(self, value: torch.Tensor, size: int) -> torch.Tensor:
        """One value with a size."""
        own = value.shape[self.dim]
        shape = [size if place == self.dim % value.dim() else length for place, length in enumerate(value.shape)]
        padded = value.new_full(shape, self.value)
        padded.narrow(self.dim, size - own if self.is_first else 0, own).copy_(value)
        return padded


class EvalRounds:
    """A prepared DataLoader for evaluation, as this process walks it."""

    def __init__(self, run: "ElasticRun", shard: Any, accelerator: Any) -> None:
        self.run = run
        self.shard = shard
        self.accelerator = accelerator
        self.rest = find_rest(shard)
        self.generator = find_generator(shard)
        #: The present batch's place in its round, and what was gathered in this round by the number of the call.
        self.place = self.calls = 0
        self.gathered: dict[int, list[Any]] = {}
        #: Tensors that are to be padded when they meet those of other ranks.
        self.paddings: Any = WeakTensorKeyDictionary()
        self.is_last_round = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shard" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.shard, name)

    def state_dict(self) -> dict[str, Any]:
        """From where the next walk draws its order."""
        return {} if self.generator is None else {"order": self.generator.get_state()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Let the next walk draw from there."""
        if self.generator is not None:
            self.generator.set_state(saved["order"])

    @property
    def most(self) -> int:
        """Batches that each process walks in a round."""
        return max(count_rounds(self.run))

    def __len__(self) -> int:
        return len(self.shard) * self.most

    def __iter__(self) -> Iterator[Any]:
        own = len(list_walked(self.run))
        self.accelerator.evaluating = self
        try:
            for number, batch in enumerate(walk_parts(self.run, self.shard)):
                rounds, self.place = divmod(number, own)
                self.is_last_round = rounds == len(self.shard) - 1
                extra = self.most - own if self.place == own - 1 else 0
                for _ in range(1 + extra):
                    self.calls = 0
                    yield batch
                    self.place += 1
        finally:
            self.accelerator.evaluating = None

    def pad_later(self, values: Any, padding: Padding) -> Any:
        """The same values, which get the size of the largest rank's when all of a round are there."""
        if isinstance(values, torch.Tensor):
            own = values.detach().view_as(values)
            self.paddings[own] = padding
            return own
        if isinstance(values, dict):
            return {name: self.pad_later(one, padding) for name, one in values.items()}
        if isinstance(values, list | tuple):
            return type(values)(self.pad_later(one, padding) for one in values)
        return values

    def gather(self, values: Any, as_objects: bool = False) -> Any:
        """All ranks' values at the last batch of a round, and an empty one of the same form before."""
        kept = self.gathered.setdefault(self.calls, [])
        self.calls += 1
        kept.append(values)
        if len(kept) < self.most:
            return [] if as_objects else cut(values, 0)
        own = self.gathered.pop(self.calls - 1)[: len(list_walked(self.run))]
        everyone = [value for theirs in self.run.exchange(own) for value in theirs]
        if as_objects:  # accelerate puts the items of all ranks into one list
            items = [item for value in everyone for item in value]
            return items[: self.rest] if self.is_last_round and self.rest else items
        joined = self.join(everyone, values)
        return cut(joined, self.rest) if self.is_last_round and self.rest else joined

    def join(self, values: list[Any], own: Any) -> Any:
        """Values of one form put together along their first dimension, padded as the one of this process was to be."""
        first = values[0]
        if isinstance(first, torch.Tensor):
            padding = self.paddings.get(own)
            values = [one.reshape(1) if one.dim() == 0 else one for one in values]
            return torch.cat(values if padding is None else padding.pad(values))
        if isinstance(first, dict):
            return {name: self.join([one[name] for one in values], own[name]) for name in first}
        if isinstance(first, list | tuple):
            return type(first)(self.join(list(parts), one) for *parts, one in zip(*values, own, strict=True))
        raise TypeError(f"values of type {type(first).__name__} are gathered as objects")
