"""Promises on real devices: odd clusters, pauses, bursts, and certificates that are exact."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, build_jobs, run

from springtide.core.decisions import JobView, Plan, Progress, Promise, Segment, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, JobId, Overhead
from springtide.core.world import World
from springtide.policies import Policy
from springtide.policies.elasticflow import elasticflow
from springtide.policies.planning import filling
from springtide.policies.planning.admission import _within, admit
from springtide.policies.planning.open_answers import replan
from springtide.policies.planning.plan_table import FEW_ROWS, PlanTable, new_table, write_plan
from springtide.policies.springtide import springtide

CLUSTERS = ("3x4:cpu", "2x8:cpu", "1x3:cpu", "5x3:cpu", "2x3:cpu,1x8:cpu", "1x1:cpu")
OVERHEADS = (FREE, Overhead(base_s=10.0), Overhead(7.0, 2.0), Overhead(2.0, 2.0, start_s=20.0))
SPEEDS = (
    {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0},
    {1: 1.0, 2: 1.3, 4: 1.4},
    {1: 1.0, 2: 1.8, 3: 2.5, 5: 3.5, 6: 3.9},
    {2: 1.0, 4: 1.9},
    {1: 1.0},
)
Row = tuple[float, int, float, dict[int, float], Overhead]


def draw_rows(speeds: tuple[dict[int, float], ...] = SPEEDS) -> st.SearchStrategy[list[Row]]:
    """Jobs in bursts: most come at the instant of the one before."""
    row = st.tuples(
        st.sampled_from((0.0, 0.0, 0.0, 7.0, 40.0, 300.0)),
        st.integers(5, 600),
        st.sampled_from((0.4, 0.7, 1.0, 1.1, 1.5, 3.0, inf)),
        st.sampled_from(speeds),
        st.sampled_from(OVERHEADS),
    )
    return st.lists(row, min_size=1, max_size=14)


def sketch_all(rows: list[Row]) -> list[JobSketch]:
    """The drawn jobs, each with a deadline of so many times its duration on its least share."""
    sketches, submit_s = [], 0.0
    for gap_s, work, stretch, speeds, overhead in rows:
        submit_s += gap_s
        duration_s = work / next(iter(speeds.values()))
        sketches.append(JobSketch(work, submit_s, 1, submit_s + stretch * duration_s, speeds, overhead))
    return sketches


@pytest.mark.parametrize("policy", [elasticflow, springtide])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=draw_rows(), cluster=st.sampled_from(CLUSTERS))
def test_a_promise_is_kept_and_never_revoked(policy: Policy, rows: list[Row], cluster: str) -> None:
    sketches = sketch_all(rows)
    replay = run(policy, sketches, cluster)
    for job in build_jobs(sketches):
        statuses = [answer.status for _, answer in replay.told[job.id]]
        assert statuses[-1] in (Status.ADMITTED, Status.DECLINED)
        assert set(statuses[:-1]) <= {Status.WAITLISTED}
        if statuses[-1] is Status.ADMITTED:
            assert replay.finishes[job.id] <= job.deadline_s + 1e-6
        else:  # what it held before its answer, it has left
            assert replay.changes.get(job.id, [(0.0, 0)])[-1][1] == 0


def open_empty(cluster: str) -> PlanTable:
    return new_table(0.0, World(parse_cluster(cluster)).snapshot())


def view_of(sketch: JobSketch, name: str) -> JobView:
    [job] = build_jobs([sketch])
    return JobView(
        type(job)(JobId(name), 0, 0.0, job.work, job.curve, job.deadline_s, overhead=job.overhead), Progress(job.work)
    )


def test_a_job_that_does_not_fit_leaves_no_trace() -> None:
    table = open_empty("1x4:cpu")
    assert admit(table, view_of(JobSketch(40, deadline_s=10), "a"))
    before = [column.copy() for column in table.capacity]
    assert not admit(table, view_of(JobSketch(40, deadline_s=10), "b"))
    assert list(table.rows) == ["a"]
    for kept, now in zip(before, table.capacity, strict=True):
        np.testing.assert_array_equal(kept, now)


def test_all_are_planned_again_where_the_rest_is_not_enough() -> None:
    table = open_empty("1x4:cpu")
    assert admit(table, view_of(JobSketch(40, deadline_s=20), "a"))  # two devices up to 20
    assert admit(table, view_of(JobSketch(16, deadline_s=4), "b"))  # all four up to 4, then the first on four
    assert [table.plan(row).share_at(0.0) for row in table.rows.values()] == [0, 4]
    assert replan(table)


def test_a_plan_with_a_shifted_middle_is_another_plan() -> None:
    plan = Plan((Segment(0.0, 2), Segment(10.0, 4), Segment(20.0, 2)), 30.0, 35.0)
    shifted = Plan((Segment(0.0, 2), Segment(15.0, 4), Segment(25.0, 2)), 30.0, 35.0)
    columns = filling.empty_columns(1, 1)
    write_plan(columns, 0, plan)
    assert not filling.is_in_force(columns, 0, 0.0, 0.0), "there is none"
    filling.keep_in_force(columns, np.zeros(1, np.int64))
    assert filling.is_in_force(columns, 0, 0.0, 0.0)
    write_plan(columns, 0, shifted)
    assert not filling.is_in_force(columns, 0, 0.0, 0.0)


def test_a_plan_that_differs_by_a_rounding_of_its_end_is_the_plan_in_force() -> None:
    plan = Plan((Segment(0.0, 2), Segment(10.0, 4)), 30.0, 35.0)
    columns = filling.empty_columns(1, 1)
    write_plan(columns, 0, plan)
    filling.keep_in_force(columns, np.zeros(1, np.int64))
    for start_s, end_s, is_kept in ((10.0, 30.0 + 1e-9, True), (10.0, 30.1, False), (10.0 + 1e-9, 30.0, False)):
        times_s, shares = np.array([5.0, start_s]), np.array([2, 4])  # planned again at 5 s
        filling.store(columns, 0, end_s, 35.0, 2, times_s, shares)
        assert (columns.finish[0], columns.segment_times[0, 0]) == ((30.0, 0.0) if is_kept else (end_s, 5.0))


def test_a_promise_in_the_snapshot_is_the_certificate() -> None:
    table = open_empty("1x4:cpu")
    view = view_of(JobSketch(40, deadline_s=20), "a")
    row = table.add(view)
    plan = Plan((Segment(0.0, 2),), 20.0, 20.0)
    table.see(JobView(view.job, view.progress, Status.ADMITTED, promise=Promise(20.0, plan)))
    assert table.plan(row) == plan


@pytest.mark.parametrize("count", [1, FEW_ROWS, FEW_ROWS + 1, 12])
def test_plans_read_together_are_those_read_one_by_one(count: int) -> None:
    table = open_empty("1x4:cpu")
    rows = [table.add(view_of(JobSketch(10 + index), f"job-{index}")) for index in range(count)]
    for index, row in enumerate(rows):
        segments = tuple(Segment(float(index + step), 1 + step) for step in range(1 + index % 3))
        write_plan(table.columns, row, Plan(segments, 50.0 + index, 60.0 + index))
    assert table.plans(np.array(rows)) == [table.plan(row) for row in rows]


def test_a_job_that_outruns_its_plan_leaves_to_others_what_is_free() -> None:
    table = open_empty("1x4:cpu")
    overrun, newcomer = view_of(JobSketch(40, deadline_s=90), "overrun"), view_of(JobSketch(40, deadline_s=99), "new")
    rows = np.array([table.add(replace(overrun, share=2)), table.add(newcomer)])
    assert _within(table, rows, [2, 4]) == [2, 2]
    assert _within(table, rows, [2, 2]) == [2, 2]
