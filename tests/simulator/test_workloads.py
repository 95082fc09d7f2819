"""Synthetic workloads: seeded, within the stated distributions, and stable under options that do not concern them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.devices import parse_cluster
from springtide.errors import TraceError
from springtide.simulator.scenarios import Scenario
from springtide.simulator.traces import Trace
from springtide.simulator.workloads import SHARES, Workload, draw_trace, parse_workload
from springtide.throughput.tables.profiles import Profiles, read_profiles

A100 = read_profiles(None, ("a100",))


def draw(text: str) -> Trace:
    return draw_trace(parse_workload(text), Scenario(parse_cluster("16x8:a100"), A100))


def test_the_same_seed_gives_the_same_jobs() -> None:
    assert draw("jobs=50,seed=3") == draw("jobs=50,seed=3")
    assert draw("jobs=50,seed=3").jobs != draw("jobs=50,seed=4").jobs


def test_jobs_follow_the_published_generator() -> None:
    jobs = draw("jobs=4000,gap=100,seed=1").jobs
    assert jobs[-1].submit_s / 4000 == pytest.approx(100, rel=0.1)
    assert {job.requested for job in jobs} == set(SHARES)
    assert sum(job.requested == 1 for job in jobs) / 4000 == pytest.approx(0.83, abs=0.03)
    durations = sorted(job.work / job.curve.rate(job.requested) for job in jobs)
    assert durations[0] >= 0.99 * 600 and durations[-1] <= 600_000
    factors = [(job.deadline_s - job.submit_s) * job.curve.rate(job.requested) / job.work for job in jobs]
    assert min(factors) >= 0.49 and max(factors) <= 1.52
    assert sum(factor < 1 for factor in factors) / 4000 == pytest.approx(0.5, abs=0.03)


def test_the_share_of_best_effort_jobs_changes_nothing_else() -> None:
    some, none = draw("jobs=200,best_effort=0.3").jobs, draw("jobs=200").jobs
    assert 30 <= sum(job.best_effort for job in some) <= 90
    assert [(job.submit_s, job.work) for job in some] == [(job.submit_s, job.work) for job in none]


@given(st.integers(1, 30), st.floats(0, 1e5), st.integers(0, 2**32), st.floats(0.1, 3.0), st.floats(0, 1))
def test_jobs_come_in_order_with_deadlines_after_submission(
    jobs: int, gap: float, seed: int, factor: float, best_effort: float
) -> None:
    workload = Workload(jobs, gap, seed, factor, factor + 1, best_effort)
    trace = draw_trace(workload, Scenario(parse_cluster("1x8:a100"), A100))
    submits = [job.submit_s for job in trace.jobs]
    assert submits == sorted(submits)
    assert all(job.deadline_s > job.submit_s and job.work >= 1 for job in trace.jobs)


def test_the_name_says_what_was_drawn() -> None:
    assert draw("seed=7,jobs=5,max_factor=2").name == "synthetic:jobs=5,gap=1500,seed=7,max_factor=2"
    assert parse_workload("") == Workload()


@pytest.mark.parametrize(
    "text",
    ["jobs=0", "jobs=x", "jobs=1.5", "gap=-1", "gap=nan", "gap=inf", "seed=-1", "min_factor=2", "max_factor=0.1",
     "best_effort=2", "speed=3", "jobs", "duration_scale=0"],
)  # fmt: skip
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(TraceError, match="synthetic workload"):
        parse_workload(text)


def test_profiles_without_a_common_model_are_named() -> None:
    with pytest.raises(TraceError, match="these profiles have none in common"):
        draw_trace(Workload(jobs=1), Scenario(parse_cluster("1x8:a100,1x4:t4"), Profiles("these profiles", {})))
