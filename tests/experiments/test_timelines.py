"""Drawings of runs: averages over cells, and targets that are refused before anything runs."""

from pathlib import Path

import pytest

from springtide.errors import InputError
from springtide.experiments.timelines import average_steps, check_target


def test_cells_average_a_step_function() -> None:
    hours, means = average_steps([(0.0, 4), (1800.0, 0), (3600.0, 2), (7200.0, 0)], 2)
    assert hours == [0.0, 1.0]
    assert means == pytest.approx([2.0, 2.0])


def test_nothing_held_draws_nothing() -> None:
    assert average_steps([], 10) == ([], [])


def test_unwritable_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'\.txt'; it must be one of \.png"):
        check_target(tmp_path / "x.txt")
    with pytest.raises(InputError, match="does not exist"):
        check_target(tmp_path / "none" / "x.png")
