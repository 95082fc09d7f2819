"""Borrowed devices: demand from a seed, what is lent, and that it comes back in time."""

from functools import partial

import pytest
from experiments.colocation import Serving, borrow, draw_demand, lend_idle, parse_serving
from tests.policies.replays import Replay

from springtide.core.curves import Curve
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.errors import InputError, PolicyError
from springtide.policies import decide
from springtide.policies.fifo import fifo
from springtide.simulator.engine import Lending, Simulation
from springtide.simulator.traces import Trace

CLUSTER = parse_cluster("8x4:a100")
CURVE = Curve((1, 2, 4, 8), (1.0, 1.9, 3.5, 6.0))


def draw_jobs(count: int, overhead: Overhead, work: float = 2000.0) -> Trace:
    return Trace("drawn", tuple(Job(JobId(f"j{n}"), n, 60.0 * n, work, CURVE, 1e6, 1, overhead) for n in range(count)))


def test_demand_is_a_wave_with_noise_and_spikes_from_one_seed() -> None:
    serving = Serving(days=2.0, seed=3)
    demand = draw_demand(serving, 1000)
    assert demand == draw_demand(serving, 1000) != draw_demand(Serving(days=2.0, seed=4), 1000)
    assert [now_s for now_s, _ in demand] == sorted({now_s for now_s, _ in demand})
    quiet = [needed for now_s, needed in demand if needed != 900]
    assert 0.0 <= min(quiet) <= 150 and 550 <= max(quiet) <= 650
    assert sum(now_s % serving.every_s != 0 and needed == 900 for now_s, needed in demand) >= 4


def test_serving_keeps_to_the_first_devices() -> None:
    (lending,) = lend_idle(parse_cluster("3x4:a100"), [(0.0, 6)])
    assert lending.lent == (0, 0b1100, 0b1111)


def test_a_saturated_cluster_lends_nearly_everything_and_gets_it_back_in_time() -> None:
    outcome = borrow(draw_jobs(150, Overhead(5.0), 20_000.0), "easyscale-heter", CLUSTER, Serving(days=1.0, seed=1))
    assert outcome.lent_share >= 0.9
    assert outcome.reclaims > 0 and outcome.latest_reclaim_s <= outcome.grace_s and outcome.late_reclaims == 0
    assert outcome.promises_on_borrowed == 0
    assert outcome.utilization_without < outcome.utilization_with <= 1.0
    assert outcome.lent_gpu_hours <= outcome.idle_gpu_hours


def test_who_does_not_leave_in_time_is_put_off() -> None:
    job = Job(JobId("a"), 0, 0.0, 1000.0, CURVE, requested=2)
    replay = Replay()
    lendings = [Lending(0.0, (3, 0)), Lending(10.0, (0, 3))]
    Simulation(parse_cluster("2x2:a100"), partial(decide, fifo), replay, lendings, 60.0).run([job])
    # fifo does not look at what is claimed: it loses its devices at the end of the grace and starts again
    assert replay.changes["a"] == [(0.0, 2), (70.0, 0), (70.0, 2)]
    with pytest.raises(
        PolicyError, match="'fifo' does not give back what is claimed; these do: easyscale-homo, easyscale-heter"
    ):
        borrow(draw_jobs(4, Overhead(5.0)), "fifo", CLUSTER, Serving(days=1.0))


def test_demand_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="days must be positive"):
        Serving(days=0.0)
    with pytest.raises(InputError, match="mean, noise and peak must be 0 to 1"):
        Serving(peak=1.5)
    for text, message in (("tide=1", "unknown key 'tide'"), ("days=x", "not a number"), ("days=inf", "must be finite")):
        with pytest.raises(InputError, match=message):
            parse_serving(text)
    assert parse_serving("days=2, seed=5,faster=3") == Serving(days=2.0, seed=5, faster=3.0)
