"""What counts the steps of a loader is found whatever stands between the two, once per place of the script."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from springtide.errors import JobError
from springtide.training.workers.step_counters import CounterWatch, find_asker


class Watched:
    """Three steps, of which the first is only given if nobody counts."""

    def __init__(self) -> None:
        self.watch = CounterWatch()

    def __iter__(self) -> Iterator[int]:
        self.steps = self.walk()
        return self.steps

    def walk(self) -> Iterator[int]:
        self.watch.check(self.steps, find_asker())
        yield from range(3)


class Bar:
    """As a progress bar: its iterator is a generator."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        for one in self.items:  # noqa: UP028 - as tqdm has it
            yield one


class Each:
    """An iterator by itself."""

    def __init__(self, items: Any) -> None:
        self.items = iter(items)

    def __iter__(self) -> "Each":
        return self

    def __next__(self) -> Any:
        return next(self.items)


COUNTING: list[Callable[[Any], Any]] = [
    enumerate,
    lambda loader: zip(loader, range(3), strict=False),
    lambda loader: itertools.islice(loader, 2),
    lambda loader: enumerate(Bar(loader)),
    lambda loader: Bar(enumerate(loader)),
    lambda loader: enumerate(Each(Bar(Each(loader)))),
    lambda loader: zip(range(3), map(str, Bar(loader)), strict=False),
    lambda loader: map(pow, loader, range(3)),
    lambda loader: enumerate(itertools.chain(loader, ())),
]
PASSING: list[Callable[[Any], Any]] = [
    iter,
    Bar,
    Each,
    lambda loader: Bar(Each(Bar(loader))),
    lambda loader: map(str, loader),
    lambda loader: itertools.chain(filter(None, loader), ()),
]


@pytest.mark.parametrize("wrap", COUNTING)
def test_what_counts_is_refused_through_whatever_passes_steps_on(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(JobError, match="counts from 0 in a process that joins"):
        for _ in wrap(Watched()):
            pass


@pytest.mark.parametrize("wrap", PASSING)
def test_what_passes_steps_on_is_let_through(wrap: Callable[[Any], Any]) -> None:
    assert len(list(wrap(Watched()))) >= 2


def test_every_place_that_walks_the_loader_is_looked_at() -> None:
    loader = Watched()
    for _ in range(2):
        for _ in loader:
            pass
    with pytest.raises(JobError, match="enumerate around the loader"):
        for _ in enumerate(loader):
            pass


def test_a_wrapper_that_counts_from_the_second_walk_on_is_seen() -> None:
    loader = Watched()
    with pytest.raises(JobError, match="enumerate around the loader"):
        for epoch in range(2):
            for _ in loader if epoch == 0 else (one for _, one in enumerate(loader)):
                pass


def test_counting_something_else_at_the_same_time_is_no_matter() -> None:
    for _ in enumerate(range(3)):
        assert list(Bar(Watched())) == [0, 1, 2]
