"""Spot policies: no deadline is missed that on demand would meet, and ours uses what rigid ones cannot."""

import pytest
from experiments.spot_counts import SpotZone, draw_spot_counts
from experiments.spot_replay import replay_spot, scale_speeds
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.cloud.spot_policies import POLICIES, RIGID, Fleet, SpotJob, SpotStanding, elastic, uniform_progress

HOUR_S = 3600.0


def make_job(hours: float = 10.0, deadline_h: float = 15.0, machines: int = 16, scaling: float = 1.0) -> SpotJob:
    return SpotJob(hours * HOUR_S, deadline_h * HOUR_S, scale_speeds(machines, scaling), 3.0)


def make_zone(*rows: tuple[float, int]) -> SpotZone:
    """A zone from (hour, count) at a dollar per machine-hour."""
    return SpotZone("z", tuple(h * HOUR_S for h, _ in rows), tuple(n for _, n in rows), tuple(1.0 for _ in rows))


@st.composite
def zones(draw: st.DrawFn) -> SpotZone:
    """Counts that jump at odd moments, prices below and above on demand."""
    gaps = draw(st.lists(st.floats(1.0, 20_000.0), min_size=1, max_size=25))
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    counts = draw(st.lists(st.integers(0, 10), min_size=len(times), max_size=len(times)))
    prices = draw(st.lists(st.sampled_from([0.5, 1.0, 2.9, 3.5]), min_size=len(times), max_size=len(times)))
    return SpotZone("z", tuple(times), tuple(counts), tuple(prices))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=150, deadline=None)
@given(
    zone=zones(),
    hours=st.floats(0.05, 10.0),
    stretch=st.floats(1.0, 3.0),
    pauses=st.tuples(st.floats(0, 600), st.floats(0, 300), st.floats(0, 300)),
    scaling=st.sampled_from([0.6, 0.9, 1.0]),
)
def test_no_deadline_is_missed_that_on_demand_would_meet(
    policy: str, zone: SpotZone, hours: float, stretch: float, pauses: tuple[float, float, float], scaling: float
) -> None:
    draft = SpotJob(hours * HOUR_S, 1.0, scale_speeds(8, scaling), 3.0, *pauses)
    job = SpotJob(draft.work, stretch * draft.alone_s, draft.speeds, 3.0, *pauses)
    assert replay_spot(job, zone, policy).met


def test_five_of_sixteen_are_used_now_and_sixteen_later() -> None:
    zone = make_zone((0, 5), (7, 16))
    outcomes = {policy: replay_spot(make_job(), zone, policy) for policy in POLICIES}
    assert all(outcome.met for outcome in outcomes.values())
    assert outcomes["elastic"].on_demand_h < 0.1 * outcomes["elastic"].spot_h
    assert outcomes["elastic"].cost_usd < min(outcomes[policy].cost_usd for policy in RIGID)


def test_without_spot_every_policy_pays_on_demand_and_no_more_than_its_changes() -> None:
    zone = make_zone((0, 0))
    plain = replay_spot(make_job(), zone, "on-demand")
    for policy in ("greedy", "elastic"):
        assert replay_spot(make_job(), zone, policy).cost_usd == pytest.approx(plain.cost_usd)


def test_spot_that_costs_more_than_on_demand_is_left_alone() -> None:
    zone = SpotZone("z", (0.0,), (16,), (3.5,))
    assert replay_spot(make_job(), zone, "elastic").spot_h == 0.0


def test_near_the_end_of_the_slack_machines_on_demand_fill_up_beside_spot() -> None:
    job = make_job(10.0, 10.3)
    late = SpotStanding(0.0, job.work, Fleet(5), 5, 1.0)
    assert elastic(job, late).fleet == Fleet(5, 11)


def test_with_no_loss_covered_spot_is_left() -> None:
    job = make_job(10.0, 10.0 + 250.0 / HOUR_S)
    assert elastic(job, SpotStanding(0.0, job.work, Fleet(5, 11), 5, 1.0)).fleet == Fleet(0, 16)


def test_machines_that_hardly_add_speed_are_not_rented_while_spot_is_plenty() -> None:
    job = make_job(scaling=0.3)
    order = elastic(job, SpotStanding(0.0, job.work, Fleet(), 16, 1.0, offered=0.99))
    assert 0 < order.fleet.spot < 16


def test_uniform_progress_waits_ahead_and_rents_behind() -> None:
    job = make_job()
    ahead = SpotStanding(HOUR_S, job.work - 2 * HOUR_S, Fleet(), 0, 1.0)
    behind = SpotStanding(HOUR_S, job.work, Fleet(), 0, 1.0)
    assert uniform_progress(job, ahead).fleet == Fleet()
    assert uniform_progress(job, behind).fleet == Fleet(0, 16)


def test_ours_costs_no_more_than_the_best_rigid_policy_over_drawn_markets() -> None:
    job = make_job(24.0, 36.0)
    costs = {policy: 0.0 for policy in POLICIES}
    for seed in range(8):
        zone = draw_spot_counts("z", 16, 4 * 86400.0, 1.0, seed)
        for policy in POLICIES:
            outcome = replay_spot(job, zone, policy)
            assert outcome.met
            costs[policy] += outcome.cost_usd
    assert costs["elastic"] < min(costs[policy] for policy in RIGID)
