"""Step times of rented machines: the bridge from a fitted form to columns of candidates.

A machine's speed is known when points exist for its instance type or, failing that, for its GPU. Points of one GPU are
used for every machine that holds it; the network is then taken as measured, and the plan says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from springtide.cloud.catalog import Catalog, Machine, normalise
from springtide.cloud.plans import Range
from springtide.errors import JobError
from springtide.throughput.model.fitting import Z90
from springtide.throughput.model.forms import Estimate, Estimator
from springtide.throughput.predictions import Predictor
from springtide.throughput.tables.points import Array, Columns, Point, group_points


@dataclass(frozen=True, eq=False)
class Speed:
    """How one model runs on one device type: its fitted form, and whether several nodes were ever measured."""

    device_type: str
    estimate: Estimator
    knows_network: bool
    basis: str = "measured"

    def one_device_s(self, batch: Array) -> Array:
        """Step seconds of a single device at each batch."""
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


def find_speeds(
    points: list[Point], others: list[Point], model: str, origin: str, catalog: Catalog
) -> dict[str, Speed]:
    """The speeds of a model on machines of this catalog; it must be among the points and measured on one of them."""
    speeds = measure_speeds(points, others, model)
    if not speeds:
        known = ", ".join(sorted({point.layout.model for point in points}))
        raise JobError(f"model {model!r} is not in {origin}; there are {known}; choose with --model NAME")
    if not any(find_speed(speeds, machine) for machine in catalog.machines):
        measured = ", ".join(speed.device_type for speed in speeds.values())
        rented = ", ".join(sorted({machine.device_type for machine in catalog.machines}))
        raise JobError(f"{model!r} was measured on {measured}; the catalog rents {rented}; measure it on one of those")
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
