"""How good a form is on a split: error, coverage of the interval, and the cost of the choices it leads to.

A split says which rows of a table are fitted and which are predicted: a rule over layouts, never over model names, so
that it means the same on any table; splits do not change with a form. Each model is fitted on its own points of the
split (with a prior from the other models if asked) and predicts the rest. matplotlib is imported only to draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from springtide.errors import InputError, ProfileError
from springtide.throughput.model.forms import DEFAULT_FORM, FORMS
from springtide.throughput.predictions import Prediction, Predictor
from springtide.throughput.tables.points import Point, group_points, read_points

# Of the true peak throughput: the deadlines of the decision test.
DEADLINES = (0.3, 0.5, 0.7, 0.9)
# How sure a choice must be of its deadline; the planner asks for 90 % (docs/decisions/040 has the curve).
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9)
DEFAULT_CONFIDENCE = 0.7

Rule = Callable[[Sequence[Point]], tuple[list[Point], list[Point]]]


@dataclass(frozen=True, slots=True)
class Split:
    """A named rule that divides one model's points into those fitted and those predicted."""

    name: str
    what: str
    divide: Rule


def by_devices(fitted: frozenset[int], predicted: frozenset[int]) -> Rule:
    """Fit the points on some device counts, predict those on others."""

    def divide(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
        return (
            [point for point in points if point.layout.devices in fitted],
            [point for point in points if point.layout.devices in predicted],
        )

    return divide


def up_to(most: int) -> Rule:
    """Fit every point on at most so many devices, predict the larger ones."""

    def divide(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
        small = [point for point in points if point.layout.devices <= most]
        return small, [point for point in points if point.layout.devices > most]

    return divide


def nine_probes(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Fit nine probes and predict the rest: one device at three batches; a full node, two and four full nodes at two.

    Full means the most devices any node of this model held. Where a layout was not measured at a batch, the nearest
    batch of that layout is taken; a layout that was never measured is left out.
    """
    full = max(point.layout.max_per_node for point in points)
    wanted = [(1, 1, (0.0, 0.5, 1.0)), *((nodes, full * nodes, (0.0, 1.0)) for nodes in (1, 2, 4))]
    chosen: list[int] = []
    for nodes, devices, quantiles in wanted:
        rows = [
            row for row, point in enumerate(points) if (point.layout.nodes, point.layout.devices) == (nodes, devices)
        ]
        rows.sort(key=lambda row: (points[row].layout.local_batch, row))
        chosen += [rows[round(quantile * (len(rows) - 1))] for quantile in quantiles if rows]
    probes = sorted(set(chosen))
    return [points[row] for row in probes], [point for row, point in enumerate(points) if row not in set(probes)]


SPLITS = {
    split.name: split
    for split in (
        Split(
            "sparse",
            "fit 1, 8, 16 devices; predict 2, 4, 32, 64",
            by_devices(frozenset({1, 8, 16}), frozenset({2, 4, 32, 64})),
        ),
        Split(
            "dense",
            "fit 1, 2, 4, 8, 16 devices; predict 32, 64",
            by_devices(frozenset({1, 2, 4, 8, 16}), frozenset({32, 64})),
        ),
        Split("small", "fit up to 8 devices; predict more", up_to(8)),
        Split("probes", "fit nine probes (1 device, a full node, 2 and 4 full nodes); predict the rest", nine_probes),
    )
}


def find_split(name: str) -> Split:
    """A frozen split by name, or one written as counts: `1,8,16:2,4,32,64`, or `<=8`."""
    if name in SPLITS:
        return SPLITS[name]
    try:
        if name.startswith("<="):
            return Split(name, f"fit up to {int(name[2:])} devices; predict more", up_to(int(name[2:])))
        fitted, predicted = (frozenset(map(int, part.split(","))) for part in name.split(":"))
        return Split(name, f"fit and predict by devices {name}", by_devices(fitted, predicted))
    except ValueError:
        known = "; ".join(f"{split.name}: {split.what}" for split in SPLITS.values())
        raise ProfileError(f"split {name!r} is unknown; there are {known}; or write 1,8,16:2,4 or <=8") from None


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


def draw_trials(trials: Sequence[Trial], target: Path) -> None:
    """Save a picture: one dot per row, measured across, predicted up, on logarithmic axes, with a line at equality."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots()
    models: dict[str, list[Trial]] = {}
    for trial in trials:
        models.setdefault(trial.point.layout.model, []).append(trial)
    for model, members in models.items():
        measured = [trial.point.step_s for trial in members]
        axes.plot(measured, [trial.prediction.step_s for trial in members], "o", ms=4, alpha=0.5, mew=0, label=model)
    ends = [min(trial.point.step_s for trial in trials), max(trial.point.step_s for trial in trials)]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color="black", alpha=0.08, lw=0)
    axes.set(xscale="log", yscale="log", xlabel="measured step, seconds", ylabel="predicted step, seconds")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    error = sum(trial.error for trial in trials) / len(trials)
    axes.set_title(f"{len(trials)} rows not used in the fit, mean error {error:.1%}; band: ±10 %", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(target, dpi=150)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `springtide throughput evaluate` shows: the trials of each form on one split, and their scores."""

    split: Split
    trials: dict[str, list[Trial]]
    scores: dict[str, Score]

    @property
    def title(self) -> str:
        """The split in words."""
        return f"{self.split.name}: {self.split.what}"

    def draw(self, path: Path) -> None:
        """Draw predicted against measured, of the first form."""
        draw_trials(next(iter(self.trials.values())), path)

    def describe(self) -> dict[str, Any]:
        """The document."""
        forms = [
            {
                "form": name,
                **asdict(score),
                "models": {m: asdict(s) for m, s in score_models(self.trials[name]).items()},
            }
            for name, score in self.scores.items()
        ]
        return {"schema": 1, "split": {"name": self.split.name, "what": self.split.what}, "forms": forms}

    @property
    def legend(self) -> str:
        """What the headings mean."""
        return (
            "MAPE, median: error of the predicted step times; 90 % covers: how often the interval held; "
            "regret: cost of the choices above the best ones"
        )

    def tabulate(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The headings and rows of the table."""
        headings = ("form", "rows", "MAPE", "median", "90 % covers", "median width", "regret", "deadlines met")
        return headings, [(name, str(score.rows), *show_shares(score)) for name, score in self.scores.items()]


def judge(data: Path, split: Split, names: str, prior: bool, confidence: float) -> Judgement:
    """Forms, joined by commas or all, on a table of points."""
    points, wanted = read_points(data), list(FORMS) if names == "all" else [name.strip() for name in names.split(",")]
    trials: dict[str, list[Trial]] = {}
    if prior and DEFAULT_FORM in wanted:
        trials[f"{DEFAULT_FORM} + prior"] = run_trials(points, split, DEFAULT_FORM, prior=True)
    for name in wanted:
        trials[name] = run_trials(points, split, name, prior=False)
    if not all(trials.values()):
        raise InputError(f"split {split.name!r} ({split.what}) leaves nothing to predict in this table; choose another")
    return Judgement(split, trials, {name: score_trials(found, confidence) for name, found in trials.items()})


def show_shares(score: Score) -> tuple[str, ...]:
    """The figures of a score in per cent."""
    shares = (score.mape, score.median, score.coverage, score.width, score.regret, score.met)
    return tuple(f"{share:.1%}" for share in shares)
