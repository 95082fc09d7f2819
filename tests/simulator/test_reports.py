"""Every number of a report, worked by hand on a run of three jobs."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, Snapshot, Status
from springtide.core.devices import Devices, NodeSlice, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.simulator.front import replay
from springtide.simulator.reports import ReplayRun, SimulationReport, count_feasible_alone, find_percentile, meets

CURVE = Curve((1, 2, 4), (1.0, 1.8, 3.0))
PAUSE = Overhead(base_s=10.0)
A, B, C = JobId("a"), JobId("b"), JobId("c")
ADMIT, WAIT, DECLINE = Answer(Status.ADMITTED), Answer(Status.WAITLISTED, answer_by_s=60.0), Answer(Status.DECLINED)


def on(mask: int) -> Devices:
    return (NodeSlice(0, mask),) if mask else ()


def build_job(name: JobId, index: int, submit_s: float, work: float, deadline_s: float) -> Job:
    return Job(name, index, submit_s, work, CURVE, deadline_s, overhead=PAUSE)


JOBS = (build_job(A, 0, 100.0, 246.0, 300.0), build_job(B, 1, 120.0, 50.0, 171.0), build_job(C, 2, 120.0, 20.0, inf))


def run_script(script: dict[float, Decision], jobs: tuple[Job, ...] = JOBS) -> SimulationReport:
    """The report of a run in which each instant's decision is written down."""
    instants = sorted(script)

    def decide(now_s: float, snapshot: Snapshot) -> Decision:
        later = next((instant for instant in instants if instant > now_s), inf)
        return replace(script.get(now_s, Decision()), wake_at_s=later)

    return replay(ReplayRun("hand", "script", jobs, parse_cluster("1x4:a100")), decide)


def test_a_run_by_hand() -> None:
    script = {
        100.0: Decision(answers={A: ADMIT}, allocations={A: on(0b11)}),  # A works from 110
        120.0: Decision(answers={B: WAIT, C: ADMIT}, allocations={C: on(0b100)}),  # C works from 130
        # A: 30 s at 1.8 = 54 done, 192 left. C: 10 done, 10 left, gives up its device for nothing.
        140.0: Decision(answers={B: DECLINE}, allocations={A: on(0b1111), C: ()}),
        # A: 150..160 at 3 = 30 done, 162 left; then 2 devices again, works from 170, ends at 260.
        160.0: Decision(allocations={A: on(0b11), C: on(0b100)}),
        # C: resumed at 160, works 170..175 = 5 done; moved at 175, works from 185, ends at 190.
        175.0: Decision(allocations={C: on(0b1000)}),
    }
    report = run_script(script)
    assert (report.jobs, report.best_effort_jobs, report.gpus) == (3, 1, 4)
    assert (report.admitted, report.waitlisted, report.declined, report.finished) == (2, 1, 1, 2)
    assert (report.met, report.met_unpromised, report.late_admitted) == (1, 0, 0)
    assert report.dsr == 0.5
    # A alone: 10 + 246 / 3 = 92 <= 200. B alone: 10 + 50 / 3 = 26.7 <= 51.
    assert report.dsr_alone_bound == 1.0
    assert report.median_answer_delay_s == 10.0  # A at once, B after 20 s
    assert report.avg_jct_s == report.p95_jct_s == pytest.approx(160.0)
    assert report.avg_jct_best_effort_s == pytest.approx(70.0)
    assert report.longest_wait_best_effort_s == pytest.approx(20.0)  # C, from 140 to 160; B has a deadline
    assert report.makespan_s == pytest.approx(160.0)
    held = 2 * 40 + 4 * 20 + 2 * 100 + 1 * 20 + 1 * 30
    assert report.gpu_hours == pytest.approx(held / 3600)
    assert report.gpu_utilization == pytest.approx(held / (4 * 160))
    # T(1) = 1, so the work done is the seconds one device would need.
    assert report.cluster_efficiency == pytest.approx((246 + 20) / (4 * 160))
    assert (report.starts, report.rescales, report.migrations) == (3, 2, 1)


def test_the_longest_wait_is_that_of_best_effort_jobs_in_all() -> None:
    first, second = build_job(A, 0, 0.0, 100.0, inf), build_job(B, 1, 5.0, 10.0, 60.0)
    script = {
        0.0: Decision(answers={A: ADMIT}),
        5.0: Decision(answers={B: ADMIT}, allocations={B: on(1)}),
        12.0: Decision(allocations={A: on(0b10)}),
        30.0: Decision(allocations={A: ()}),
        34.0: Decision(allocations={A: on(0b10)}),
    }
    assert run_script(script, (first, second)).longest_wait_best_effort_s == pytest.approx(12.0 + 4.0)


def test_late_and_unfinished_admitted_jobs_are_late() -> None:
    late = build_job(A, 0, 0.0, 100.0, 50.0)
    never = build_job(B, 1, 0.0, 100.0, 500.0)
    report = run_script({0.0: Decision(answers={A: ADMIT, B: ADMIT}, allocations={A: on(1)})}, (late, never))
    assert (report.finished, report.met, report.late_admitted, report.dsr) == (1, 0, 2, 0.0)


def test_a_deadline_met_without_admission_is_apart() -> None:
    job = build_job(A, 0, 0.0, 100.0, 500.0)
    report = run_script({0.0: Decision(answers={A: WAIT}, allocations={A: on(1)})}, (job,))
    assert (report.met, report.met_unpromised, report.dsr) == (0, 1, 0.0)


def test_nothing_to_average_is_none() -> None:
    job = build_job(A, 0, 0.0, 100.0, inf)
    report = run_script({0.0: Decision(answers={A: ADMIT})}, (job,))
    assert report.dsr is report.dsr_alone_bound is report.avg_jct_s is report.avg_jct_best_effort_s is None
    assert report.longest_wait_best_effort_s is None
    assert report.makespan_s == report.gpu_utilization == 0.0


def test_met_has_a_tolerance_of_a_microsecond() -> None:
    job = build_job(A, 0, 0.0, 1.0, 100.0)
    assert meets(job, 100.0 + 9e-7)
    assert not meets(job, 100.0 + 2e-6)


def test_alone_bound_counts_the_start() -> None:
    in_time = build_job(A, 0, 0.0, 30.0, 20.0)
    too_late = build_job(B, 1, 0.0, 30.0, 19.9)
    assert count_feasible_alone([in_time, too_late, build_job(C, 2, 0.0, 1.0, inf)], parse_cluster("1x4:a100")) == 1


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_a_percentile_lies_between_its_neighbours(values: list[float], fraction: float) -> None:
    ordered = sorted(values)
    assert ordered[0] <= find_percentile(ordered, fraction) <= ordered[-1] * (1 + 1e-12)


def test_percentile_interpolates() -> None:
    assert find_percentile([0.0, 10.0, 20.0], 0.75) == 15.0
