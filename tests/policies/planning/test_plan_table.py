"""When there is nothing to decide, that leaving the decision out changes nothing, and rows written together."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, Replay, build_jobs, run

from springtide.core.decisions import Changes, Decision, JobView, Progress, Snapshot
from springtide.core.devices import parse_cluster
from springtide.core.jobs import JobId, Overhead
from springtide.core.world import World
from springtide.policies import decide, elasticflow, find_policy, springtide
from springtide.policies.planning.admission import decide_firmly
from springtide.policies.planning.plan_table import PlanTable, is_at_rest, keep_resting, new_table, open_table

PAUSE = Overhead(base_s=2.0)
SPEEDS = (
    {1: 1.0, 2: 1.9, 4: 3.5},
    {1: 1.0},
    {share: float(share) for share in range(1, 11)},
    {2: 1.0, 4: 1.1},
    {4: 2.0},
)


def find_rests(sketches: list[JobSketch], cluster: str) -> tuple[set[float], Replay]:
    """The instants of a run that find everyone at rest, and the run."""
    rests = set()

    def watch(now_s: float, snapshot: Snapshot) -> Decision:
        if is_at_rest(now_s, snapshot):
            rests.add(now_s)
        return elasticflow.elasticflow(now_s, snapshot)

    return rests, run(watch, sketches, cluster)


def test_jobs_that_hold_all_they_can_use_are_at_rest() -> None:
    rests, replay = find_rests([JobSketch(40, 0, deadline_s=100), JobSketch(8, 0, deadline_s=100)], "2x4:cpu")
    assert rests == set(replay.finishes.values()) == {2.0, 10.0}


def test_who_is_at_rest_is_not_looked_at_again_until_somebody_comes() -> None:
    world = World(parse_cluster("2x4:cpu"))
    jobs = build_jobs([JobSketch(40, 0, deadline_s=100), JobSketch(8, 0, deadline_s=100)])
    for job in jobs:
        world.arrive(job, 0.0)
    world.apply(decide(find_policy("springtide"), 0.0, world.snapshot()), 0.0)
    world.finish(jobs[1].id, 2.0)
    world.apply(decide(find_policy("springtide"), 2.0, world.snapshot()), 2.0)
    snapshot = world.snapshot()
    assert isinstance(snapshot.cache, PlanTable) and snapshot.cache.rests
    unseen = replace(snapshot, jobs={})
    assert is_at_rest(2.0, unseen) and keep_resting(unseen) is snapshot.cache
    assert not is_at_rest(2.0, replace(snapshot, changes=Changes(arrived=(jobs[0].id,))))
    assert not open_table(3.0, snapshot).rests


@pytest.mark.parametrize(("cluster", "rests"), [("2x4:cpu", True), ("1x4:cpu", False)])
def test_a_decision_says_whether_it_leaves_everyone_at_rest(cluster: str, rests: bool) -> None:
    world = World(parse_cluster(cluster))
    for job in build_jobs([JobSketch(40, 0, deadline_s=100), JobSketch(8, 0, deadline_s=100)]):
        world.arrive(job, 0.0)
    world.apply(decide(find_policy("springtide"), 0.0, world.snapshot()), 0.0)
    snapshot = world.snapshot()
    assert isinstance(snapshot.cache, PlanTable) and snapshot.cache.rests is rests
    assert is_at_rest(0.0, replace(snapshot, cache=None)) is rests
    assert (snapshot.cache.restless in snapshot.jobs) is not rests


def test_jobs_that_could_grow_or_have_no_promise_are_not_at_rest() -> None:
    jobs = [JobSketch(400, 0, deadline_s=1000), JobSketch(8, 0, deadline_s=1000), JobSketch(8, 0)]
    rests, replay = find_rests(jobs, "1x4:cpu")
    assert rests == {max(replay.finishes.values())}


sketches = st.builds(
    JobSketch,
    work=st.integers(5, 60).map(float),
    submit_s=st.integers(0, 30).map(float),
    deadline_s=st.integers(40, 120).map(float) | st.just(float("inf")),
    overhead=st.just(PAUSE),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(sketches, min_size=1, max_size=8), st.sampled_from(["1x4:cpu", "2x4:cpu", "6x4:cpu"]))
def test_leaving_out_decisions_at_rest_changes_nothing(drawn: list[JobSketch], cluster: str) -> None:
    jobs = sorted(drawn, key=lambda sketch: sketch.submit_s)
    for module, policy in ((elasticflow, elasticflow.elasticflow), (springtide, springtide.springtide)):
        quick, thorough = run(policy, jobs, cluster), run(partial(decide_firmly, propose=module.propose), jobs, cluster)
        assert (quick.told, quick.changes, quick.finishes) == (thorough.told, thorough.changes, thorough.finishes)


@settings(max_examples=40, deadline=None)
@given(st.lists(sketches, min_size=1, max_size=40), st.integers(0, 3), st.sampled_from([1, 2, 5]))
def test_rows_written_together_are_those_written_one_by_one(drawn: list[JobSketch], before: int, largest: int) -> None:
    cluster = parse_cluster("2x4:cpu")
    jobs = build_jobs([replace(sketch, speeds=SPEEDS[k % largest]) for k, sketch in enumerate(drawn)])
    views = [JobView(job, Progress(job.work, 0.5, 1.0, 2.0), share=index % 2) for index, job in enumerate(jobs)]
    tables = [new_table(3.0, World(cluster).snapshot()) for _ in range(2)]
    for table in tables:
        for view in views[:before]:
            table.add(view)
    for view in views[before:]:
        tables[0].add(view)
    rows = tables[1].add_all(views[before:])
    single, together = ([read_row(table, view.job.id) for view in views] for table in tables)
    assert single == together
    assert rows.tolist() == [tables[1].rows[view.job.id] for view in views[before:]]
    names = [view.job.id for view in views[1:]]
    tables[1].drop_all(names)
    for name in names:
        tables[0].drop(name)
    assert [[*table.rows] for table in tables] == [[views[0].job.id]] * 2
    assert all(len(table.spare_rows) == len(table.columns.deadline) - 1 for table in tables)
    assert all((table.columns.share[table.spare_rows] == 0).all() for table in tables)


def read_row(table: PlanTable, job_id: JobId) -> list[object]:
    """All that a row says of a job."""
    row, columns = table.rows[job_id], table.columns
    levels = int(columns.level_count[row])
    numbers = columns.deadline, columns.work, columns.ready, columns.start_s, columns.share, columns.segment_count
    by_level = columns.shares, columns.rates, columns.pauses
    kept = table.base_work, table.base_rate, table.base_since
    return [*(float(one[row]) for one in (*numbers, *kept)), *(one[row, :levels].tolist() for one in by_level)]
