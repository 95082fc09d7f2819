"""How far iterators of a script have come, in words that are the same in every process."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from springtide.training.state.script.held_iterators import is_iterator, mark_iterator


def count_up() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


MAKERS: list[Callable[[], Any]] = [
    lambda: iter([1, 2, 3]),
    lambda: iter(range(9)),
    lambda: iter({1: 2, 3: 4}.items()),
    itertools.count,
    lambda: itertools.cycle([1, 2]),
    lambda: zip([1, 2], "ab", strict=True),
    lambda: map(str, [1, 2]),
    count_up,
    lambda: (one for one in [1, 2, 3]),
]


@pytest.mark.parametrize("make", MAKERS)
def test_an_iterator_that_goes_on_is_another_and_the_same_elsewhere(make: Callable[[], Any]) -> None:
    one, other = make(), make()
    assert is_iterator(one)
    before = mark_iterator(one)
    assert mark_iterator(other) == before
    next(one)
    assert mark_iterator(one) != before
    next(other)
    assert mark_iterator(other) == mark_iterator(one)


def test_what_the_loop_goes_through_is_at_its_place() -> None:
    marks: list[str] = []
    running: list[Any] = []

    def walk() -> Iterator[int]:
        for place in range(3):
            marks.append(mark_iterator(running[0]))
            yield place

    running.append(map(str, walk()))
    running.append(running[0])
    list(running[1])
    assert len(set(marks)) == 1
