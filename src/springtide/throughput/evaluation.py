"""How good a form is on a split: error, coverage of the interval, and the cost of the choices it leads to.

Each model is fitted on its own points of the split (with a prior from the other models if asked) and predicts the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from springtide.throughput.predictions import Prediction, Predictor
from springtide.throughput.splits import Split
from springtide.throughput.tables.points import Point, group_points

# Of the true peak throughput: the deadlines of the decision test.
DEADLINES = (0.3, 0.5, 0.7, 0.9)
# How sure a choice must be of its deadline; the planner asks for 90 % (docs/decisions/041 has the curve).
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9)
DEFAULT_CONFIDENCE = 0.7


@dataclass(frozen=True, slots=True)
class Trial:
    """A predicted row beside its measurement."""

    point: Point
    prediction: Prediction

    @property
    def error(self) -> float:
        """Relative error of the step time."""
        return abs(self.prediction.step_s / self.point.step_s - 1)

    @property
    def covered(self) -> bool:
        """Whether the measurement lies in the 90 % interval."""
        return self.prediction.low_s <= self.point.step_s <= self.prediction.high_s

    @property
    def width(self) -> float:
        """Width of the interval relative to the prediction."""
        return (self.prediction.high_s - self.prediction.low_s) / self.prediction.step_s


@dataclass(frozen=True, slots=True)
class Choice:
    """What one decision cost: regret in node-hours against the best row that meets the deadline, and if it met it."""

    regret: float
    met: bool


@dataclass(frozen=True, slots=True)
class Score:
    """A form on a split: mean and median error, coverage, median width, mean regret and share of deadlines met."""

    rows: int
    mape: float
    median: float
    coverage: float
    width: float
    regret: float
    met: float


def run_trials(points: Sequence[Point], split: Split, form: str, prior: bool) -> list[Trial]:
    """Every predicted row of a table under a split; with `prior`, all rows of the other models are learned from."""
    trials: list[Trial] = []
    for members in group_points(points).values():
        fitted, wanted = split.divide(members)
        if len(fitted) < 2 or not wanted:
            continue
        predictor = Predictor(fitted, points if prior else (), form)
        predictions = predictor.predict([point.layout for point in wanted])
        trials += [Trial(point, prediction) for point, prediction in zip(wanted, predictions, strict=True)]
    return trials


def score_trials(trials: Sequence[Trial], confidence: float = DEFAULT_CONFIDENCE) -> Score:
    """The figures of a list of trials; decisions are taken per model at every deadline."""
    errors = [trial.error for trial in trials]
    choices = decide_all(trials, confidence)
    return Score(
        len(trials),
        float(np.mean(errors)),
        float(np.median(errors)),
        float(np.mean([trial.covered for trial in trials])),
        float(np.median([trial.width for trial in trials])),
        float(np.mean([choice.regret for choice in choices])),
        float(np.mean([choice.met for choice in choices])),
    )


def decide_all(trials: Sequence[Trial], confidence: float) -> list[Choice]:
    """The choice for every model, device type and deadline."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.point.layout.group, []).append(trial)
    return [decide(members, share, confidence) for members in groups.values() for share in DEADLINES]


def decide(trials: Sequence[Trial], share: float, confidence: float) -> Choice:
    """The cheapest row believed to reach a share of the true peak throughput, and what it really costs.

    Believed means with this confidence, by the row's own interval; if no row is, the fastest is taken. Cost is
    node-seconds per sample; a choice that misses the deadline has regret like any other, never below zero.
    """
    samples = np.array([trial.point.layout.devices * trial.point.layout.local_batch for trial in trials])
    nodes = np.array([trial.point.layout.nodes for trial in trials])
    true = samples / np.array([trial.point.step_s for trial in trials])
    believed = samples / np.array([trial.prediction.step_s for trial in trials])
    sure = samples / np.array([trial.prediction.step_under_s(confidence) for trial in trials])
    target = share * true.max()
    enough = sure >= target
    chosen = int(np.argmin(np.where(enough, nodes / believed, np.inf)) if enough.any() else np.argmax(sure))
    best = (nodes / true)[true >= target].min()
    return Choice(max(0.0, float((nodes / true)[chosen] / best - 1)), bool(true[chosen] >= target))


def score_models(trials: Sequence[Trial], confidence: float = DEFAULT_CONFIDENCE) -> dict[str, Score]:
    """The figures of each model apart."""
    models: dict[str, list[Trial]] = {}
    for trial in trials:
        models.setdefault(trial.point.layout.model, []).append(trial)
    return {model: score_trials(members, confidence) for model, members in models.items()}
