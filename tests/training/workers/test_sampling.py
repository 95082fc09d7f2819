"""Sample order against DistributedSampler, and randomness per sample."""

import collections
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from springtide.errors import JobError
from springtide.training.workers import sampling
from springtide.training.workers.sampling import Sampling, Tensors, seeded


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 7), st.integers(0, 5), st.booleans(), st.booleans())
def test_batches_equal_distributed_sampler(
    samples: int, workers: int, batch: int, epoch: int, shuffle: bool, drop_last: bool
) -> None:
    if samples < workers:
        return
    data = TensorDataset(torch.arange(samples))
    facts = Sampling(samples, workers, batch, seed=7, shuffle=shuffle, drop_last=drop_last)
    order = sampling.epoch_order(facts, epoch)
    for worker in range(workers):
        sampler: DistributedSampler[int] = DistributedSampler(
            data, workers, worker, shuffle=shuffle, seed=7, drop_last=True
        )
        sampler.set_epoch(epoch)
        stock = [x.tolist() for (x,) in DataLoader(data, batch, sampler=sampler, drop_last=drop_last)]
        ours = [
            sampling.batch_indices(facts, order, worker, number).tolist() for number in range(facts.steps_per_epoch)
        ]
        assert ours == stock


class Drawing(Dataset[list[float]]):
    """Samples that are nothing but randomness."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> list[float]:
        return [random.random(), float(np.random.randn()), float(torch.rand(()))]


def test_randomness_depends_on_epoch_and_sample_alone() -> None:
    data = seeded(Drawing(), seed=1)
    alone = [data[index] for index in range(10)]
    assert data.__getitems__([3, 1]) == [alone[3], alone[1]]
    assert len({tuple(sample) for sample in alone}) == 10
    data.set_epoch(1)
    assert data[0] != alone[0]
    assert seeded(data) is data


def test_loading_leaves_the_generators_as_they_were() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    np.random.randn()
    expected = [random.Random(1).random(), torch.rand((), generator=torch.Generator().manual_seed(1)).item()]
    twin = np.random.RandomState(1)
    twin.randn()
    seeded(Drawing())[4]
    assert [random.random(), float(torch.rand(()))] == expected
    assert float(np.random.randn()) == twin.randn()


class Sometimes(Dataset[float]):
    """Samples of which only some are random."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> float:
        return index + (random.random() if index % 7 == 3 else 0.0)


def test_samples_do_not_depend_on_what_drew_before_them() -> None:
    fresh = [seeded(Sometimes(), seed=1)[index] for index in range(40)]
    data = seeded(Sometimes(), seed=1)
    assert data.__getitems__([0, 1, 2]) == fresh[:3]
    assert not data.draws
    assert data.__getitems__([4, 2, 3]) == [fresh[4], fresh[2], fresh[3]]
    assert data.draws
    assert data.__getitems__(range(40)) == fresh


class Private(Dataset[float]):
    """Samples that draw and then put the generator back, as if they had not."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> float:
        with torch.random.fork_rng():
            return float(torch.rand(()))


def test_hidden_draws_depend_on_the_batch_and_not_on_the_process() -> None:
    batches = []
    for state in range(2):
        torch.manual_seed(state)
        batches.append(seeded(Private(), seed=1).__getitems__([5, 2, 7]))
    assert batches[0] == batches[1]


def test_small_datasets_and_strange_ones_are_refused() -> None:
    with pytest.raises(JobError, match=r"has 30 samples; one global batch needs 32"):
        sampling.check_size(Sampling(30, 4, 8))
    with pytest.raises(JobError, match="no __getitem__"):
        sampling.adopt(object(), 0)
    assert isinstance(sampling.adopt(TensorDataset(torch.zeros(3)), 0), Tensors)


class Reading(Dataset[Any]):
    """Samples that are read by a function, which is given the dataset and the index."""

    def __init__(self, read: Callable[["Reading", int], Any]) -> None:
        self.read = read
        self.count = 0
        self.cache: dict[int, Any] = {}
        self.generator = np.random.default_rng(0)
        self.file: int | None = None

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        return self.read(self, index)


def keep_crop(data: Reading, index: int) -> Any:
    return data.cache.setdefault(index, random.random() if index not in data.cache else None)


def open_late(data: Reading, index: int) -> float:
    data.file = data.file or random.randrange(1, 9)  # as a library that draws for a name when it is first used
    return float(index)


def retry_once(data: Reading, index: int) -> float:
    if data.count == 2:
        random.random()  # as a client that waits for a while of random length
    return float(index)


HIDDEN = collections.deque([np.random.default_rng(0)])
CHANGING: dict[str, Callable[[Reading, int], Any]] = {
    "a generator out of sight": lambda data, index: index + HIDDEN[0].normal(),
    "a cache of what was drawn": keep_crop,
    "the count of readings": lambda data, index: data.count,
}
REPEATING: dict[str, Callable[[Reading, int], Any]] = {
    "a generator of its own": lambda data, index: index + data.generator.normal(),
    "a cache of data": lambda data, index: data.cache.setdefault(index, torch.full((2,), index)),
    "a cache of data, then a draw": lambda data, index: data.cache.setdefault(index, index) + random.random(),
    "a file that is opened late": open_late,
    "a draw by accident": retry_once,
    "a generator that is seeded here": lambda data, index: np.random.default_rng(random.getrandbits(32)).normal(),
    "no number": lambda data, index: (math.nan, float("inf"), torch.tensor(math.nan)),
    "objects": lambda data, index: [object(), {1, 2}, {"a": torch.ones(2).to_sparse()}],
    "a tensor without bytes": lambda data, index: torch.empty(2, device="meta"),
}


@pytest.mark.parametrize("batches", [[[1, 2, 3]], [[1], [1], [2], [3]]])
@pytest.mark.parametrize("kind", CHANGING)
def test_a_dataset_that_changes_when_it_is_read_is_refused(kind: str, batches: list[list[int]]) -> None:
    data = seeded(Reading(CHANGING[kind]))
    with pytest.raises(JobError, match=r"dataset Reading gives .*sample 3 .*read again.*Draw from torch"):
        for batch in batches:
            data.__getitems__(batch)


@pytest.mark.parametrize("kind", REPEATING)
def test_a_dataset_may_count_open_and_keep_data(kind: str) -> None:
    data = seeded(Reading(REPEATING[kind]))
    for epoch in range(2):
        data.set_epoch(epoch)
        for batch in ([1, 1], [2, 3, 4], [5, 6]):
            data.__getitems__(batch)


def test_a_dataset_is_looked_at_once() -> None:
    reading = Reading(lambda data, index: index)
    data = seeded(reading)
    data.__getitems__([1, 2, 3])
    assert reading.count == 3 + 3
    data.__getitems__([4, 5, 6])
    assert reading.count == 3 + 3 + 3
    later = seeded(Reading(CHANGING["a generator out of sight"]))
    later.set_epoch(4)
    later.set_epoch(5)
    later.__getitems__([1, 2, 3])  # DataLoader workers of a later epoch do not look again


def test_dataloader_workers_look_too() -> None:
    data = seeded(Reading(CHANGING["a generator out of sight"]))
    with pytest.raises(JobError, match="dataset Reading gives another sample"):
        list(DataLoader(data, batch_size=4, num_workers=1))


class Turning:
    """A transform as libraries have them, with a generator that its parts share."""

    def __init__(self, chance: Any, often: int = 1) -> None:
        self.parts, self.often = [{"chance": chance}, chance], often

    def __call__(self, index: int) -> float:
        chance = self.parts[1] if index % self.often == 0 else None
        return index + (
            0.0
            if chance is None
            else float(torch.rand((), generator=chance))
            if isinstance(chance, torch.Generator)
            else chance.random()
        )


class Turned(Dataset[float]):
    """Samples that go through a transform."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        found: float = self.transform(index)
        return found


CHANCES: dict[str, Callable[[], Any]] = {
    "numpy": np.random.default_rng,
    "numpy's old": np.random.RandomState,
    "python": random.Random,
    "torch": torch.Generator,
}


@pytest.mark.parametrize("often", [1, 5])
@pytest.mark.parametrize("kind", CHANCES)
def test_generators_of_transforms_are_seeded_by_epoch_and_sample(kind: str, often: int) -> None:
    order = [3, 7, 1, 10, 5, 0, 2]
    batches = []
    for size in (1, 2, 7):  # each as by a process of its own, whose generator was seeded by the system
        data = seeded(Turned(Turning(CHANCES[kind](), often)), seed=1)
        batches.append([one for at in range(0, 7, size) for one in data.__getitems__(order[at : at + size])])
    assert batches[0] == batches[1] == batches[2]
    assert [one % 1 > 0 for one in batches[0]] == [index % often == 0 for index in order]
    data.set_epoch(1)
    assert data.__getitems__([10]) != batches[0][3:4]


def test_dataloader_workers_seed_them_in_every_epoch() -> None:
    alone = seeded(Turned(Turning(np.random.default_rng())), seed=1)
    data = seeded(Turned(Turning(np.random.default_rng())), seed=1)
    for epoch in range(2):
        alone.set_epoch(epoch)
        data.set_epoch(epoch)
        pooled = [float(one) for one in DataLoader(data, batch_size=1, num_workers=2, collate_fn=lambda one: one[0])]
        assert pooled == [alone[index] for index in range(12)]


def test_what_is_drawn_once_by_an_own_generator_stays_as_it_is() -> None:
    def lazily(data: Reading, index: int) -> float:
        if not data.cache:
            data.cache[0] = float(np.random.default_rng(0).normal()), data.generator.normal()
        return index + float(data.cache[0][1])

    data, twin = seeded(Reading(lazily)), np.random.default_rng(0).normal()
    assert data.__getitems__([4, 5]) == [4 + twin, 5 + twin]


def test_a_cache_of_what_an_own_generator_drew_is_refused() -> None:
    def keep(data: Reading, index: int) -> float:
        if index not in data.cache:
            data.cache[index] = data.generator.normal()
        return float(data.cache[index])

    with pytest.raises(JobError, match="without the draws that it took before"):
        seeded(Reading(keep)).__getitems__([1, 2, 3, 4, 5])


def test_a_collate_functions_own_generator_is_seeded_by_batch() -> None:
    class Masking:
        def __init__(self) -> None:
            self.generator = torch.Generator()

        def __call__(self, rows: list[float]) -> list[float]:
            return [row + float(torch.rand((), generator=self.generator)) for row in rows]

    data = seeded(Turned(float), seed=1)
    first, second = (sampling.choose_collate(Masking(), is_pooled=False) for _ in range(2))
    second(data.__getitems__([8, 9]))
    assert first(data.__getitems__([1, 2])) == second(data.__getitems__([1, 2]))
    assert sampling.choose_collate(list, is_pooled=False) is list
