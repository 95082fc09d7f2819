"""Generators of a script's own: refused where turns go on drawing from them, left alone where they are seeded there."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from springtide.errors import JobError
from springtide.training.state.turn_memory import FIRST, TurnMemory


class Walk:
    """Turns of one worker, looked at as those of a run are."""

    def __init__(self) -> None:
        self.memory = TurnMemory()
        self.state: dict[str, Any] = {}

    def __iter__(self) -> Iterator[int]:
        for number in range(FIRST + 1):
            self.memory.begin_turn([])
            yield number
            self.memory.end_turn([], self.state)


class Trainer:
    """A script's own class."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def train(self, walk: Walk) -> None:
        for _ in walk:
            self.rng.uniform(size=3)


def draw_from_torchs(walk: Walk) -> None:
    gen = torch.Generator().manual_seed(0)
    for _ in walk:
        torch.randn(3, generator=gen)


def draw_in_an_object(walk: Walk) -> None:
    Trainer().train(walk)


def draw_from_a_container(walk: Walk) -> None:
    chances = {"noise": np.random.RandomState(0)}
    for _ in walk:
        chances["noise"].rand(2)


def draw_from_pythons(walk: Walk) -> None:
    chance = random.Random(0)
    for _ in walk:
        chance.random()


@pytest.mark.parametrize("script", [draw_from_torchs, draw_in_an_object, draw_from_a_container, draw_from_pythons])
def test_a_generator_that_turns_go_on_from_is_refused(script: Callable[[Walk], None]) -> None:
    with pytest.raises(JobError, match="is a random generator of the script's own"):
        script(Walk())


def seed_by_turn(walk: Walk) -> None:
    gen, chance = torch.Generator(), random.Random(0)
    for number in walk:
        torch.randn(3, generator=gen.manual_seed(number))
        chance.seed(number)
        chance.random()


def seed_alike(walk: Walk) -> None:
    gen = torch.Generator()
    for _ in walk:
        torch.randn(3, generator=gen.manual_seed(7))


def make_anew(walk: Walk) -> None:
    for number in walk:
        rng = np.random.default_rng((0, number))
        rng.normal(size=2)


def draw_from_the_global_ones(walk: Walk) -> None:
    chance, rng, default = random, np.random, torch.default_generator
    for _ in walk:
        chance.random()
        rng.rand()
        torch.randn(2, generator=default)


def keep_in_the_workers_state(walk: Walk) -> None:
    gen, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    for _ in walk:
        gen.set_state(walk.state.get("gen", gen.get_state()))
        torch.randn(3, generator=gen)
        rng.normal()
        walk.state.update(gen=gen.get_state(), rng=rng.bit_generator.state)


class Shuffled(IterableDataset[int]):
    """A stream that repeats itself, by a generator that it seeds in every epoch."""

    def __init__(self) -> None:
        self.gen = torch.Generator()

    def __iter__(self) -> Iterator[int]:
        self.gen.manual_seed(0)
        while True:
            yield int(torch.randint(9, (), generator=self.gen))


def read_a_stream(walk: Walk) -> None:
    data = Shuffled()
    items = iter(data)
    for _ in walk:
        next(items)


def draw_before(walk: Walk) -> None:
    rng = np.random.default_rng(0)
    for _ in walk:
        pass
    rng.normal()


@pytest.mark.parametrize(
    "script",
    [
        seed_by_turn,
        seed_alike,
        make_anew,
        draw_from_the_global_ones,
        keep_in_the_workers_state,
        read_a_stream,
        draw_before,
    ],
)
def test_what_is_a_workers_own_is_left_alone(script: Callable[[Walk], None]) -> None:
    script(Walk())
