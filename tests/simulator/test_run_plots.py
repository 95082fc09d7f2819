"""Drawings of runs: averages over cells."""

import pytest

from springtide.simulator.run_plots import average_steps


def test_cells_average_a_step_function() -> None:
    hours, means = average_steps([(0.0, 4), (1800.0, 0), (3600.0, 2), (7200.0, 0)], 2)
    assert hours == [0.0, 1.0]
    assert means == pytest.approx([2.0, 2.0])


def test_nothing_held_draws_nothing() -> None:
    assert average_steps([], 10) == ([], [])
