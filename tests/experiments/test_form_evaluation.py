"""Splits, scores and decisions: what is left out, and what a choice costs."""

from pathlib import Path

import pytest
from experiments.form_evaluation import (
    SPLITS,
    Trial,
    decide,
    draw_trials,
    find_split,
    nine_probes,
    run_trials,
    score_models,
    score_trials,
)
from tests.throughput.made_up_points import make_points

from springtide.errors import ProfileError
from springtide.throughput.predictions import Prediction
from springtide.throughput.tables.points import Point, make_layout


def make_trial(nodes: int, true_s: float, predicted_s: float) -> Trial:
    layout = make_layout("net", "x", nodes, nodes * 4, 16)
    low, high = predicted_s * 0.9, predicted_s * 1.1
    return Trial(Point(layout, true_s), Prediction(layout, predicted_s, low, high, "physical", ""))


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_never_predicts_what_it_fits(name: str) -> None:
    points = make_points(places=((1, 1), (1, 2), (1, 4), (1, 8), (2, 16), (4, 32), (8, 64)))
    fitted, predicted = SPLITS[name].divide(points)
    assert fitted
    assert predicted
    assert not set(fitted) & set(predicted)


def test_nine_probes_are_nine() -> None:
    points = make_points(places=((1, 1), (1, 4), (2, 8), (4, 16), (8, 32)))
    fitted, predicted = nine_probes(points)
    assert len(fitted) == 9
    assert len(predicted) == len(points) - 9


def test_a_split_can_be_written_as_counts() -> None:
    points = make_points()
    fitted, predicted = find_split("1,4:16").divide(points)
    assert {point.layout.devices for point in fitted} == {1, 4}
    assert {point.layout.devices for point in predicted} == {16}
    assert {point.layout.devices for point in find_split("<=4").divide(points)[1]} == {8, 16, 32}
    with pytest.raises(ProfileError, match="split 'half' is unknown; there are sparse"):
        find_split("half")


def test_the_cheapest_row_that_is_believed_to_be_fast_enough_is_chosen() -> None:
    # Throughput 64, 96, 128 samples/s on 1, 2, 4 nodes; node-seconds per sample rise.
    trials = [make_trial(1, 1.0, 1.0), make_trial(2, 4 / 3, 4 / 3), make_trial(4, 2.0, 2.0)]
    assert decide(trials, 0.5, 0.5).regret == 0
    assert decide(trials, 0.5, 0.5).met
    # Who must be surer passes over the row that is exactly fast enough; the next costs 4/3 as much.
    assert decide(trials, 0.5, 0.9).regret == pytest.approx(1 / 3)


def test_a_prediction_that_is_too_bold_misses_the_deadline() -> None:
    trials = [make_trial(1, 1.0, 0.5), make_trial(2, 1.0, 1.0)]
    choice = decide(trials, 0.9, 0.5)
    assert not choice.met


def test_scores_of_exact_predictions() -> None:
    score = score_trials([make_trial(1, 1.0, 1.0), make_trial(2, 1.5, 1.5)], confidence=0.5)
    assert (score.mape, score.coverage, score.regret, score.met) == (0, 1, 0, 1)


def test_the_physical_form_beats_pollux_across_nodes() -> None:
    points = [*make_points("a"), *make_points("b", speed=1.4), *make_points("c", speed=0.7)]
    split = find_split("1,2,4,8,16:32")
    ours = score_trials(run_trials(points, split, "physical", prior=True))
    theirs = score_trials(run_trials(points, split, "pollux", prior=False))
    assert ours.mape < theirs.mape
    assert set(score_models(run_trials(points, split, "nearest", prior=False))) == {"a", "b", "c"}


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    target = tmp_path / "trials.png"
    draw_trials([make_trial(1, 1.0, 1.1), make_trial(2, 1.5, 1.4)], target)
    assert target.read_bytes().startswith(b"\x89PNG")
