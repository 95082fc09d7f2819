"""Moving a running job: only with a cause, only if it pays, and to where it should."""

from dataclasses import replace
from pathlib import Path

import pytest
from experiments.spot_simulation import SpotOutcome, SpotScenario, simulate_job
from experiments.spot_traces import Market as SpotMarket
from experiments.spot_traces import draw_spot_trace, lies_in, read_spot_trace
from tests.cloud.made_up_cloud import make_catalog, make_machine, make_speeds

from springtide.cloud.catalog import Catalog
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import Limits, RentalPlan, Work
from springtide.cloud.reoptimise import RentalProgress, decide_move, needs_replanning
from springtide.cloud.step_times import Speed
from springtide.errors import TraceError

HOUR = 3600.0
WORK = Work("net", 500_000, 256, level="none")
LIMITS = Limits(deadline_s=20 * HOUR, most_nodes=8, mixes=False)


@pytest.fixture(scope="module")
def speeds() -> dict[str, Speed]:
    return make_speeds()


@pytest.fixture(scope="module")
def plan(speeds: dict[str, Speed]) -> RentalPlan:
    return search_plans(make_catalog(), speeds, WORK, LIMITS).best[0]


def decide(
    progress: RentalProgress, speeds: dict[str, Speed], catalog: Catalog | None = None
) -> tuple[RentalPlan | None, str]:
    move = decide_move(progress, catalog or make_catalog(), speeds, WORK, LIMITS, switch_s=300)
    return move.plan, move.why


def test_a_step_within_its_interval_needs_nothing(plan: RentalPlan, speeds: dict[str, Speed]) -> None:
    progress = RentalProgress(plan, 100_000, 10 * HOUR, plan.step_s.value * 1.01)
    assert needs_replanning(progress) is None
    assert decide(progress, speeds) == (None, "as predicted")


def test_a_job_that_is_too_slow_moves_to_keep_its_deadline(plan: RentalPlan, speeds: dict[str, Speed]) -> None:
    due = WORK.steps * plan.step_s.value * 1.1
    moved, why = decide(RentalProgress(plan, WORK.steps, due, plan.step_s.value * 2), speeds)
    assert moved is not None
    assert moved.name != plan.name
    assert "staying would miss the deadline" in why


def test_near_the_end_a_move_does_not_pay(plan: RentalPlan, speeds: dict[str, Speed]) -> None:
    moved, why = decide(RentalProgress(plan, 100, 10 * HOUR, plan.step_s.value * 1.5), speeds)
    assert moved is None
    assert "not pay" in why or "still the best" in why


def test_lost_machines_are_replaced(plan: RentalPlan, speeds: dict[str, Speed]) -> None:
    moved, why = decide(RentalProgress(plan, WORK.steps, 20 * HOUR, machines_lost=True), speeds)
    assert moved is not None
    assert why == "machines were lost"


def test_nothing_to_rent_is_said(plan: RentalPlan, speeds: dict[str, Speed]) -> None:
    none = Catalog((replace(make_machine("slow", 4), on_demand_usd_per_h=None),), "empty")
    moved, why = decide(RentalProgress(plan, WORK.steps, 20 * HOUR, machines_lost=True), speeds, none)
    assert moved is None
    assert "nothing can be rented" in why


def run(speeds: dict[str, Speed], seed: int, spot: bool, spread: float = 0.1) -> SpotOutcome:
    catalog = make_catalog()
    trace = draw_spot_trace(catalog.machines, 4, 60 * 86400, seed)
    limits = replace(LIMITS, spot=spot, deadline_s=30 * HOUR)
    return simulate_job(WORK, limits, SpotScenario(catalog, speeds, trace, spread, seed=seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_spot_job_survives_revocations_and_is_cheaper(speeds: dict[str, Speed], seed: int) -> None:
    spot, on_demand = run(speeds, seed, spot=True), run(speeds, seed, spot=False)
    assert spot.met
    assert on_demand.met
    assert spot.revocations > 0 == on_demand.revocations
    assert spot.cost_usd < on_demand.cost_usd
    assert spot.synthetic
    assert "synthetic" in spot.trace


def test_the_same_seed_gives_the_same_run(speeds: dict[str, Speed]) -> None:
    assert run(speeds, 5, spot=True) == run(speeds, 5, spot=True)


def test_an_exact_estimate_without_revocations_ends_as_planned(speeds: dict[str, Speed], plan: RentalPlan) -> None:
    outcome = run(speeds, 0, spot=False, spread=0.0)
    assert outcome.moves == 0
    planned = search_plans(make_catalog(), speeds, WORK, replace(LIMITS, deadline_s=30 * HOUR)).best[0]
    assert outcome.finish_s == pytest.approx(planned.time_s.value, rel=1e-3)
    assert outcome.cost_usd == pytest.approx(planned.cost_usd.value, rel=1e-3)


def test_a_trace_file_drives_prices_and_losses(speeds: dict[str, Speed], tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(
        "time_s,type,zone,available,price\n0,slow.4,east,1,0.2\n7200,slow.4,east,0,0.2\n9000,slow.4,east,1,0.3\n",
        encoding="utf-8",
    )
    trace = read_spot_trace(path)
    assert not trace.synthetic
    outcome = simulate_job(
        WORK, replace(LIMITS, spot=True, deadline_s=60 * HOUR), SpotScenario(make_catalog(), speeds, trace)
    )
    assert outcome.revocations == 1
    assert "slow.4 spot" in outcome.events[0].plan


def test_a_market_bills_the_price_of_each_moment() -> None:
    market = SpotMarket((0.0, HOUR, 3 * HOUR), (True, True, True), (1.0, 2.0, 4.0))
    assert market.bill_usd(0.0, 4 * HOUR) == pytest.approx(1 + 2 * 2 + 4)
    assert market.bill_usd(1.5 * HOUR, 2 * HOUR) == pytest.approx(1.0)
    assert market.bill_usd(HOUR, HOUR) == 0


def test_zones_belong_to_the_region_that_begins_their_name() -> None:
    machine = replace(make_machine("slow", 4), region="us-east-1")
    assert lies_in("us-east-1", machine)
    assert lies_in("us-east-1a", machine)
    assert not lies_in("us-east-10", machine)
    assert not lies_in("us-west-1a", machine)


def test_with_nothing_to_rent_a_job_waits_and_then_goes_on(speeds: dict[str, Speed], tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    rows = "0,slow.4,east,1,0.2\n7200,slow.4,east,0,0.2\n90000,slow.4,east,1,0.2\n"
    path.write_text("time_s,type,zone,available,price\n" + rows, encoding="utf-8")
    only = Catalog((replace(make_machine("slow", 4), on_demand_usd_per_h=None),), "spot alone")
    limits = replace(LIMITS, spot=True, deadline_s=None)
    outcome = simulate_job(WORK, limits, SpotScenario(only, speeds, read_spot_trace(path)))
    waits = [event.at_s for event in outcome.events if event.what == "wait"]
    assert waits[0] == pytest.approx(7500)
    assert waits[-1] >= 90000 - 300
    assert outcome.finish_s > 90000


def test_machines_lost_while_the_job_starts_are_noticed(speeds: dict[str, Speed], tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    rows = "0,slow.4,east,1,0.2\n100,slow.4,east,0,0.2\n"
    path.write_text("time_s,type,zone,available,price\n" + rows, encoding="utf-8")
    setting = SpotScenario(make_catalog(), speeds, read_spot_trace(path))
    outcome = simulate_job(WORK, replace(LIMITS, spot=True, deadline_s=60 * HOUR), setting)
    assert outcome.revocations == 1
    assert outcome.events[1].at_s == pytest.approx(LIMITS.startup_s)


def test_after_its_deadline_a_job_goes_on_where_it_is_cheapest(plan: RentalPlan, speeds: dict[str, Speed]) -> None:
    late = decide(RentalProgress(plan, 100_000, -5.0, machines_lost=True), speeds)[0]
    free = decide(RentalProgress(plan, 100_000, None, machines_lost=True), speeds)[0]
    assert late == free is not None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0,a,z,maybe,1", "available 'maybe' must be 1 or 0"),
        ("0,a,z,1,0", "price '0' must be positive"),
        ("x,a,z,1,1", "numbers"),
    ],
)
def test_a_bad_trace_row_is_named(tmp_path: Path, row: str, words: str) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(f"time_s,type,zone,available,price\n{row}\n", encoding="utf-8")
    with pytest.raises(TraceError, match=words):
        read_spot_trace(path)
