"""Evaluation shared out between processes: each batch of a DataLoader is walked by one of them, results by all.

Batches are those of the DataLoader as it stands, whatever the number of processes, so what a model makes of one has
the same bits on any; and results come in the loader's order. What is random in a sample is drawn for that sample alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from springtide.errors import JobError
from springtide.training.workers import randomness
from springtide.training.workers.sampling import SeededCollate, seeded

#: Everyone's list, by rank.
Exchange = Callable[[list[Any]], list[list[Any]]]


class Seat(NamedTuple):
    """Which of how many processes this one is, at a moment of the run."""

    rank: int
    size: int


class Shard:
    """This process's part of a DataLoader: every P-th batch, of as many processes as there are when it is walked."""

    def __init__(self, loader: DataLoader[Any], find_seat: Callable[[], Seat], seed: int, exchange: Exchange) -> None:
        if not isinstance(loader, DataLoader):
            raise JobError(f"run.shard was given a {type(loader).__name__}; give a torch DataLoader")
        self.loader = loader
        self.find_seat = find_seat
        self.seed = seed
        self.exchange = exchange
        self.walked = 0
        self.walked_from: Seat | None = None

    def __len__(self) -> int:
        rank, size = self.find_seat()
        return len(range(rank, len(self.loader), size))

    def __iter__(self) -> Iterator[Any]:
        self.walked, self.walked_from = 0, self.find_seat()
        before = randomness.capture()
        try:
            for batch in self.open_part(self.walked_from):
                self.walked += 1
                yield batch
        finally:
            randomness.restore(before)

    def open_part(self, seat: Seat) -> Iterable[Any]:
        """This process's batches: read by themselves, or out of all of them where the loader does not tell them."""
        loader = self.loader
        if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
            return islice(loader, seat.rank, None, seat.size)
        batches = list(islice(loader.batch_sampler, seat.rank, None, seat.size))
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
        if self.walked_from not in (None, self.find_seat()):
            raise JobError(
                "the number of processes has changed between the walk over a shard and shard.gather; gather before the "
                "loop over the loader goes on"
            )
        if len(results) != self.walked:
            raise JobError(
                f"shard.gather was given {len(results)} results of {self.walked} batches; give one per batch"
            )
        everyone = self.exchange(list(results))
        missing = object()
        mixed = chain.from_iterable(zip_longest(*everyone, fillvalue=missing))
        return [result for result in mixed if result is not missing]
