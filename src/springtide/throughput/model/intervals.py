"""How sure a prediction of the physical form is, as a standard deviation of the log step time.

Three parts add in squares: the noise of a measurement, what the points leave open about the parameters (Laplace), and
how far the layout reaches beyond the measured ones, since no form is exact there. The constants were calibrated on the
frozen splits, each model left out in turn (docs/decisions/041), and are the same for every model and cluster.
"""

import numpy as np

from springtide.throughput.model.fitting import PhysicalFit
from springtide.throughput.tables.samples import Array, Columns, Sample

USUAL_NOISE = 0.04  # repeats of one configuration differ by 3-5 %
USUAL_NOISE_ROWS = 6.0  # how many residuals that belief is worth
MISFIT = 0.06  # what no form of this kind explains in a layout it has not seen
REACH_PER_DOUBLING = 0.05  # of devices beyond the most measured
Z90 = 1.645  # of a normal: 5 % above


def scatter(residuals: Array) -> float:
    """Standard deviation that covers 90 % of the residuals, blended with the usual noise when they are few."""
    own = float(np.quantile(np.abs(residuals), 0.9)) / Z90
    rows = len(residuals)
    pooled = (rows * own**2 + USUAL_NOISE_ROWS * USUAL_NOISE**2) / (rows + USUAL_NOISE_ROWS)
    return float(np.sqrt(pooled))


def find_spread(fit: PhysicalFit, noise: float, sample: Sample, at: Columns) -> Array:
    """The standard deviation of each log prediction; `noise` is the scatter of the fit."""
    reach = np.maximum(np.log2(at.devices / sample.at.devices.max()), 0.0)
    variance = noise**2 + MISFIT**2 + fit.open_variance(at) + (REACH_PER_DOUBLING * reach) ** 2
    spread: Array = np.sqrt(variance)
    return spread
