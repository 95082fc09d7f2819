"""Evaluation shared out between processes: each batch of a DataLoader is walked by one of them, results by all.

Batches are those of the DataLoader as it stands, whatever the number of processes, so what a model makes of one has
the same bits on any; and results come in the loader's order. What is random in a sample is drawn for that sample alone.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from springtide.errors import JobError
from springtide.training.workers import randomness
from springtide.training.workers.sampling import SeededCollate, seeded

#: Everyone's list, by rank.
Exchange = Callable[[list[Any]], list[list[Any]]]


class Shard:
    """This process's part of a DataLoader: every P-th batch."""

    def __init__(self, loader: DataLoader[Any], rank: int, size: int, seed: int, exchange: Exchange) -> None:
        if not isinstance(loader, DataLoader):
            raise JobError(f"run.shard was given a {type(loader).__name__}; give a torch DataLoader")
        self.loader = loader
        self.rank, self.size, self.seed = rank, size, seed
        self.exchange = exchange
        self.walked = 0

    def __len__(self) -> int:
        return len(range(self.rank, len(self.loader), self.size))

    def __iter__(self) -> Iterator[Any]:
        self.walked = 0
        before = randomness.capture()
        try:
            for batch in islice(self.loader, self.rank, None, self.size) if self.reads_all else self.open_part():
                self.walked += 1
                yield batch
        finally:
            randomness.restore(before)

    @property
    def reads_all(self) -> bool:
        """Whether the whole loader must be read to come to one's part."""
        return isinstance(self.loader.dataset, IterableDataset) or self.loader.batch_sampler is None

    def open_part(self) -> DataLoader[Any]:
        """A DataLoader of this process's batches only."""
        loader = self.loader
        batches = list(islice(loader.batch_sampler, self.rank, None, self.size))  # type: ignore[arg-type]
        return DataLoader(
            seeded(loader.dataset, self.seed),
            batch_sampler=batches,
            num_workers=loader.num_workers,
            collate_fn=SeededCollate(loader.collate_fn),
            pin_memory=loader.pin_memory,
            worker_init_fn=loader.worker_init_fn,
            generator=loader.generator,
        )

    def gather(self, results: Sequence[Any]) -> list[Any]:
        """Everyone's results, one per batch, in the loader's order: numbers, tensors, and lists and dicts of them."""
        if len(results) != self.walked:
            raise JobError(
                f"shard.gather was given {len(results)} results of {self.walked} batches; give one per batch"
            )
        everyone = self.exchange(list(results))
        missing = object()
        mixed = chain.from_iterable(zip_longest(*everyone, fillvalue=missing))
        return [result for result in mixed if result is not missing]
