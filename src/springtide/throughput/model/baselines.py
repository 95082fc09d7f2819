"""The forms ours is measured against: Pollux, Ernest, the nearest neighbour, one node for all, perfect scaling.

Each is a function from a sample to a predictor of log step seconds. They state no uncertainty of their own.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from springtide.throughput.tables.points import Array, Columns, Sample

LogPredictor = Callable[[Columns], Array]


def fit_pollux(sample: Sample) -> LogPredictor:
    """Pollux (OSDI 2021, 3.2): affine compute, synchronisation affine in the devices beyond two, power sum.

    T_sync = 0 for one device, a_r + b_r (K - 2) in one node, a_n + b_n (K - 2) across nodes;
    T = (T_grad^y + T_sync^y)^(1/y) with 1 <= y <= 10, fitted on log error.
    """
    from scipy.optimize import least_squares  # not at start-up: the import takes a while

    scale = float(np.exp(sample.log_step.mean()))
    batch = float(sample.at.batch.mean())

    def predict(parameters: Array, at: Columns) -> Array:
        fixed, growing, *sync = scale * np.exp(parameters[:6])
        power = 1 + 9 / (1 + np.exp(-parameters[6]))
        compute = fixed + growing * at.batch / batch
        beyond = np.maximum(at.devices - 2, 0)
        inside, across = sync[0] + sync[1] * beyond, sync[2] + sync[3] * beyond
        exchange = np.where(at.devices == 1, 1e-12, np.where(at.nodes == 1, inside, across))
        larger = np.maximum(compute, exchange)
        total = (compute / larger) ** power + (exchange / larger) ** power
        logs: Array = np.log(larger) + np.log(total) / power
        return logs

    start = np.array([-2.0, -1.0, -3.0, -4.0, -2.0, -4.0, -1.0])

    def residuals(parameters: Array) -> Array:
        return np.concatenate([predict(parameters, sample.at) - sample.log_step, 1e-3 * (parameters - start)])

    found = np.asarray(least_squares(residuals, start, max_nfev=400).x)
    return lambda at: predict(found, at)


def fit_ernest(sample: Sample) -> LogPredictor:
    """Ernest (NSDI 2016): non-negative weights on 1, work per device, log devices and devices, on relative error."""

    from scipy.optimize import nnls  # not at start-up: the import takes a while

    def features(at: Columns) -> Array:
        return np.column_stack([np.ones(len(at)), at.batch, np.log(at.devices), at.devices])

    step = np.exp(sample.log_step)
    weights, _ = nnls(features(sample.at) / step[:, None], np.ones(len(sample)))
    return lambda at: np.log(np.maximum(features(at) @ weights, 1e-12))


def fit_nearest(sample: Sample) -> LogPredictor:
    """The step of the nearest measured layout, by distance in log nodes, devices and batch."""
    known = _place(sample.at)

    def predict(at: Columns) -> Array:
        distances = np.linalg.norm(_place(at)[:, None, :] - known[None, :, :], axis=2)
        steps: Array = sample.log_step[distances.argmin(axis=1)]
        return steps

    return predict


def fit_one_node(sample: Sample) -> LogPredictor:
    """The fullest single node at the same local batch, whatever the number of nodes."""
    single = sample.at.nodes == sample.at.nodes.min()
    fullest = sample.at.fullest[single].max()

    def predict(at: Columns) -> Array:
        logs = np.empty(len(at))
        for count in np.unique(at.fullest):
            measured = sample.at.fullest[single]
            use = measured[np.abs(np.log(measured / min(count, fullest))).argmin()]
            rows = single & (sample.at.fullest == use)
            wanted = at.fullest == count
            logs[wanted] = _follow_batch(sample, rows, at.batch[wanted])
        return logs

    return predict


def fit_perfect(sample: Sample) -> LogPredictor:
    """Perfect scaling: the smallest number of devices at the same local batch."""
    rows = sample.at.devices == sample.at.devices.min()
    return lambda at: _follow_batch(sample, rows, at.batch)


def _place(at: Columns) -> Array:
    place: Array = np.log2(np.column_stack([at.nodes, at.devices, at.batch]))
    return place


def _follow_batch(sample: Sample, rows: "NDArray[np.bool_]", batch: Array) -> Array:
    """Log step at these batches: interpolated between the rows' batches, an affine line beyond them."""
    known, where = np.unique(sample.at.batch[rows], return_inverse=True)
    logs = np.bincount(where, weights=sample.log_step[rows]) / np.bincount(where)
    steps = np.exp(logs)
    if len(known) == 1:
        return np.full(len(batch), logs[0])
    growing, fixed = np.polyfit(known, steps, 1, w=1 / steps)
    line = np.maximum(fixed + growing * batch, steps.min() * np.minimum(batch / known[0], 1.0))
    inside = (batch >= known[0]) & (batch <= known[-1])
    result: Array = np.log(np.where(inside, np.interp(batch, known, steps), line))
    return result
