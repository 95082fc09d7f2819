"""Evaluation over a loader that an Accelerator has prepared: in rounds of N batches, one of each rank's.

A process walks its logical workers' batches; where others have more workers it walks its last batch again, so that all
walk as many. What is gathered comes out with the last batch of a round, in the order of ranks; before that, nothing of
the same form does. So what a script collects or adds up is what it would be on N ranks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from springtide.integrations.accelerate_data import find_rest
from springtide.integrations.eval_walk import cut, walk_parts

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


class EvalRounds:
    """A prepared DataLoader for evaluation, as this process walks it."""

    def __init__(self, run: "ElasticRun", shard: Any, accelerator: Any) -> None:
        self.run = run
        self.shard = shard
        self.accelerator = accelerator
        self.rest = find_rest(shard)
        #: The present batch's place in its round, and what was gathered in this round by the number of the call.
        self.place = self.calls = 0
        self.gathered: dict[int, list[Any]] = {}
        self.is_last_round = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shard" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.shard, name)

    @property
    def most(self) -> int:
        """Batches that each process walks in a round."""
        return max(self.run.roster.counts)

    def __len__(self) -> int:
        return len(self.shard) * self.most

    def __iter__(self) -> Iterator[Any]:
        own = len(self.run.local)
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

    def gather(self, values: Any) -> Any:
        """All ranks' values at the last batch of a round, and an empty one of the same form before."""
        kept = self.gathered.setdefault(self.calls, [])
        self.calls += 1
        kept.append(values)
        if len(kept) < self.most:
            return cut(values, 0)
        everyone = self.run.exchange(self.gathered.pop(self.calls - 1)[: len(self.run.local)])
        joined = join([value for theirs in everyone for value in theirs])
        return cut(joined, self.rest) if self.is_last_round and self.rest else joined


def join(values: list[Any]) -> Any:
    """Values of one form put together along their first dimension."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([one.reshape(1) if one.dim() == 0 else one for one in values])
    if isinstance(first, dict):
        return {name: join([one[name] for one in values]) for name in first}
    if isinstance(first, list | tuple):
        return type(first)(join(list(parts)) for parts in zip(*values, strict=True))
    return values
