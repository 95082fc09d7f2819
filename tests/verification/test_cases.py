"""What the options of `springtide verify` ask for."""

import pytest
from benchmarks.training_equality import draw_case
from hypothesis import given
from hypothesis import strategies as st

from springtide.errors import JobError
from springtide.verification.cases import Case, choose_rescale, choose_sizes, plan_cases


def test_the_options_of_the_issue_make_seven_cases() -> None:
    cases = plan_cases("4,2,1,2+1+1,3+1", "4,1,3,2", 2, workers=4, steps=50)
    assert [case.name for case in cases] == ["4", "2", "1", "2+1+1", "3+1", "rescale 4,1,3,2", "kill 2"]
    assert cases[3] == Case("2+1+1", ((0, (2, 1, 1)),))
    assert cases[5].mappings == ((0, (1, 1, 1, 1)), (12, (4,)), (25, (2, 1, 1)), (37, (2, 2)))
    assert cases[6].kills == (16, 33)


def test_sizes_and_rescales_are_chosen_for_any_number_of_workers() -> None:
    assert (choose_sizes(4), choose_rescale(4, 50)) == ("4,2,1,2+1+1,3+1", "4,1,3,2")
    assert (choose_sizes(1), choose_rescale(1, 50)) == ("1", "")
    assert (choose_sizes(2), choose_rescale(2, 3)) == ("2,1", "2,1,1")
    for workers in range(1, 10):
        assert plan_cases(choose_sizes(workers), choose_rescale(workers, 5), 2, workers, 5)


def test_a_size_that_cannot_hold_the_workers_is_refused() -> None:
    with pytest.raises(JobError):
        plan_cases("4,5", "", 0, workers=4, steps=3)


def test_more_sizes_or_kills_than_steps_are_refused() -> None:
    with pytest.raises(JobError, match="raise --steps"):
        plan_cases("", "4,1,3", 0, workers=4, steps=2)
    with pytest.raises(JobError, match="fewer kills than steps"):
        plan_cases("", "", 3, workers=4, steps=3)


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(6, 50))
def test_random_schedules_are_valid_and_repeatable(seed: int, workers: int, steps: int) -> None:
    case = draw_case(seed, workers, steps)
    assert case == draw_case(seed, workers, steps)
    assert case.mappings[0][0] == 0
    for start, mapping in case.mappings:
        assert 0 <= start < steps and sum(mapping) == workers and min(mapping) >= 1
    assert all(0 < step < steps for step in case.kills)
