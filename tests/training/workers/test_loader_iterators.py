"""Iterators over other loaders: those that go on from step to step are refused, those of one step are not."""

import itertools
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


def test_persistent_workers_begin_anew_and_go_on(loader: DataLoader[Any]) -> None:
    """A short look at the held-out data and then a long one, by the one iterator that such a loader has."""
    watch = IteratorWatch()
    kept: DataLoader[Any] = DataLoader(loader.dataset, batch_size=4, num_workers=1, persistent_workers=True)
    for length in (1, 2, 3):
        watch.look(None)
        assert len(list(itertools.islice(kept, length))) == length
    watch.look(None)
    again, more = IteratorWatch(), iter(kept)
    again.look(None)
    next(more)
    with pytest.raises(JobError, match="carries an iterator"):
        again.look(None)


def test_what_reads_for_logical_workers_is_not(loader: DataLoader[Any]) -> None:
    watch, pool = IteratorWatch(), iter(loader)
    watch.of_workers.add(pool)
    for _ in range(LOOKS):
        watch.look(None)
        next(pool)


def test_one_that_begins_late_is_refused_when_it_is_looked_for_again(loader: DataLoader[Any]) -> None:
    watch, more = IteratorWatch(), forever(loader)
    for _ in range(LOOKS):
        watch.look(None)
    next(more)
    watch.look_again()
    watch.look(None)
    next(more)
    with pytest.raises(JobError, match="carries an iterator"):
        watch.look(None)
