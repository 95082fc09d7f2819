import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, run

from springtide.policies.research.gavel import _solve, balance_speeds, fill_level, gavel


def test_jobs_that_do_not_fit_take_turns() -> None:
    replay = run(gavel, [JobSketch(1000, 0, requested=4, speeds={4: 1.0}) for _ in range(2)])
    assert [share for _, share in replay.changes["a"]][:3] == [4, 0, 4]
    assert replay.first_start("b") == 360.0


def test_all_run_while_all_fit() -> None:
    replay = run(gavel, [JobSketch(1000, 0, requested=2), JobSketch(1000, 0, requested=2)])
    assert replay.changes["a"] == replay.changes["b"] == [(0.0, 2)]


def test_a_small_job_runs_more_of_the_time_than_a_large_one() -> None:
    small, large = fill_level(np.array([[1.0], [4.0], [4.0]]), 4.0)[:2, 0]
    assert (small, large) == (1.0, pytest.approx(1.5 / 4))


def test_the_job_that_gains_most_from_the_fast_type_gets_it() -> None:
    speeds = np.array([[10.0, 1.0], [1.0, 1.0]])
    fractions = balance_speeds(speeds, np.ones((2, 2)), np.array([1.0, 1.0]))
    assert fractions[0, 0] > 0.9 and fractions[1, 1] > 0.9


def test_a_type_that_a_job_cannot_run_on_is_no_part_of_its_time() -> None:
    fractions = balance_speeds(np.array([[1.0, 0.0], [1.0, 2.0]]), np.ones((2, 2)), np.array([1.0, 1.0]))
    assert fractions[0, 1] == 0.0
    assert np.all(fractions.sum(axis=0) <= 1.0 + 1e-9)


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0]), min_size=1, max_size=6), st.integers(8, 16))
def test_one_type_needs_no_solver(sizes: list[float], devices: int) -> None:
    column = np.array(sizes)[:, None]
    direct = fill_level(column, float(devices))
    # beside a type that nobody can use the programs say the same of the worst-off, and never hand out more
    worth = np.hstack([column, np.zeros_like(column)])
    solved = _solve(worth, worth, np.array([float(devices), 1.0]))[:, :1]
    assert (direct * column).min() == pytest.approx((solved * column).min(), rel=1e-4)
    assert (direct * column).sum() <= devices + 1e-6
