"""Iterators over other loaders: those that go on from step to step are refused, those of one step are not."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from springtide.errors import JobError
from springtide.training.workers.loader_iterators import LOOKS, IteratorWatch


@pytest.fixture
def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(40)), batch_size=4)


def forever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def test_one_that_goes_on_is_refused(loader: DataLoader[Any]) -> None:
    watch, more = IteratorWatch(), forever(loader)
    watch.look(None)
    next(more)
    watch.look(None)
    next(more)
    with pytest.raises(JobError, match=r"of TensorDataset.*StackDataset"):
        watch.look(None)


def test_one_within_a_step_one_that_stands_and_the_runs_own_are_not(loader: DataLoader[Any]) -> None:
    watch, own, standing = IteratorWatch(), iter(loader), iter(loader)
    next(standing)
    for _ in range(LOOKS + 2):
        watch.look(own)
        next(own)
        assert sum(len(values) for (values,) in loader) == 40
    assert watch.seen == []


def test_the_iterator_that_persistent_workers_share_between_walks_is_not() -> None:
    loader = DataLoader(TensorDataset(torch.arange(40)), batch_size=4, num_workers=1, persistent_workers=True)
    watch = IteratorWatch()
    for longer in range(1, LOOKS + 1):
        watch.look(None)
        for place, _ in enumerate(loader):
            if place == longer:
                break
