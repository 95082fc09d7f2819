"""Fitting the physical form: robust least squares on the logarithm of the step time, with normal beliefs.

The loss is soft-L1 on residuals of `SCALE`, so a few wild rows bend the fit little. The minimum is sought from several
seeded starts; its curvature gives the covariance of the parameters (Laplace), from which predictions get a variance.

How sure a prediction is, as a standard deviation of the log step time, has three parts that add in squares: the noise
of a measurement, what the points leave open about the parameters, and how far the layout reaches beyond the measured
ones, since no form is exact there. Their constants were calibrated on the frozen splits, each model left out in turn
(docs/decisions/040), and are the same for every model and cluster.
"""

from dataclasses import dataclass

import numpy as np

from springtide.throughput.model.least_squares import find_minimum
from springtide.throughput.model.physical import (
    PARAMETERS,
    Reference,
    make_reference,
    predict_log_step,
    smoothness_residuals,
)
from springtide.throughput.tables.points import Array, Columns, Sample

SCALE = 0.04  # log seconds: the noise of repeated measurements of one configuration (3-5 %)
STARTS = 3
MOST_EVALUATIONS = 80
FURTHEST_START = 0.7
NUDGE = 1e-5

USUAL_NOISE = 0.04  # repeats of one configuration differ by 3-5 %
USUAL_NOISE_ROWS = 6.0  # how many residuals that belief is worth
MISFIT = 0.06  # what no form of this kind explains in a layout it has not seen
REACH_PER_DOUBLING = 0.05  # of devices beyond the most measured
REACH_PER_DOUBLING_OF_NODES = 0.08  # beyond the most measured: a step waits for the slowest of them
Z90 = 1.645  # of a normal: 5 % above
MOST_LEVERAGE = 0.8  # beyond it a left-out residual is a guess


@dataclass(frozen=True)
class PhysicalFit:
    """Parameters that explain a sample, how surely, and the scatter they leave."""

    parameters: Array
    covariance: Array
    reference: Reference
    residuals: Array  # log measured - log predicted
    cost: float
    leverage: Array  # how far each point drew the fit to itself, from 0 to 1

    @property
    def left_out(self) -> Array:
        """The residuals as they would be if each point had been left out: few points bend the fit to themselves."""
        return self.residuals / (1.0 - np.minimum(self.leverage, MOST_LEVERAGE))

    def predict(self, at: Columns) -> Array:
        """Log step seconds of each layout."""
        return predict_log_step(self.parameters, self.reference, at)

    def open_variance(self, at: Columns) -> Array:
        """Variance of each log prediction that comes from not knowing the parameters."""
        slope = _slope(self.parameters, self.reference, at)
        variance: Array = np.einsum("ij,jk,ik->i", slope, self.covariance, slope)
        return variance


def fit_physical(sample: Sample, mean: Array, spread: Array, near: PhysicalFit | None = None) -> PhysicalFit:
    """The parameters that best explain a sample under normal beliefs (mean, spread) on the named ones.

    `near` is an earlier fit of the same sample under other beliefs: then its minimum is the only start.
    """
    reference = make_reference(sample)
    problem = _Problem(sample, reference, mean, spread)
    starts = problem.starts() if near is None else [near.parameters]
    results = [problem.solve(start) for start in starts]
    best, cost = min(results, key=lambda result: result[1])
    jacobian = problem.jacobian(best)
    covariance = np.linalg.inv(jacobian.T @ jacobian).astype(np.float64)
    residuals = sample.log_step - predict_log_step(best, reference, sample.at)
    points = jacobian[: len(residuals)]
    leverage = np.einsum("ij,jk,ik->i", points, covariance, points)
    return PhysicalFit(best, covariance, reference, residuals, cost, leverage)


@dataclass(frozen=True)
class _Problem:
    sample: Sample
    reference: Reference
    mean: Array
    spread: Array

    def starts(self) -> list[Array]:
        """The prior mean, then seeded draws around it."""
        draws = np.random.default_rng(0).normal(size=(STARTS - 1, len(PARAMETERS)))
        near = FURTHEST_START * np.minimum(self.spread, 1.0)
        corrections = np.zeros(len(self.reference.knots))
        named = [self.mean, *(self.mean + draw * near for draw in draws)]
        return [np.concatenate([start, corrections]) for start in named]

    def solve(self, start: Array) -> tuple[Array, float]:
        scale = np.concatenate([np.minimum(self.spread, 1.0), np.full(len(self.reference.knots), 0.1)])
        return find_minimum(self.residuals, self.jacobian, start, scale, MOST_EVALUATIONS)

    def residuals(self, parameters: Array) -> Array:
        values: Array = self._all_residuals(parameters[None, :])[0]
        return values

    def jacobian(self, parameters: Array) -> Array:
        """Forward differences of every residual in one vectorised evaluation."""
        stack = np.vstack([parameters, parameters + NUDGE * np.eye(len(parameters))])
        values = self._all_residuals(stack)
        return np.ascontiguousarray(((values[1:] - values[0]) / NUDGE).T)

    def _all_residuals(self, stack: Array) -> Array:
        named = len(PARAMETERS)
        off = (predict_log_step(stack, self.reference, self.sample.at) - self.sample.log_step) / SCALE
        robust = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1)) * np.sqrt(self.sample.weight)
        beliefs = (stack[:, :named] - self.mean) / self.spread
        smooth = smoothness_residuals(stack[:, named:], self.reference)
        return np.concatenate([robust, beliefs, smooth], axis=1)


def _slope(parameters: Array, reference: Reference, at: Columns) -> Array:
    stack = np.vstack([parameters, parameters + NUDGE * np.eye(len(parameters))])
    logs = predict_log_step(stack, reference, at)
    return np.ascontiguousarray(((logs[1:] - logs[0]) / NUDGE).T)


def scatter(residuals: Array, usual: float = USUAL_NOISE) -> float:
    """Standard deviation that covers 90 % of the residuals, blended with the usual one when they are few."""
    rows, own = len(residuals), float(np.quantile(np.abs(residuals), 0.9)) / Z90
    return float(np.sqrt((rows * own**2 + USUAL_NOISE_ROWS * usual**2) / (rows + USUAL_NOISE_ROWS)))


@dataclass(frozen=True)
class Scatter:
    """How far measurements scatter around a fit: those on one node, and those across nodes."""

    one_node: float
    across: float

    def at(self, layouts: Columns) -> Array:
        """The scatter of a measurement of each layout."""
        return np.where(layouts.nodes > 1, self.across, self.one_node)


def find_scatter(fit: PhysicalFit, sample: Sample) -> Scatter:
    """The scatter of the left-out residuals: that of all where those of a kind are few, or all are of one.

    An erratic network makes no node erratic; but a step across nodes has all the noise of one node, and the network's.
    """
    across, overall = sample.at.nodes > 1, scatter(fit.left_out)
    if across.all() or not across.any():
        return Scatter(overall, overall)
    one_node, more = (scatter(fit.left_out[kind], usual=overall) for kind in (~across, across))
    return Scatter(one_node, max(overall, more))


def find_spread(fit: PhysicalFit, scattered: Scatter, sample: Sample, at: Columns) -> Array:
    """The standard deviation of each log prediction."""
    devices_reach = np.maximum(np.log2(at.devices / sample.at.devices.max()), 0.0)
    nodes_reach = np.maximum(np.log2(at.nodes / sample.at.nodes.max()), 0.0)
    reach = (REACH_PER_DOUBLING * devices_reach) ** 2 + (REACH_PER_DOUBLING_OF_NODES * nodes_reach) ** 2
    noise = scattered.at(at)
    # the covariance is that of points with the usual noise; parameters found from wilder ones are less sure
    wild = np.maximum(1.0, (noise / SCALE) ** 2)
    spread: Array = np.sqrt(noise**2 + MISFIT**2 + wild * fit.open_variance(at) + reach)
    return spread
