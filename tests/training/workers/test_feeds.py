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
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)

from springtide.errors import JobError
from springtide.training.workers import feeds, randomness
from springtide.training.workers.sampling import batch_indices

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


class Growing(Sampler[Any]):
    """A sampler, or one of batches of two, whose number changes between epochs."""

    def __init__(self, count: int, in_pairs: bool = False) -> None:
        self.count, self.in_pairs = count, in_pairs

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter([[k % 10, k % 7] if self.in_pairs else k % 10 for k in range(self.count)])


def draw_later(sampler: Growing, count: int, **options: Any) -> tuple[feeds.Feed, Any, Any]:
    """What two workers draw in an epoch in which a sampler has another number than in prepare."""
    kind = {"batch_sampler": sampler} if sampler.in_pairs else {"sampler": sampler, "batch_size": 4, **options}
    feed = feeds.read_loader(DataLoader(DATA, **kind), 1)
    sampling = feeds.make_sampling(feed, len(DATA), 2, seed=3)
    sampler.count = count
    drawn = feeds.draw_batches if sampler.in_pairs else feeds.draw_order
    return feed, sampling, drawn(feed, sampling, 1)


@pytest.mark.parametrize(("count", "steps"), [(64, 8), (16, 2), (0, 0)])
def test_a_sampler_that_would_make_other_steps_is_refused(count: int, steps: int) -> None:
    with pytest.raises(JobError, match=f"sampler Growing has changed: {count} .* 32 in .* {steps} instead of 4 steps"):
        draw_later(Growing(32), count)


@pytest.mark.parametrize(("count", "steps"), [(9, 4), (5, 2)])
def test_a_batch_sampler_that_would_make_other_steps_is_refused(count: int, steps: int) -> None:
    with pytest.raises(JobError, match=f"batch sampler Growing has changed: {count} for this epoch, 7 in .* {steps} "):
        draw_later(Growing(7, in_pairs=True), count)


def test_batches_that_make_the_same_steps_are_taken_as_they_are() -> None:
    _feed, sampling, batches = draw_later(Growing(6, in_pairs=True), 7)
    assert sampling.steps_per_epoch == 3 and len(batches) == 7


@pytest.mark.parametrize("count", [27, 28, 31, 32])
def test_another_number_of_the_same_steps_is_split_as_by_a_distributed_sampler(count: int) -> None:
    _feed, sampling, order = draw_later(Growing(30), count)
    positions = TensorDataset(torch.arange(count))
    for worker in (0, 1):
        rank: DistributedSampler[int] = DistributedSampler(positions, 2, worker, shuffle=False)
        stock = [[place % 10 for place in batch] for batch in BatchSampler(rank, 4, drop_last=False)]
        ours = [batch_indices(sampling, order, worker, k).tolist() for k in range(sampling.steps_per_epoch)]
        assert ours == stock


@pytest.mark.parametrize("sampler", [None, DistributedSampler(DATA, 1, 0)])
def test_a_dataset_that_grows_is_refused(sampler: Any) -> None:
    data = [torch.zeros(1)] * 10
    feed = feeds.read_loader(DataLoader(data, batch_size=3, sampler=sampler), 1)  # type: ignore[arg-type]
    sampling = feeds.make_sampling(feed, len(data), 2, seed=3)
    feeds.draw_order(feed, sampling, 0)
    data += data[:1]
    with pytest.raises(JobError, match="dataset list has changed: 11 for this epoch, 10 in run"):
        feeds.draw_order(feed, sampling, 1)
    data += data
    with pytest.raises(JobError, match=r"22 for this epoch, .* would be 4 instead of 2 steps"):
        feeds.draw_order(feed, sampling, 1)


def make_feed(sampler: Any = None) -> feeds.Feed:
    """A feed with a sampler."""
    return feeds.read_loader(DataLoader(DATA, sampler=sampler), 1)


def test_a_plan_that_is_known_has_to_be_drawn_again() -> None:
    record = feeds.DrawnPlans()
    record.note(make_feed(), 0, torch.arange(4))
    record.note(make_feed(), 1, [[3, 1], [2]])
    resumed = feeds.DrawnPlans()
    resumed.from_plain(record.to_plain())
    resumed.note(make_feed(), 1, [[3, 1], [2]])
    assert resumed.to_plain() == record.to_plain()
    for feed, name in ((make_feed(), "the DataLoader"), (make_feed(Growing(4)), "sampler Growing")):
        with pytest.raises(JobError, match=f"{name} gave another order for epoch 1 than before.*run.state"):
            resumed.note(feed, 1, [[3], [1, 2]])


def test_the_number_of_plans_is_of_all_epochs() -> None:
    same, other = feeds.DrawnPlans(), feeds.DrawnPlans()
    same.note(make_feed(), 0, torch.arange(4))
    other.note(make_feed(), 0, torch.arange(4).flip(0))
    for record in (same, other):
        record.note(make_feed(), 1, torch.arange(4))
    assert same.number != other.number, "processes that differed once are found later"
