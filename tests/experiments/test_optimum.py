"""The offline bound: small cases by hand, a brute-force check, and policies that never exceed it."""

from itertools import combinations

import pytest
from experiments.fixed_schedules import follow, merge
from experiments.optimum import hull, upper_bound
from experiments.optimum_packing import ENOUGH, pack
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.simulator.front import simulate
from springtide.simulator.traces import Trace

LINEAR = Curve((1, 2, 4), (1.0, 2.0, 4.0))
FLAT = Curve((1, 2, 4), (1.0, 1.2, 1.3))


def build_job(index: int, submit_s: float, work: float, deadline_s: float, curve: Curve = LINEAR) -> Job:
    return Job(JobId(f"j{index}"), index, submit_s, work, curve, deadline_s)


def test_two_of_three_equal_jobs_fit() -> None:
    jobs = [build_job(index, 0.0, 100.0, 50.0) for index in range(3)]
    bound = upper_bound(jobs, parse_cluster("1x4:a100"))
    assert (bound.lower, bound.upper, bound.method) == (2, 2, "milp")


def test_knowing_the_future_pays() -> None:
    # Alone on 4 devices the long job would just make it; two short ones later are worth more.
    jobs = [build_job(0, 0.0, 400.0, 100.0), build_job(1, 10.0, 60.0, 30.0), build_job(2, 50.0, 60.0, 70.0)]
    bound = upper_bound(jobs, parse_cluster("1x4:a100"))
    assert (bound.lower, bound.upper) == (2, 2)


def test_groups_apart_in_time_are_solved_apart() -> None:
    jobs = [build_job(index, 1000.0 * index, 100.0, 1000.0 * index + 25.0) for index in range(5)]
    bound = upper_bound(jobs, parse_cluster("1x4:a100"))
    assert (bound.lower, bound.upper) == (5, 5)


def test_best_effort_and_impossible_jobs_take_no_part() -> None:
    jobs = [build_job(0, 0.0, 100.0, float("inf")), build_job(1, 0.0, 1000.0, 10.0)]
    bound = upper_bound(jobs, parse_cluster("1x4:a100"))
    assert (bound.lower, bound.upper, bound.schedule) == (0, 0, ())


def test_a_set_that_fits_by_area_only_is_not_claimed_by_the_schedule() -> None:
    # The wide job needs all 4 devices for half the time, the narrow one a device all the time.
    wide = build_job(0, 0.0, 200.0, 100.0, Curve((4,), (4.0,)))
    narrow = build_job(1, 0.0, 100.0, 100.0, Curve((1,), (1.0,)))
    bound = upper_bound([wide, narrow], parse_cluster("1x4:a100"))
    assert (bound.lower, bound.upper) == (1, 2)


def test_hull_leaves_out_shares_below_it() -> None:
    assert hull(Curve((1, 2, 4, 8), (1.0, 1.1, 3.0, 2.0))) == ([1, 4], [1.0, 3.0])


SETS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(5, 150), st.integers(10, 80), st.sampled_from([LINEAR, FLAT])),
    min_size=1,
    max_size=5,
)


@settings(max_examples=25, deadline=None)
@given(SETS)
def test_the_bound_agrees_with_trying_every_subset(rows: list[tuple[int, int, int, Curve]]) -> None:
    jobs = [
        build_job(at, float(s), float(w), float(s + d), c)
        for at, (s, w, d, c) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]
    cluster = parse_cluster("1x4:a100")
    bound = upper_bound(jobs, cluster)
    best = 0
    for size in range(1, len(jobs) + 1):
        for subset in combinations(jobs, size):
            if pack(subset, 4, 10.0).shortfalls.max() <= ENOUGH:
                best = size
                break
    assert bound.lower <= best <= bound.upper


@settings(max_examples=15, deadline=None)
@given(SETS)
def test_schedules_replay_as_they_claim(rows: list[tuple[int, int, int, Curve]]) -> None:
    jobs = [
        build_job(at, float(s), float(w), float(s + d), c)
        for at, (s, w, d, c) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]
    packing = pack(jobs, 4, 10.0)
    fulfilled = int((packing.shortfalls <= ENOUGH).sum())
    assert follow(jobs, parse_cluster("1x4:a100"), merge(packing.pieces)) >= fulfilled


@settings(max_examples=15, deadline=None)
@given(SETS, st.sampled_from(["edf", "fifo", "srtf"]), st.sampled_from([0.0, 3.0]))
def test_no_policy_exceeds_the_bound(rows: list[tuple[int, int, int, Curve]], policy: str, pause_s: float) -> None:
    jobs = tuple(
        Job(JobId(f"j{at}"), at, float(s), float(w), c, float(s + d), 1, Overhead(base_s=pause_s))
        for at, (s, w, d, c) in enumerate(sorted(rows, key=lambda row: row[0]))
    )
    cluster = parse_cluster("1x4:a100")
    report = simulate(Trace("drawn", jobs), policy, cluster)
    assert report.met + report.met_unpromised <= upper_bound(jobs, cluster).upper


def test_a_large_instance_gets_the_relaxation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.optimum.MILP_COLUMNS", 10)
    monkeypatch.setattr("experiments.optimum.LP_COLUMNS", (20, 40))
    jobs = [build_job(index, 3.0 * index, 100.0, 3.0 * index + 50.0) for index in range(8)]
    bound = upper_bound(jobs, parse_cluster("1x4:a100"))
    monkeypatch.undo()
    exact = upper_bound(jobs, parse_cluster("1x4:a100"))
    assert bound.method == "lp"
    assert exact.upper <= bound.upper <= 8
    assert bound.describe(8).startswith("at most")
