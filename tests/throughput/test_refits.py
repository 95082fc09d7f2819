"""Curves from predictions, and what observation does to them."""

import pytest
from tests.throughput.made_up import make_points, make_step_s

from springtide.throughput.points import make_layout
from springtide.throughput.predictions import Predictor
from springtide.throughput.refits import Observation, Task, add_observations, predict_curve

TASK = Task("net", "x100", global_batch=256, per_node=4)


def test_a_curve_has_a_pessimistic_end_below_it() -> None:
    curve = predict_curve(Predictor(make_points()), TASK, (1, 2, 4, 8, 16))
    assert all(low < rate for low, rate in zip(curve.low, curve.rates, strict=True))
    assert curve.rate(8) == pytest.approx(1 / make_step_s(2, 8, 32), rel=0.08)


def test_logical_workers_take_turns() -> None:
    task = Task("net", "x100", 256, 4, logical_workers=8)
    curve = predict_curve(Predictor(make_points()), task, (1, 2, 4, 8))
    assert curve.rate(1) == pytest.approx(1 / (8 * make_step_s(1, 1, 32)), rel=0.05)
    assert list(curve.rates) == sorted(curve.rates)


def test_observed_steps_pull_the_curve_to_them() -> None:
    points = make_points(places=((1, 1), (1, 4), (2, 8)), batches=(16, 32, 64))
    before = predict_curve(Predictor(points), TASK, (8,)).rate(8)
    slow = Observation(make_layout("net", "x100", 2, 8, 32), 1.2 / before, steps=2000)
    after = predict_curve(Predictor(add_observations(points, [slow])), TASK, (8,)).rate(8)
    assert after == pytest.approx(before / 1.2, rel=0.06)


def test_no_steps_are_no_observation() -> None:
    points = make_points()
    assert add_observations(points, [Observation(points[0].layout, 1.0, 0)]) == points
