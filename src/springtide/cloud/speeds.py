"""Step times of rented machines: the bridge from a fitted form to columns of candidates.

A machine's speed is known when points exist for its instance type or, failing that, for its GPU. Points of one GPU are
used for every machine that holds it; the network is then taken as measured, and the plan says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from springtide.cloud.catalog import Machine, normalise
from springtide.cloud.plans import Range
from springtide.throughput.forms import Estimate, Estimator
from springtide.throughput.intervals import Z90
from springtide.throughput.points import Point, group_points
from springtide.throughput.predictions import Predictor
from springtide.throughput.samples import Array, Columns

FINEST_BATCHES = 4096


@dataclass(frozen=True, eq=False)
class Speed:
    """How one model runs on one device type: its fitted form, and whether several nodes were ever measured."""

    device_type: str
    estimate: Estimator
    knows_network: bool
    basis: str = "measured"

    def one_device_s(self, batch: Array) -> Array:
        """Step seconds of a single device at each batch: no layout is faster at the same batch."""
        ones = np.ones(len(batch))
        return self.estimate(Columns(ones, ones, ones, batch)).step_s

    def across(self, nodes: Array, per_node: Array, batch: Array) -> Estimate:
        """The estimate on full nodes of so many devices."""
        return self.estimate(Columns(nodes, nodes * per_node, per_node, batch))

    def slowed(self, shift: float) -> "Speed":
        """This speed with every log step longer by `shift`, as sure as before."""

        def estimate(at: Columns) -> Estimate:
            found = self.estimate(at)
            return Estimate(found.log_step + shift, lambda: found.spread, found.explain)

        return replace(self, estimate=estimate)

    @cache  # noqa: B019 - a speed lives as long as its plan
    def affine_line(self, global_batch: int) -> tuple[float, float]:
        """One device's step as fixed + slope x batch, by least squares of relative error over the possible batches."""
        batches = np.geomspace(1, max(global_batch, 2), 32)
        steps = self.one_device_s(batches)
        slope, fixed = np.polyfit(batches, steps, 1, w=1 / steps)
        return max(float(fixed), 0.0), max(float(slope), 0.01 * float(steps.max()) / global_batch)

    @cache  # noqa: B019
    def floor_lines(self, global_batch: int) -> tuple[tuple[float, float], ...]:
        """Lines (fixed, slope) that one device's step never falls below at any whole batch: the lower hull's edges."""
        finest = np.arange(1, min(global_batch, FINEST_BATCHES) + 1, dtype=np.float64)
        beyond = np.geomspace(FINEST_BATCHES, max(global_batch, FINEST_BATCHES + 1), FINEST_BATCHES)
        batches = np.concatenate([finest, beyond]) if global_batch > FINEST_BATCHES else finest
        steps = self.one_device_s(batches)
        # Beyond the whole batches the grid is finer than 0.1 %, and so is what the curve can do between its points.
        return _find_floor(batches, steps * (0.999 if global_batch > FINEST_BATCHES else 1.0))


def _find_floor(batches: Array, steps: Array) -> tuple[tuple[float, float], ...]:
    """Supporting lines below a curve: through the origin, and tangent at a few batches, lowered until they support."""
    lines = [(0.0, float((steps / batches).min()))]
    for place in np.unique(np.geomspace(1, len(batches), 5).astype(int) - 1):
        ahead = min(place + max(1, place // 2), len(batches) - 1)
        if ahead > place:
            slope = max(0.0, float((steps[ahead] - steps[place]) / (batches[ahead] - batches[place])))
            lines.append((float((steps - slope * batches).min()), slope))
    return tuple((fixed, slope) for fixed, slope in lines if slope > 0)


Speeds = Mapping[str, Speed]


def measure_speeds(points: list[Point], others: list[Point], model: str) -> dict[str, Speed]:
    """The speeds that points of a model give, by normalised device (or instance) type."""
    predictor = Predictor(points, others)
    speeds = {}
    for group, members in group_points(points).items():
        if group[0] != model:
            continue
        multi_node = any(point.layout.nodes > 1 for point in members)
        taught = any(point.layout.nodes > 1 for point in others if point.layout.model != model)
        speeds[normalise(group[1])] = Speed(group[1], predictor.estimator(group), multi_node or taught)
    return speeds


def find_speed(speeds: Speeds, machine: Machine) -> Speed | None:
    """The speed of a machine, by its instance type first, then by its GPU; None if neither was measured."""
    return next((speeds[key] for key in machine.keys if key in speeds), None)


def spread_range(log_value: float, spread: float) -> Range:
    """A log-normal value with the ends of its 90 % interval."""
    ends = np.exp([log_value, log_value - Z90 * spread, log_value + Z90 * spread])
    return Range(float(ends[0]), float(ends[1]), float(ends[2]))


def quantile(log_value: Array, spread: Array, confidence: float) -> Array:
    """What a log-normal value stays under with this confidence."""
    bound: Array = np.exp(log_value + float(ndtri(confidence)) * spread)
    return bound


def chance_below(log_value: float, spread: float, bound: float) -> float:
    """The probability that a log-normal value is at most `bound`."""
    return float(ndtr((np.log(bound) - log_value) / max(spread, 1e-9))) if bound > 0 else 0.0
