"""From points and queries to predictions: group, choose the prior, fit, estimate, and say what is not sure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

from springtide.errors import ProfileError
from springtide.throughput.model.fitting import Z90
from springtide.throughput.model.forms import DEFAULT_FORM, FORMS, Estimator
from springtide.throughput.model.priors import DEFAULT_PRIOR, Prior, learn_prior
from springtide.throughput.tables.points import Layout, Point, group_points, make_columns, make_sample

FEWEST_POINTS = 2


@dataclass(frozen=True, slots=True)
class Prediction:
    """The step time of one layout with its 90 % interval, the form that gave it, and a remark where it is unsure."""

    layout: Layout
    step_s: float
    low_s: float
    high_s: float
    form: str
    note: str

    def step_under_s(self, confidence: float) -> float:
        """What the step stays under with this confidence, by the interval, which is log-normal."""
        spread = log(self.high_s / self.step_s) / Z90
        return self.step_s * exp(NormalDist().inv_cdf(confidence) * spread)


class Predictor:
    """Fits each (model, device type) once, when first asked for. `others` are points of other models: the prior."""

    def __init__(self, points: Iterable[Point], others: Iterable[Point] = (), form: str = DEFAULT_FORM) -> None:
        if form not in FORMS:
            raise ProfileError(f"form {form!r} is unknown; there are {', '.join(FORMS)}")
        self.form = form
        self._groups = group_points(points)
        self._others = group_points(others)
        self._estimators: dict[tuple[str, str], Estimator] = {}
        self._priors: dict[frozenset[tuple[str, str]], Prior] = {}

    def predict(self, layouts: Sequence[Layout]) -> list[Prediction]:
        """Predictions in the order of the layouts."""
        found: dict[int, Prediction] = {}
        rows: dict[tuple[str, str], list[int]] = {}
        for row, layout in enumerate(layouts):
            rows.setdefault(layout.group, []).append(row)
        for group, members in rows.items():
            for row, prediction in zip(members, self._predict_group(group, [layouts[r] for r in members]), strict=True):
                found[row] = prediction
        return [found[row] for row in range(len(layouts))]

    def _predict_group(self, group: tuple[str, str], layouts: Sequence[Layout]) -> list[Prediction]:
        estimate = self.estimator(group)(make_columns(layouts))
        ends = zip(estimate.step_s, estimate.low_s, estimate.high_s, strict=True)
        return [
            Prediction(layout, float(step_s), float(low_s), float(high_s), self.form, estimate.explain(row))
            for row, (layout, (step_s, low_s, high_s)) in enumerate(zip(layouts, ends, strict=True))
        ]

    def estimator(self, group: tuple[str, str]) -> Estimator:
        """The fitted form of a (model, device type)."""
        if group not in self._estimators:
            sample = make_sample(self._find_points(group))
            self._estimators[group] = FORMS[self.form](sample, self._find_prior(group))
        return self._estimators[group]

    def _find_points(self, group: tuple[str, str]) -> list[Point]:
        points = self._groups.get(group, [])
        if not points:
            raise ProfileError(_explain_unknown(group, self._groups))
        distinct = {point.layout for point in points}
        if len(distinct) < FEWEST_POINTS and not self._find_others(group):
            raise ProfileError(
                f"model {group[0]!r} on {group[1]!r} has a single point; a fit needs at least {FEWEST_POINTS} "
                f"different layouts; measure another batch or count, or give other models with --prior"
            )
        return points

    def _find_others(self, group: tuple[str, str]) -> dict[tuple[str, str], list[Point]]:
        return {key: points for key, points in self._others.items() if key[0] != group[0] and key[1] == group[1]}

    def _find_prior(self, group: tuple[str, str]) -> Prior:
        """What the other models on the same device type teach; another cluster's mislead (docs/decisions/040)."""
        chosen = self._find_others(group)
        key = frozenset(chosen)
        if not chosen or self.form != DEFAULT_FORM:
            return DEFAULT_PRIOR
        if key not in self._priors:
            self._priors[key] = learn_prior(list(chosen.values()))
        return self._priors[key]


def _explain_unknown(group: tuple[str, str], groups: Mapping[tuple[str, str], Sequence[Point]]) -> str:
    types = sorted(device_type for model, device_type in groups if model == group[0])
    if types:
        return (
            f"model {group[0]!r} has no points on {group[1]!r}, only on {', '.join(types)}; speed does not carry over "
            f"between device types (33-51 % error); measure it there"
        )
    models = sorted({model for model, _ in groups})
    return f"model {group[0]!r} has no points; there are points of {', '.join(models)}"
