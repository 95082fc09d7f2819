import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.policies.replays import JobSketch, run

from springtide.policies.research.themis import Account, balance, themis


def test_equal_jobs_get_equal_fractions() -> None:
    fractions = balance(np.array([100.0, 100.0]), np.zeros(2), np.array([200.0, 200.0]), np.array([4.0, 4.0]), 4)
    assert fractions == pytest.approx([0.5, 0.5])


def test_a_job_that_is_behind_gets_more() -> None:
    # alone they would take 200 s each; the first has waited 100 s: rho = (100 + 100/x) / 200 = (100/y) / 200, x + y = 1
    fractions = balance(np.array([100.0, 100.0]), np.array([100.0, 0.0]), np.full(2, 200.0), np.array([4.0, 4.0]), 4)
    assert fractions.sum() == pytest.approx(1.0)
    assert 100 + 100 / fractions[0] == pytest.approx(100 / fractions[1])


def test_everybody_runs_all_the_time_if_there_is_room() -> None:
    fractions = balance(np.array([10.0, 99.0]), np.array([500.0, 0.0]), np.array([20.0, 99.0]), np.array([2.0, 2.0]), 4)
    assert fractions.tolist() == [1.0, 1.0]


@given(
    st.lists(
        st.tuples(st.floats(1, 1e4), st.floats(0, 1e4), st.floats(1, 5), st.sampled_from([1.0, 2.0, 4.0])),
        min_size=2,
        max_size=8,
    ),
    st.integers(4, 12),
)
def test_fractions_are_those_of_the_linear_program(rows: list[tuple[float, float, float, float]], devices: int) -> None:
    left_s, elapsed_s, stretch, gangs = (np.array(column) for column in zip(*rows, strict=True))
    alone_s = elapsed_s * 0.5 + left_s * stretch
    fractions = balance(left_s, elapsed_s, alone_s, gangs, devices)
    assert gangs @ fractions <= devices * (1 + 1e-9)
    rho = np.max((elapsed_s + left_s / fractions) / alone_s)
    # for a fixed rho the program asks x >= left / (rho * alone - elapsed); a slightly smaller rho has no solution
    needed = left_s / np.maximum(rho * (1 - 1e-4) * alone_s - elapsed_s, 1e-12)
    program = linprog(
        np.zeros(len(rows)), A_ub=[gangs], b_ub=[devices], bounds=[(need, max(need, 1)) for need in needed]
    )
    assert np.any(needed > 1.0) or program.status == 2


def test_isolated_time_counts_work_at_the_isolated_speed() -> None:
    assert Account(isolated_s=10.0, work_left=100.0, isolated_rate=0.5).settle_s(work_left=80.0) == 50.0


def test_a_job_that_waited_takes_the_next_round() -> None:
    replay = run(themis, [JobSketch(8000, 0, requested=4), JobSketch(400, 10, requested=4)])
    assert replay.changes["b"][0] == (360.0, 4)
    assert replay.finishes["b"] == 460.0
    assert replay.finishes["a"] == 2100.0
