import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import least_squares

from springtide.throughput.model.least_squares import find_minimum

Array = NDArray[np.float64]
ONES = np.ones(2)


def bend(at: Array) -> Array:
    """Rosenbrock's valley: its floor is curved, and the minimum (1, 1) lies far along it."""
    return np.array([10 * (at[1] - at[0] ** 2), 1 - at[0]])


def slope(at: Array) -> Array:
    return np.array([[-20 * at[0], 10.0], [-1.0, 0.0]])


@given(st.tuples(st.floats(-3, 3), st.floats(-3, 3)))
def test_the_end_of_a_curved_valley_is_found(start: tuple[float, float]) -> None:
    found, cost = find_minimum(bend, slope, np.array(start), ONES, 500)
    assert found == pytest.approx([1, 1], abs=1e-4) and cost < 1e-9


@given(st.integers(0, 10_000))
def test_it_finds_what_scipy_finds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    weights, aims = draw.normal(size=(12, 4)), draw.normal(size=12)

    def residuals(at: Array) -> Array:
        return np.concatenate([np.tanh(weights @ at) - aims, 0.3 * at])

    def jacobian(at: Array) -> Array:
        inner: Array = (1 - np.tanh(weights @ at) ** 2)[:, None] * weights
        return np.concatenate([inner, 0.3 * np.eye(4)])

    start = np.zeros(4)
    theirs = least_squares(residuals, start, jac=jacobian)
    found, cost = find_minimum(residuals, jacobian, start, np.ones(4), 200)
    assert cost <= theirs.cost * (1 + 1e-6) or find_slope(residuals, jacobian, found) < 1e-5


def find_slope(residuals: object, jacobian: object, at: Array) -> float:
    """How steep the cost still is: 0 in a minimum, which need not be the one that another finds."""
    assert callable(residuals) and callable(jacobian)
    return float(np.abs(jacobian(at).T @ residuals(at)).max())


def test_a_start_without_finite_residuals_is_refused() -> None:
    with pytest.raises(ValueError, match="begin elsewhere"):
        find_minimum(bend, slope, np.array([np.nan, 0.0]), ONES, 10)


def test_where_nothing_depends_on_the_parameters_the_start_is_the_minimum() -> None:
    found, cost = find_minimum(lambda at: np.ones(2), lambda at: np.zeros((2, 2)), ONES, ONES, 10)
    assert (found.tolist(), cost) == ([1.0, 1.0], 1.0)


def test_it_stops_when_it_has_looked_often_enough() -> None:
    found, cost = find_minimum(bend, slope, np.array([-2.0, 2.0]), ONES, 1)
    assert 0 < cost < 0.5 * float(bend(np.array([-2.0, 2.0])) @ bend(np.array([-2.0, 2.0])))
    assert found != pytest.approx([1, 1], abs=1e-2)
