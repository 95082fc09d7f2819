"""Step functions: their value at an instant, and their mean over a while."""

import pytest
from experiments.steps import average_over, value_at

STEPS = [(0.0, 2), (10.0, 4), (20.0, 0)]


def test_values_and_means() -> None:
    assert [value_at(STEPS, at) for at in (-1, 0, 9, 10, 25)] == [0, 2, 2, 4, 0]
    assert average_over(STEPS, 0, 20) == pytest.approx(3.0)
    assert average_over(STEPS, 5, 15) == pytest.approx(3.0)
    assert average_over(STEPS, -10, 10) == pytest.approx(1.0)
