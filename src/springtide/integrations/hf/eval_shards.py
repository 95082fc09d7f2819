"""Evaluation by the Trainer's own loop, each process walking its logical workers' batches.

Batches, their random contexts and the order of results are those of N ranks; the forward of each is done once, on the
process that has its worker. Results meet when the loop asks its containers for them, so that every process computes the
same metrics of all samples.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from accelerate.data_loader import DataLoaderShard
from transformers.trainer_pt_utils import EvalLoopContainer

from springtide.errors import JobError
from springtide.integrations.accelerate_data import find_rest
from springtide.integrations.eval_walk import count_rounds, cut, list_walked, walk_parts

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


class EvalShards:
    """A prepared DataLoader for evaluation as this process walks it: every round, one batch of each local worker."""

    def __init__(self, run: "ElasticRun", shard: Any, tell: Callable[[list[Any]], None]) -> None:
        if type(shard) is not DataLoaderShard or not hasattr(shard.dataset, "__len__"):
            raise JobError(
                f"the evaluation data ({type(shard.dataset).__name__}) have no length; give a map-style dataset, so "
                "that each logical worker has its batches of it"
            )
        self.run = run
        self.shard = shard
        self.dataset = shard.dataset
        self.rest = find_rest(shard)
        self.tell = tell

    def __len__(self) -> int:
        return len(self.shard) * len(list_walked(self.run))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shard" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.shard, name)

    def __iter__(self) -> Iterator[Any]:
        return walk_parts(self.run, self.shard, self.tell)

    def exchange(self, results: list[Any]) -> list[Any]:
        """Everyone's results, one per batch, in the order of N ranks."""
        everyone = self.run.exchange(results)
        counts = count_rounds(self.run)
        rounds = len(self.shard)
        return [
            theirs[number * count + place]
            for number in range(rounds)
            for theirs, count in zip(everyone, counts, strict=True)
            for place in range(count)
        ]


class GatheredResults(EvalLoopContainer):
    """The Trainer's container of results, filled with those of all logical workers when it is asked for."""

    #: The evaluation under way.
    shards: EvalShards

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100) -> None:
        super().__init__(do_nested_concat, padding_index)
        self.own: list[Any] = []

    def add(self, tensors: Any) -> None:
        """Keep one local worker's results of one batch."""
        self.own.append(tensors)

    def to_cpu_and_numpy(self) -> None:
        """Nothing is moved before all is there."""

    def get_arrays(self) -> Any:
        """All results, as N ranks would have gathered them."""
        if not self.own:
            return None
        workers = self.shards.run.logical_workers
        everyone = self.shards.exchange(self.own)
        rounds = [everyone[first : first + workers] for first in range(0, len(everyone), workers)]
        for number, results in enumerate(rounds):
            joined = EvalLoopContainer(True, self.padding_index)
            for one in results:
                joined.add(one)
            is_cut = number == len(rounds) - 1 and self.shards.rest
            super().add(cut(joined.tensors, self.shards.rest) if is_cut else joined.tensors)
        super().to_cpu_and_numpy()
        return self.arrays
