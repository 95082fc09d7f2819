"""The planner: equal to brute force, within the limits, and clear when nothing fits."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cloud.made_up_cloud import GPUS, make_catalog, make_machine, make_speeds
from tests.throughput.made_up_points import make_points

from springtide.cloud.catalog import Catalog
from springtide.cloud.plan_reports import compare_obvious, explain_plan, offer_rent
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import Limits, Wanted, Work
from springtide.cloud.step_times import Speed, measure_speeds

HOUR = 3600.0
WORK = Work("net", steps=50_000, global_batch=256, level="none")


@pytest.fixture(scope="module")
def speeds() -> dict[str, Speed]:
    return make_speeds()


@settings(max_examples=25, deadline=None)
@given(
    hours=st.one_of(st.none(), st.floats(0.5, 40)),
    budget=st.one_of(st.none(), st.floats(2, 200)),
    spot=st.booleans(),
    workers=st.one_of(st.none(), st.sampled_from([4, 16, 30])),
    confidence=st.sampled_from([0.5, 0.9]),
)
def test_pruning_finds_what_brute_force_finds(
    speeds: dict[str, Speed],
    hours: float | None,
    budget: float | None,
    spot: bool,
    workers: int | None,
    confidence: float,
) -> None:
    work = replace(WORK, logical_workers=workers, level="D2" if workers else "none")
    limits = Limits(
        deadline_s=hours and hours * HOUR, budget_usd=budget, spot=spot, most_nodes=12, confidence=confidence
    )
    pruned = search_plans(make_catalog(), speeds, work, limits, Wanted(front=True))
    brute = search_plans(make_catalog(), speeds, work, limits, Wanted(front=True, prune=False))
    assert pruned.best == brute.best
    assert pruned.front == brute.front
    assert pruned.evaluated <= brute.evaluated == brute.considered


@settings(max_examples=25, deadline=None)
@given(hours=st.floats(0.5, 40), rate=st.floats(1, 60), spot=st.booleans())
def test_plans_respect_every_limit(speeds: dict[str, Speed], hours: float, rate: float, spot: bool) -> None:
    limits = Limits(deadline_s=hours * HOUR, most_usd_per_h=rate, spot=spot, most_nodes=8)
    for plan in search_plans(make_catalog(), speeds, WORK, limits).best:
        assert plan.chance is not None
        assert plan.chance >= 0.9 - 1e-9
        assert plan.usd_per_h <= rate
        assert spot or not plan.spot
        assert plan.time_s.low <= plan.time_s.value <= plan.time_s.high
        assert plan.cost_usd.value == pytest.approx(plan.time_s.value / HOUR * plan.usd_per_h)
        assert len({part.machine.region for part in plan.parts}) == 1


def test_a_longer_deadline_is_never_dearer(speeds: dict[str, Speed]) -> None:
    costs = [
        search_plans(make_catalog(), speeds, WORK, Limits(deadline_s=hours * HOUR, most_nodes=8)).best[0].cost_usd.value
        for hours in (2, 4, 8, 16, 32)
    ]
    assert costs == sorted(costs, reverse=True)


def test_a_larger_budget_is_never_slower(speeds: dict[str, Speed]) -> None:
    plans = [
        search_plans(make_catalog(), speeds, WORK, Limits(budget_usd=usd, most_nodes=8)).best for usd in (15, 30, 60)
    ]
    times = [found[0].time_s.value for found in plans if found]
    assert times == sorted(times, reverse=True)


def test_one_device_type_at_level_d1(speeds: dict[str, Speed]) -> None:
    work = replace(WORK, logical_workers=16, level="D1")
    found = search_plans(make_catalog(), speeds, work, Limits(deadline_s=10 * HOUR, most_nodes=8))
    assert found.best
    assert all(len(plan.parts) == 1 for plan in found.best)


def test_logical_workers_limit_the_devices(speeds: dict[str, Speed]) -> None:
    work = replace(WORK, logical_workers=4, level="D1")
    found = search_plans(make_catalog(), speeds, work, Limits(most_nodes=8), Wanted(front=True))
    assert max(plan.devices for plan in found.front) <= 4


def test_nothing_fits_gives_the_nearest_and_what_binds(speeds: dict[str, Speed]) -> None:
    found = search_plans(make_catalog(), speeds, WORK, Limits(deadline_s=600, budget_usd=1000, most_nodes=8))
    assert not found.best
    assert found.binding == ("deadline",)
    assert found.nearest
    assert found.nearest[0].time_s.value == min(plan.time_s.value for plan in found.nearest)


def test_two_limits_that_each_bind_are_both_named(speeds: dict[str, Speed]) -> None:
    found = search_plans(make_catalog(), speeds, WORK, Limits(deadline_s=0.4 * HOUR, budget_usd=6, most_nodes=8))
    assert not found.best
    assert found.binding == ("deadline", "budget")


def test_a_model_that_does_not_fit_the_memory_drops_the_type(speeds: dict[str, Speed]) -> None:
    big = make_machine("fast", 4)
    catalog = Catalog((make_machine("slow", 4), replace(big, device_memory_gib=80.0)), "made up")
    found = search_plans(catalog, speeds, replace(WORK, device_memory_gib=40), Limits())
    assert {part.machine.device_type for plan in found.best for part in plan.parts} == {"fast"}


def test_one_measured_node_plans_no_more_unless_asked() -> None:
    points = make_points("net", "slow", places=((1, 1), (1, 4)))
    speeds = measure_speeds(points, [], "net")
    careful = search_plans(make_catalog(), speeds, WORK, Limits(), Wanted(front=True))
    assert {part.nodes for plan in careful.front for part in plan.parts} == {1}
    bold = search_plans(make_catalog(), speeds, WORK, Limits(guess_network=True), Wanted(front=True))
    guessed = [plan for plan in bold.front if plan.parts[0].nodes > 1]
    assert all("guess" in plan.note for plan in guessed)


def test_an_unknown_price_is_no_offer(speeds: dict[str, Speed]) -> None:
    unknown = replace(make_machine("fast", 4), on_demand_usd_per_h=None, spot_usd_per_h=None)
    found = search_plans(Catalog((unknown,), "made up"), speeds, WORK, Limits(spot=True))
    assert not found.best
    assert not found.nearest


def test_the_obvious_choices_are_explained(speeds: dict[str, Speed]) -> None:
    limits = Limits(deadline_s=6 * HOUR, most_nodes=8)
    found = search_plans(make_catalog(), speeds, WORK, limits)
    comparisons = {entry.choice: entry for entry in compare_obvious(found, WORK, limits)}
    assert "does not keep the deadline" in comparisons["cheapest per hour"].why
    assert comparisons["biggest GPU"].plan.parts[0].machine.device_type == "fast"
    assert comparisons["most GPUs"].plan.devices == 32
    assert explain_plan(found.best[0], found, limits) == "cheapest that respects every limit"


def test_a_declined_job_is_offered_what_renting_costs(speeds: dict[str, Speed]) -> None:
    found = search_plans(make_catalog(), speeds, WORK, Limits(deadline_s=HOUR, most_nodes=8, spot=True, mixes=False))
    offer = offer_rent(found)
    assert offer is not None
    assert re.fullmatch(r"meets the deadline with \d x \w+\.\d spot, \$\d+-\d+", offer)
    assert offer_rent(search_plans(make_catalog(), speeds, WORK, Limits(deadline_s=400, most_nodes=8))) is None


def test_spot_is_cheaper_and_slower(speeds: dict[str, Speed]) -> None:
    catalog = Catalog((make_machine("slow", 4),), "made up")
    limits = Limits(spot=True, most_nodes=1)
    plans = {plan.spot: plan for plan in search_plans(catalog, speeds, WORK, limits).best}
    assert plans[True].cost_usd.value < plans[False].cost_usd.value
    assert plans[True].time_s.value > plans[False].time_s.value
    assert plans[True].checkpoint_every_s is not None


def test_every_gpu_of_the_made_up_cloud_is_measured(speeds: dict[str, Speed]) -> None:
    assert set(speeds) == set(GPUS)
