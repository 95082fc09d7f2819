"""What to believe of the physical form's parameters before a model was measured.

The default says little: typical ratios, wide. `learn_prior` replaces it by what other models on the same kind of
cluster teach, with an empirical-Bayes iteration: fit each model under the present belief, then set the belief to the
mean and spread of the fits, widened by what each fit leaves open. The scale of a model is never learned from others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from springtide.throughput.model.fitting import PhysicalFit, fit_physical
from springtide.throughput.model.physical import PARAMETERS
from springtide.throughput.tables.points import Array, Point, make_sample, thin_sample

ROUNDS = 3
MOST_POINTS = 400  # of one model; more teach nothing about ratios
MEAN_WEIGHT = 0.5  # in models: how much the default mean counts
SPREAD_WEIGHT = 2.0  # in models: how much the default spread counts ...
SPREAD_SHRINK = 0.5  # ... at this share of its width


@dataclass(frozen=True)
class Prior:
    """Independent normal beliefs, one per named parameter, and how many models they were learned from."""

    mean: Array
    spread: Array
    models: int = 0
    multi_node: bool = False  # whether those models were seen on several nodes


_DEFAULT = {
    "compute": (0.0, 5.0),
    "fixed": (-1.0, 1.5),
    "contention": (-3.5, 1.0),
    "local": (-2.5, 2.0),
    "local_latency": (-2.5, 1.0),
    "network": (1.0, 1.5),
    "network_latency": (-1.0, 1.0),  # as learned on the T4s alone; docs/decisions/040
    "density": (0.1, 0.2),
    "pair": (0.1, 0.3),
    "sharpness": (-1.0, 1.0),
    "overlap": (1.0, 1.0),
}
# What pooling starts from. How much a model communicates for its compute is its own, so others say little of it; how
# compute and collective overlap is the framework's, so they say much.
_POOLING = _DEFAULT | {
    "local": (-2.5, 4.0),
    "network_latency": (-2.5, 1.0),
    "sharpness": (-1.0, 0.5),
    "overlap": (0.0, 0.5),
}


def _make_prior(beliefs: Mapping[str, tuple[float, float]]) -> Prior:
    means, spreads = zip(*(beliefs[name] for name in PARAMETERS), strict=True)
    return Prior(np.array(means), np.array(spreads))


DEFAULT_PRIOR = _make_prior(_DEFAULT)
POOLING_PRIOR = _make_prior(_POOLING)
_LEARNED = np.array([name != "compute" for name in PARAMETERS])


def learn_prior(groups: Sequence[Sequence[Point]]) -> Prior:
    """The belief that these models teach about another one on the same kind of cluster."""
    samples = [make_sample(thin_sample(points, MOST_POINTS)) for points in groups if len(points) > 1]
    if not samples:
        return DEFAULT_PRIOR
    prior = POOLING_PRIOR
    fits = [fit_physical(sample, prior.mean, prior.spread) for sample in samples]
    prior = _pool(fits)
    for _ in range(ROUNDS - 1):
        fits = [fit_physical(fit_to, prior.mean, prior.spread, fit) for fit_to, fit in zip(samples, fits, strict=True)]
        prior = _pool(fits)
    multi_node = any(bool((sample.at.nodes > 1).any()) for sample in samples)
    return Prior(prior.mean, prior.spread, len(samples), multi_node)


def _pool(fits: Sequence[PhysicalFit]) -> Prior:
    named = len(PARAMETERS)
    values = np.array([fit.parameters[:named] for fit in fits])
    open_ = np.array([np.diag(fit.covariance)[:named] for fit in fits])
    mean = (values.sum(axis=0) + MEAN_WEIGHT * POOLING_PRIOR.mean) / (len(fits) + MEAN_WEIGHT)
    believed = SPREAD_WEIGHT * (SPREAD_SHRINK * POOLING_PRIOR.spread) ** 2
    variance = (((values - mean) ** 2 + open_).sum(axis=0) + believed) / (len(fits) + SPREAD_WEIGHT)
    return Prior(
        np.where(_LEARNED, mean, DEFAULT_PRIOR.mean), np.where(_LEARNED, np.sqrt(variance), DEFAULT_PRIOR.spread)
    )
