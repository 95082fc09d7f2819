"""What a finished DataLoader says, and the order that every process draws from it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from springtide.errors import JobError
from springtide.training.workers import feeds, randomness

DATA = TensorDataset(torch.arange(10.0))


class Endless:
    """A sampler that does not say how long it is."""

    def __iter__(self) -> Iterator[int]:
        return iter((1, 2))


def order_of(loader: DataLoader[Any], epoch: int) -> list[int]:
    """The order of an epoch over two workers."""
    feed = feeds.read_loader(loader, 1)
    sampling = feeds.make_sampling(feed, len(DATA), 2, seed=3)
    return [int(index) for index in feeds.draw_order(feed, sampling, epoch)]


def test_a_loader_keeps_its_meaning() -> None:
    feed = feeds.read_loader(DataLoader(DATA, batch_size=3, shuffle=True, drop_last=True), 2)
    assert (feed.batch_size, feed.shuffle, feed.drop_last, feed.pad, feed.accumulate) == (3, True, True, True, 2)
    assert feed.sampler is None and feed.draws_seed
    still = feeds.read_loader(DataLoader(DATA, batch_size=3, generator=torch.Generator()), 1)
    assert not still.shuffle and not still.draws_seed


def test_a_shuffled_loader_has_the_order_of_a_distributed_sampler() -> None:
    ranks: list[DistributedSampler[int]] = [DistributedSampler(DATA, 2, rank, seed=3) for rank in (0, 1)]
    for one in ranks:
        one.set_epoch(4)
    wanted = [index for pair in zip(*ranks, strict=True) for index in pair]
    assert order_of(DataLoader(DATA, shuffle=True), 4) == wanted


def test_a_distributed_sampler_keeps_its_seed_and_its_epoch() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 1, 0, seed=9)
    sampler.set_epoch(6)
    assert order_of(DataLoader(DATA, sampler=sampler), 0) == list(sampler)


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedRandomSampler([1.0] * 10, 8),
        RandomSampler(DATA, replacement=True, num_samples=8),
        RandomSampler(DATA, generator=torch.Generator(), num_samples=8),
    ],
)
def test_any_sampler_draws_the_same_whoever_asks_and_disturbs_nobody(sampler: Any) -> None:
    loader = DataLoader(DATA, sampler=sampler)
    torch.manual_seed(1)
    before = randomness.capture()
    first = order_of(loader, 0)
    assert randomness.is_at(before)
    torch.manual_seed(2)
    assert order_of(loader, 0) == first
    assert order_of(loader, 1) != first


def test_a_batch_samplers_batches_are_counted_and_drawn() -> None:
    loader = DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 3, drop_last=False))
    feed = feeds.read_loader(loader, 1)
    sampling = feeds.make_sampling(feed, len(DATA), 2, seed=3)
    assert sampling.steps_per_epoch == 2  # four batches, two workers
    batches = feeds.draw_batches(feed, sampling, 0)
    assert sorted(index for batch in batches for index in batch) == list(range(10))
    assert batches == feeds.draw_batches(feed, sampling, 0) != feeds.draw_batches(feed, sampling, 1)


def test_loaders_without_a_size_are_refused() -> None:
    with pytest.raises(JobError, match="batch_size=None; a logical worker's batch needs a size"):
        feeds.read_loader(DataLoader(DATA, batch_size=None), 1)
    with pytest.raises(JobError, match="sampler Endless has no __len__"):
        feeds.read_loader(DataLoader(DATA, sampler=Endless()), 1)
