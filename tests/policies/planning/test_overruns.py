"""A promised job that overruns its plan, or can no longer be in time, costs only itself."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.policies.planning.test_admission import CLUSTERS, Row, draw_rows, open_empty, sketch_all, view_of
from tests.policies.replays import JobSketch, build_jobs, check, run

from springtide.core.decisions import Answer, Decision, Plan, Promise, Segment, Status
from springtide.core.devices import Devices, parse_cluster
from springtide.core.jobs import JobId, Overhead
from springtide.core.world import World
from springtide.placement.best_fit import on_one_node
from springtide.policies import Policy, decide, find_policy
from springtide.policies.elasticflow import elasticflow
from springtide.policies.planning import filling, plan_table
from springtide.policies.planning.filling import Ints
from springtide.policies.planning.open_answers import replan, rescue
from springtide.policies.planning.plan_table import PlanTable, open_table, write_plan
from springtide.policies.springtide import springtide
from springtide.simulator.calibration import PromiseObserver
from springtide.simulator.reports import meets
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.uncertainty import Uncertainty, draw_facts, run_uncertain
from springtide.simulator.workloads import Workload, draw_trace
from springtide.throughput.overheads import parse_overhead

PROMISED = Answer(Status.ADMITTED, promised=True)
PAUSE = Overhead(base_s=1.0)
RIGID = {4: 4.0}
GROWING = {1: 1.0, 2: 2.0, 4: 4.0}


def build_world(*entries: tuple[JobSketch, Plan, float, Devices]) -> World:
    """One node of four devices with promised jobs: sketch, plan, work left now (at zero seconds), devices."""
    world = World(parse_cluster("1x4:cpu"))
    for job, (_, plan, _, devices) in zip(build_jobs([entry[0] for entry in entries]), entries, strict=True):
        world.arrive(job, 0.0)
        held = {job.id: devices} if devices else {}
        answers, promises = {job.id: PROMISED}, {job.id: Promise(job.deadline_s, plan)}
        world.apply(Decision(answers=answers, promises=promises, allocations=held), 0.0)
    for view, (_, _, left, _) in zip(list(world.jobs.values()), entries, strict=True):
        world.observe(view.job.id, replace(view.progress, work_left=left), 0.0)
    world.snapshot()
    return world


def hold(plan_until_s: float, share: int = 4, start_s: float = 0.0, reserve_s: float = 0.0) -> Plan:
    return Plan((Segment(start_s, share),), plan_until_s, plan_until_s + reserve_s)


ALL_FOUR = on_one_node(0, 0b1111)


def test_who_overruns_gives_way_to_a_start_that_cannot_wait() -> None:
    overrun = JobSketch(40, deadline_s=10, speeds=RIGID)
    tight = JobSketch(40, deadline_s=20, speeds=RIGID)
    world = build_world((overrun, hold(10.0), 48.0, ALL_FOUR), (tight, hold(20.0, start_s=10.0), 40.0, ()))
    decision = check(springtide, 10.0, world.snapshot())
    assert dict(decision.shares) == {"a": 0, "b": 4}
    assert decision.promises[JobId("a")].plan.segments[-1] == Segment(20.0, 4)
    assert JobId("b") not in decision.promises, "its plan stays as it was"


def test_who_overruns_goes_on_where_others_can_wait() -> None:
    overrun, later = JobSketch(40, deadline_s=12, speeds=RIGID), JobSketch(40, deadline_s=40, speeds=RIGID)
    world = build_world((overrun, hold(10.0), 48.0, ALL_FOUR), (later, hold(20.0, start_s=10.0), 40.0, ()))
    decision = check(springtide, 10.0, world.snapshot())
    assert not decision.shares
    assert decision.promises[JobId("a")].plan.finish_s == pytest.approx(12.0)
    assert decision.promises[JobId("b")].plan.segments[-1].start_s == pytest.approx(12.0)


def test_nobody_is_promised_the_devices_of_who_overruns() -> None:
    overrun = JobSketch(40, deadline_s=12, speeds=RIGID)
    world = build_world((overrun, hold(10.0), 48.0, ALL_FOUR))
    [_, newcomer] = build_jobs([overrun, JobSketch(8, 11.0, deadline_s=13.5, speeds=RIGID)])
    world.arrive(newcomer, 11.0)
    decision = check(springtide, 11.0, world.snapshot())
    assert decision.answers[newcomer.id].status is not Status.ADMITTED
    assert decision.shares.get(JobId("a"), 4) == 4


def open_with_hopeless() -> World:
    """One job that cannot be in time on two devices, and one with much slack on the other two."""
    hopeless, slack = JobSketch(20, deadline_s=10, speeds={2: 2.0}), JobSketch(40, deadline_s=100, speeds={2: 2.0})
    return build_world(
        (hopeless, hold(10.0, 2), 400.0, on_one_node(0, 0b11)), (slack, hold(20.0, 2), 40.0, on_one_node(0, 0b1100))
    )


@pytest.mark.parametrize("policy", [elasticflow, springtide])
def test_a_hopeless_job_does_not_keep_others_from_being_planned_again(policy: Policy) -> None:
    world = open_with_hopeless()
    newcomer = build_jobs([*[JobSketch(1)] * 2, JobSketch(20, 1.0, deadline_s=12, speeds={2: 2.0})])[2]
    world.arrive(newcomer, 1.0)
    decision = check(policy, 1.0, world.snapshot())
    assert decision.answers[newcomer.id].promised, "the job with slack makes way"
    assert dict(decision.shares) == {"b": 0, newcomer.id: 2}


def test_a_hopeless_job_may_be_moved() -> None:
    world = World(parse_cluster("2x2:cpu"))
    sketches = [JobSketch(40, deadline_s=10 + 90 * index, speeds={1: 1.0}, overhead=PAUSE) for index in range(2)]
    jobs = build_jobs([*sketches, JobSketch(20, 1.0, deadline_s=12.5, speeds={2: 2.0}, overhead=PAUSE)])
    for node, job in enumerate(jobs[:2]):
        world.arrive(job, 0.0)
        promise = Promise(job.deadline_s, hold(10.0 + 90 * node, 1))
        places = {job.id: on_one_node(node, 0b1)}
        world.apply(Decision(answers={job.id: PROMISED}, promises={job.id: promise}, allocations=places), 0.0)
    world.snapshot()
    world.observe(jobs[1].id, replace(world.jobs[jobs[1].id].progress, work_left=99.5), 0.0)
    world.arrive(jobs[2], 1.0)
    decision = check(springtide, 1.0, world.snapshot())
    assert decision.answers[jobs[2].id].promised, "room is made although two devices are free in pieces only"
    assert decision.allocations[jobs[0].id] == on_one_node(1, 0b10)


def test_who_is_late_is_planned_in_time_again_once_it_can_be() -> None:
    world = open_with_hopeless()
    world.observe(JobId("a"), replace(world.jobs[JobId("a")].progress, work_left=30.0), 0.0)  # 15 s on its two devices
    table = open_table(0.0, world.snapshot())
    assert table.late.tolist() == [table.rows[JobId("a")]]
    assert replan(table), "the other one can be planned again"
    world.observe(JobId("a"), replace(world.jobs[JobId("a")].progress, work_left=16.0), 0.0)
    assert not len(open_table(0.0, world.snapshot()).late)


def test_a_job_that_only_others_make_late_is_rescued_by_planning_them_again() -> None:
    overrun = JobSketch(40, deadline_s=12, speeds=RIGID)
    world = build_world(
        (overrun, hold(10.0), 48.0, ALL_FOUR),
        (JobSketch(40, deadline_s=40, speeds=RIGID), hold(20.0, start_s=10.0), 40.0, ()),
    )
    table = open_table(10.0, world.snapshot())
    assert len(table.late) == 1
    rescue(table)
    assert not len(table.late)
    assert (table.capacity.free[: table.capacity.size[0]] >= 0).all()


def test_a_late_plan_begins_once_all_others_have_ended_where_they_leave_no_other_way() -> None:
    table = open_empty("1x4:cpu")
    row = table.add(view_of(JobSketch(40, deadline_s=5, speeds=RIGID), "late"))
    for step in range(40):  # free for a second, taken for a second
        before = Plan((Segment(2.0 * step, 4),), 2.0 * step + 1.0, 2.0 * step + 1.0)
        plan_table.occupy_plan(table, table.capacity, before, 1)
    table.columns.pauses[row] = 1.0
    filling.fill_late(table.capacity, table.columns, row, 0)
    assert table.plan(row).segments == (Segment(79.0, 4),)
    assert table.plan(row).finish_s == 90.0


def test_a_plan_that_is_followed_needs_no_mending() -> None:
    table = open_empty("1x4:cpu")
    row = table.add(view_of(JobSketch(40, deadline_s=50, speeds=GROWING, overhead=Overhead(base_s=2.0)), "a"))
    assert filling.fill(table.capacity, table.columns, row, 0)
    assert filling.projected_end(table.columns, row, 0.0) == pytest.approx(table.columns.finish[row])
    write_plan(table.columns, row, Plan((Segment(0.0, 1), Segment(12.0, 2)), 29.0, 31.0))  # 10 steps, a pause, 30 steps
    assert filling.projected_end(table.columns, row, 0.0) == pytest.approx(29.0)
    assert not len(plan_table.find_overruns(table, np.array([row])))
    table.columns.work[row] += 5.0
    assert plan_table.find_overruns(table, np.array([row])).tolist() == [row]


def test_a_job_that_is_moved_is_planned_to_go_on_as_it_is() -> None:
    table = open_empty("1x4:cpu")
    job = view_of(JobSketch(40, deadline_s=50, speeds=GROWING, overhead=PAUSE), "a")
    row = table.add(replace(job, share=1))
    write_plan(table.columns, row, Plan((Segment(0.0, 1), Segment(10.0, 2)), 26.0, 27.0))
    filling.occupy(table.capacity, table.columns, row, 1)
    assert filling.replan_paused(table.capacity, table.columns, row), "two devices are free from now on, but it has one"
    assert filling.share_now(table.columns, row, 0.0) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=draw_rows(), cluster=st.sampled_from(CLUSTERS))
def test_nothing_is_mended_where_everything_is_as_stated(rows: list[Row], cluster: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_table, "mend_overruns", refuse)
        run(springtide, sketch_all(rows), cluster)


def refuse(table: PlanTable, overruns: Ints) -> None:
    raise AssertionError(f"{[table.plan(row) for row in overruns.tolist()]} at {table.now_s} s")


@pytest.mark.parametrize("seed", [5, 36, 41])
def test_who_takes_no_longer_than_believed_is_in_time_however_long_others_take(seed: int) -> None:
    cluster = parse_cluster("2x4:a100")
    scenario = load_scenario(cluster, None, parse_overhead("elasticflow", cluster.total))
    jobs = draw_trace(Workload(jobs=40, gap=900.0, seed=seed), scenario).jobs
    uncertain, seen = Uncertainty(steps_error=0.3, confidence=0.5, seed=seed), PromiseObserver()
    run_uncertain(jobs, cluster, partial(decide, find_policy("springtide")), seen, uncertain)
    facts = {job.id: job for job in draw_facts(jobs, uncertain)}
    for job in jobs:
        if job.id in seen.promised and facts[job.id].work <= job.work:
            assert meets(job, seen.finishes_s[job.id]), f"{job.id} took no longer than its plan"
