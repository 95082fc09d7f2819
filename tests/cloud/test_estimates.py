"""First use without a GPU: ranking by counted operations, wide and without a probability."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cloud.made_up_cloud import make_machine

from springtide.cloud.catalog import Catalog, read_catalog
from springtide.cloud.estimates import GIB, Counts, choose_probes, estimate_speeds, make_estimator, read_peaks
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import Limits, Work
from springtide.throughput.tables.points import Columns

COUNTS = Counts(flops_per_sample=12e9, parameter_bytes=1e8, activation_bytes_per_sample=5e7)


def at(nodes: float, devices: float, batch: float) -> Columns:
    return Columns(*(np.array([value]) for value in (nodes, devices, devices / nodes, batch)))


def test_the_interval_is_the_utilisation() -> None:
    estimate = make_estimator(COUNTS, 1e14, None)(at(1, 1, 100))
    assert estimate.low_s[0] == pytest.approx(12e11 / 1e14 / 0.5)
    assert estimate.high_s[0] == pytest.approx(12e11 / 1e14 / 0.2)


def test_gradients_cross_the_network() -> None:
    estimate = make_estimator(COUNTS, 1e14, 10.0)
    across, inside = estimate(at(2, 8, 100)).step_s[0], estimate(at(1, 8, 100)).step_s[0]
    assert across - inside == pytest.approx(8e8 * 2 * 7 / 8 / 10e9)


def test_estimates_rank_but_promise_nothing() -> None:
    catalog = read_catalog().narrow(clouds=["aws"])
    work = Work("net", 100_000, 1024, level="D1", device_memory_gib=COUNTS.memory_gib)
    found = search_plans(catalog, estimate_speeds(catalog, COUNTS), work, Limits(deadline_s=24 * 3600))
    assert found.best
    assert all(plan.basis == "estimate" and plan.chance is None for plan in found.best)


def test_types_without_a_sourced_peak_are_not_guessed_at() -> None:
    catalog = read_catalog()
    speeds = estimate_speeds(catalog, COUNTS)
    known = {machine.device_type for machine in catalog.machines if machine.instance_type.lower() in ("p4d.24xlarge",)}
    assert known == {"A100"}
    assert "a10g" not in read_peaks()
    assert not any(speed.device_type == "g5.xlarge" for speed in speeds.values())


def test_memory_counts_weights_gradients_and_moments() -> None:
    assert COUNTS.memory_gib == pytest.approx((4e8 + 5e7) / GIB)


def test_probes_are_the_two_cheapest_plausible_gpus() -> None:
    small = replace(make_machine("slow", 1), device_type="T4", device_memory_gib=16.0)
    large = replace(make_machine("middle", 1), device_type="L4", device_memory_gib=24.0)
    odd = replace(make_machine("slow", 1), device_type="Radeon Pro V520", on_demand_usd_per_h=0.1)
    catalog = Catalog((odd, large, small), "made up")
    assert [machine.device_type for machine in choose_probes(catalog, None)] == ["T4", "L4"]
    assert [machine.device_type for machine in choose_probes(catalog, 20.0)] == ["L4"]
