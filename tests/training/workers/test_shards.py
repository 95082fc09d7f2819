"""Evaluation shared out: each batch once, results in the loader's order, on any number of processes."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from springtide.errors import JobError
from springtide.training.workers import randomness
from springtide.training.workers.shards import Seat, Shard

DATA = TensorDataset(torch.arange(23.0))
ALONE = partial(Seat, 0, 1)


class Flow(IterableDataset[torch.Tensor]):
    """An iterable dataset."""

    def __iter__(self) -> Any:
        return iter(torch.arange(11.0))


class Noisy(Dataset[torch.Tensor]):
    """Samples that draw."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(())


def walk(loader: DataLoader[Any], size: int) -> list[Any]:
    """What every process has after it has walked its part and gathered; they agree."""
    torch.manual_seed(5)  # between steps all processes have the same random state
    state = randomness.capture()
    parts: list[list[Any]] = []
    shards = [Shard(loader, partial(Seat, rank, size), 3, lambda results: parts) for rank in range(size)]
    for shard in shards:
        randomness.restore(state)
        parts.append([batch[0].tolist() if isinstance(batch, list) else batch.tolist() for batch in shard])
        assert randomness.is_at(state)
    gathered = [shard.gather(part) for shard, part in zip(shards, parts, strict=True)]
    assert all(one == gathered[0] for one in gathered)
    return gathered[0]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("shuffle", [False, True])
def test_results_are_those_of_one_process(size: int, shuffle: bool) -> None:
    loader = DataLoader(DATA, batch_size=4, shuffle=shuffle)
    results = walk(loader, size)
    assert results == walk(loader, 1) and len(results) == 6
    assert sorted(value for batch in results for value in batch) == list(range(23))


def test_an_iterable_dataset_is_read_whole_by_all() -> None:
    assert walk(DataLoader(Flow(), batch_size=4), 3) == walk(DataLoader(Flow(), batch_size=4), 1)


def test_random_samples_and_batches_are_drawn_for_themselves() -> None:
    loader = DataLoader(Noisy(), batch_size=4, collate_fn=lambda rows: torch.stack(rows) + torch.rand(1))
    results = walk(loader, 3)
    assert results == walk(loader, 1)
    assert len({value for batch in results for value in batch}) == 9


def test_parts_say_how_long_they_are() -> None:
    loader = DataLoader(DATA, batch_size=4)
    assert [len(Shard(loader, partial(Seat, rank, 4), 3, lambda results: [results])) for rank in range(4)] == [
        2,
        2,
        1,
        1,
    ]


def test_results_that_are_missing_and_loaders_that_are_none_are_refused() -> None:
    shard = Shard(DataLoader(DATA, batch_size=4), ALONE, 3, lambda results: [results])
    list(shard)
    with pytest.raises(JobError, match=r"given 2 results of 6 batches; give one per batch"):
        shard.gather([1, 2])
    with pytest.raises(JobError, match=r"run\.shard was given a list"):
        Shard([1], ALONE, 3, lambda results: [results])  # type: ignore[arg-type]


def test_a_shard_follows_the_number_of_processes() -> None:
    seats = [Seat(0, 4)]
    shard = Shard(DataLoader(DATA, batch_size=4), lambda: seats[-1], 3, lambda results: [results])
    assert (len(shard), len(list(shard))) == (2, 2)
    seats.append(Seat(0, 1))
    with pytest.raises(JobError, match=r"has changed between the walk over a shard and shard\.gather"):
        shard.gather([1, 2])
    assert len(shard) == len(shard.gather(list(shard))) == 6
