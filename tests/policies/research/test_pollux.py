from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, run

from springtide.core.jobs import Overhead
from springtide.policies.research.configurations import Choice, distribute
from springtide.policies.research.pollux import pollux


def test_jobs_grow_by_doubling_every_minute() -> None:
    replay = run(pollux, [JobSketch(1000, 0)])
    assert replay.changes["a"] == [(0.0, 1), (60.0, 2), (120.0, 4)]


def test_equal_jobs_end_up_with_equal_shares() -> None:
    replay = run(pollux, [JobSketch(1000, 0), JobSketch(1000, 0)])
    assert replay.changes["a"][:2] == replay.changes["b"][:2] == [(0.0, 1), (60.0, 2)]


def test_a_job_that_scales_gets_more_than_one_that_does_not() -> None:
    flat = {1: 1.0, 2: 1.05, 4: 1.1}
    replay = run(pollux, [JobSketch(1000, 0, speeds=flat), JobSketch(1000, 0), JobSketch(1000, 0)])
    assert replay.changes["b"][1] == (60.0, 2)
    assert replay.changes["a"][0] == (0.0, 1)


def test_a_newcomer_gets_a_free_device_at_once() -> None:
    speeds = {1: 1.0, 2: 2.0}
    replay = run(pollux, [JobSketch(1000, 0, speeds=speeds), JobSketch(100, 70)])
    assert replay.changes["b"][0] == (70.0, 1)


def test_costly_restarts_are_rare() -> None:
    cost = Overhead(base_s=30.0)
    jobs = [JobSketch(3000, 30 * index, overhead=cost) for index in range(8)]
    replay = run(pollux, jobs)
    assert len(replay.finishes) == 8
    assert sum(len(changes) for changes in replay.changes.values()) < 60


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([1, 2, 4]), st.floats(0, 50)), max_size=3, unique_by=lambda choice: choice[0]
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 8),
)
def test_the_search_finds_the_optimum(options: list[list[Choice]], devices: int) -> None:
    choices = [[(0, 100.0), *job] for job in options]
    shares = distribute(choices, devices)
    assert sum(shares) <= devices
    best = min(
        sum(value for _, value in picked)
        for picked in product(*choices)
        if sum(share for share, _ in picked) <= devices
    )
    found = sum(dict(job)[share] for job, share in zip(choices, shares, strict=True))
    assert found == pytest.approx(best)
