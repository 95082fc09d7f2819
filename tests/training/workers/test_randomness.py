"""Taking and putting back the state of every generator."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from springtide.errors import JobError
from springtide.training.workers import randomness


def draw() -> list[float]:
    """One number of each generator; an odd number of normals leaves one cached."""
    return [random.random(), random.gauss(0, 1), float(np.random.randn()), np.random.rand(), float(torch.randn(()))]


def test_states_continue_where_they_were_taken() -> None:
    randomness.seed_all(1)
    for _ in range(3):
        state = randomness.capture()
        first = draw()
        other = randomness.capture()
        second = draw()
        randomness.restore(state)
        assert draw() == first
        assert draw() == second
        randomness.restore(other)
        assert draw() == second


def test_switching_between_workers_is_as_if_each_ran_alone() -> None:
    alone = []
    for seed in range(3):
        randomness.seed_all(seed)
        alone.append([draw() for _ in range(4)])
    states = []
    for seed in range(3):
        randomness.seed_all(seed)
        states.append(randomness.capture())
    for turn in range(4):
        for seed in range(3):
            randomness.restore(states[seed])
            assert draw() == alone[seed][turn]
            states[seed] = randomness.capture()


def test_a_cached_normal_of_one_worker_is_not_seen_by_another() -> None:
    randomness.seed_all(1)
    clean = randomness.capture()
    expected = float(np.random.randn())
    randomness.restore(clean)
    np.random.seed(9)
    np.random.randn()
    randomness.restore(clean)
    assert float(np.random.randn()) == expected


def test_an_exchanged_bit_generator_is_followed() -> None:
    before = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.MT19937(4))
    try:
        state = randomness.capture()
        first = np.random.rand()
        randomness.restore(state)
        assert np.random.rand() == first
    finally:
        np.random.mtrand.set_bit_generator(before)


def test_a_bit_generator_of_another_kind_is_refused() -> None:
    before = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(4))
    try:
        with pytest.raises(JobError, match=r"np.random draws from PCG64; .* only for MT19937"):
            randomness.capture()
    finally:
        np.random.mtrand.set_bit_generator(before)


def test_plain_form_is_complete() -> None:
    randomness.seed_all(3)
    draw()
    state = randomness.capture()
    plain = randomness.to_plain(state)
    expected = draw()
    randomness.restore(randomness.from_plain(plain))
    assert draw() == expected


def test_mixed_seeds_differ() -> None:
    seeds = {randomness.mix(seed, epoch, index) for seed in range(3) for epoch in range(10) for index in range(200)}
    assert len(seeds) == 6000
    assert all(0 <= seed < 2**63 for seed in seeds)


CHANGES: list[Callable[[], object]] = [
    random.random,
    lambda: random.gauss(0, 1),
    lambda: random.gauss(0, 1),
    lambda: random.seed(5),
    lambda: random.setstate(random.getstate()),
    lambda: random.shuffle([1, 2, 3]),
]


@pytest.mark.parametrize("is_known", [True, False])
def test_pythons_state_is_what_it_says_wherever_its_struct_lies(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever draws or sets it behind our back, also the normal that it keeps outside of its struct."""
    assert randomness._python.memory is not None  # in every CPython that this was tried on
    if not is_known:
        monkeypatch.setattr(randomness._python, "memory", None)
    for change in CHANGES:
        change()
        state, said = randomness.capture(), random.getstate()
        assert (state.python, state.python_normal) == randomness.read_slowly(random._inst)
        assert randomness.is_at(state)
        following = random.gauss(0, 1)
        assert not randomness.is_at(state)
        random.gauss(0, 1), random.random()
        randomness.restore(state)
        assert random.getstate() == said and random.gauss(0, 1) == following


def test_a_struct_that_lies_elsewhere_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_HEADER", randomness._HEADER + 4)
    trial = random.Random(1)
    assert not randomness.goes_by_struct(trial)
    assert trial.getstate() == random.Random(1).getstate()
