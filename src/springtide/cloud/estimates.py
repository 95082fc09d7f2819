"""First use without a GPU: speeds guessed from counted operations and published peaks, for ranking only.

A step of b samples takes flops x b / (peak x u) on one device, with a utilisation u of 20-50 %; the gradients then
cross the network at its baseline rate. Peaks are half precision, each with its source (`data/devices.csv`); a type
without one, and several nodes without a known network, are not guessed at.
"""

from dataclasses import dataclass
from functools import cache
from math import log

import numpy as np

from springtide.cloud.catalog import DATA, Catalog, Machine, normalise
from springtide.cloud.step_times import Speed
from springtide.errors import CatalogError
from springtide.throughput.model.fitting import Z90
from springtide.throughput.model.forms import Estimate, Estimator
from springtide.throughput.tables.csv_rows import read_rows
from springtide.throughput.tables.points import Columns

UTILISATION = (0.2, 0.5)
GIB = 2.0**30
# Weights, gradients and two moments of the optimizer, each as large as the weights.
STATE_COPIES = 4


@dataclass(frozen=True, slots=True)
class Counts:
    """What one sample and the model cost: floating-point operations, bytes of parameters, bytes kept for backward."""

    flops_per_sample: float
    parameter_bytes: float
    activation_bytes_per_sample: float

    @property
    def memory_gib(self) -> float:
        """The least memory that a device needs, at one sample."""
        return (STATE_COPIES * self.parameter_bytes + self.activation_bytes_per_sample) / GIB


@cache
def read_peaks() -> dict[str, float]:
    """Half-precision operations per second of each device type that has a source."""
    rows = read_rows(DATA / "devices.csv", ("device_type", "half_precision_tflops", "source"), CatalogError)
    return {normalise(row["device_type"]): float(row["half_precision_tflops"]) * 1e12 for _, row in rows}


def estimate_speeds(catalog: Catalog, counts: Counts) -> dict[str, Speed]:
    """A guessed speed for every machine whose GPU has a known peak, by instance type."""
    peaks = read_peaks()
    speeds = {}
    for machine in catalog.machines:
        peak = peaks.get(normalise(machine.device_type))
        if peak is not None and machine.devices >= 1:
            known = machine.network_gbps is not None
            estimate = make_estimator(counts, peak, machine.network_gbps)
            speeds[normalise(machine.instance_type)] = Speed(machine.instance_type, estimate, known, "estimate")
    return speeds


def make_estimator(counts: Counts, peak_flops: float, network_gbps: float | None) -> Estimator:
    """Step times by operations and bytes, as unsure as the utilisation."""
    middle = float(np.sqrt(UTILISATION[0] * UTILISATION[1]))
    spread = log(UTILISATION[1] / UTILISATION[0]) / 2 / Z90

    def estimate(at: Columns) -> Estimate:
        compute_s = counts.flops_per_sample * at.batch / (peak_flops * middle)
        bits = 8 * counts.parameter_bytes * 2 * (at.devices - 1) / at.devices
        network_s = bits / ((network_gbps or 1.0) * 1e9)
        step_s = compute_s + np.where(at.nodes > 1, network_s, 0.0)
        return Estimate(np.log(step_s), lambda: np.full(len(at), spread), lambda row: "estimate, not measured")

    return estimate


def choose_probes(catalog: Catalog, memory_gib: float | None, most: int = 2) -> list[Machine]:
    """The cheapest machines, of different GPUs, that are worth a measurement: a known peak, and room for the model."""
    cheapest: dict[str, Machine] = {}
    for machine in catalog.machines:
        price = machine.on_demand_usd_per_h
        small = memory_gib is not None and (machine.device_memory_gib or memory_gib) < memory_gib
        if price is None or machine.devices < 1 or small or normalise(machine.device_type) not in read_peaks():
            continue
        known = cheapest.get(machine.device_type)
        if known is None or price < (known.on_demand_usd_per_h or price):
            cheapest[machine.device_type] = machine
    return sorted(cheapest.values(), key=lambda machine: machine.on_demand_usd_per_h or 0.0)[:most]
