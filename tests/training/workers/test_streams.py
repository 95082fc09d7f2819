"""Iterable datasets: whose items are whose, and what does not give the same ones twice."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from springtide.errors import JobError
from springtide.training.workers.feeds import Feed
from springtide.training.workers.loaders import Loader
from springtide.training.workers.sampling import Sampling
from springtide.training.workers.streams import Stream, checksum


class Counting(IterableDataset[float]):
    """A stream with some noise."""

    def __len__(self) -> int:
        return 26

    def __iter__(self) -> Iterator[float]:
        for number in range(26):
            yield number + random.random()


def test_streams_give_each_worker_its_run_of_items_from_any_step() -> None:
    facts = Sampling(26, 2, 3, accumulate=2)
    stream = Stream(Counting(), 0)
    whole = list(stream.batches(facts, 0, 0, [0, 1]))
    assert [int(batch[0]) for batch in whole] == [0, 6, 3, 9, 12, 18, 15, 21]
    assert list(stream.batches(facts, 0, 1, [1])) == whole[6:]


class Endless(IterableDataset[int]):
    """A stream of unknown length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_streams_need_a_length() -> None:
    with pytest.raises(JobError, match="has no __len__"):
        Stream(Endless(), 0)


class Shuffled(Counting):
    """A stream in an order of its own generator, as of libraries that seed theirs by the clock."""

    def __init__(self) -> None:
        self.generator = random.Random(5)

    def __iter__(self) -> Iterator[float]:
        numbers = list(range(26))
        self.generator.shuffle(numbers)
        yield from map(float, numbers)


def test_a_stream_that_does_not_repeat_is_refused_before_its_first_batch() -> None:
    with pytest.raises(JobError, match=r"Shuffled gave other items when epoch 0 was read again.*set_epoch"):
        next(Stream(Shuffled(), 0).batches(Sampling(26, 2, 3), 0, 0, [0, 1]))


class ByEpoch(Counting):
    """A stream that counts its epochs itself."""

    passes = 0

    def __iter__(self) -> Iterator[float]:
        self.passes += 1
        yield from (number + self.passes / 100 for number in range(26))


def test_a_stream_that_counts_epochs_is_refused() -> None:
    with pytest.raises(JobError, match="count no epochs in the dataset"):
        next(Stream(ByEpoch(), 0).batches(Sampling(26, 2, 3), 0, 0, [0]))


def test_a_stream_that_can_be_read_once_is_refused() -> None:
    class Once(Counting):
        items = iter(range(26))

        def __iter__(self) -> Iterator[Any]:
            return self.items

    with pytest.raises(JobError, match="Once gave other items"):
        next(Stream(Once(), 0).batches(Sampling(26, 2, 3), 0, 0, [0]))


def test_epochs_may_differ_and_a_known_opening_binds_a_process_that_resumes() -> None:
    facts = Sampling(26, 2, 3)
    stream = Stream(Counting(), 0)
    openings = []
    for epoch in range(2):
        list(stream.batches(facts, epoch, 0, [0, 1]))
        openings.append(stream.opening)
    assert openings[0] != openings[1]
    resumed = Stream(Counting(), 0)
    resumed.opening = openings[1]
    assert list(resumed.batches(facts, 1, 2, [0])) == list(stream.batches(facts, 1, 2, [0]))
    resumed.opening = (1, 7)
    with pytest.raises(JobError, match="when epoch 1 was read again"):
        next(resumed.batches(facts, 1, 2, [0]))


def test_checksums_see_values_of_every_usual_kind() -> None:
    values: list[Any] = [
        torch.ones(2),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor(3),
        np.arange(3),
        np.float32(2),
        b"bytes",
        "text\ud800",
        {"a": 1},
        {"a": 2},
        [1, [2]],
        [[1], 2],
        (None, True),
        1.5,
    ]
    assert len({checksum(value) for value in values}) == len(values)
    assert checksum(object()) == checksum(object()), "what has no value of its own counts by its type"


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_that_read_no_stream_are_told(num_workers: int) -> None:
    said: list[str] = []
    feed = Feed(dataset=Counting(), batch_size=2, shuffle=False, collate=list, num_workers=num_workers)
    run: Any = SimpleNamespace(seed=0, is_main=True, channel=SimpleNamespace(warn=said.append))
    Loader(run, None, feed, Sampling(26, 2, 3))
    assert [text.partition(" of a")[0] for text in said] == (["num_workers=2"] if num_workers else [])
