from dataclasses import replace

from tests.policies.replays import JobSketch, build_jobs, run

from springtide.core.curves import Curve
from springtide.core.decisions import Changes, JobView, Progress, Snapshot
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Overhead
from springtide.core.typed_curves import TypedCurves
from springtide.policies.research.sia import sia

FAST, SLOW = Curve((1, 2), (4.0, 7.0)), Curve((1, 2), (1.0, 2.0))


def test_a_job_starts_small_and_doubles_every_minute() -> None:
    assert run(sia, [JobSketch(1000, 0)]).changes["a"] == [(0.0, 1), (60.0, 2), (120.0, 4)]


def test_devices_go_to_the_job_that_scales() -> None:
    flat = {1: 1.0, 2: 1.05, 4: 1.1}
    replay = run(sia, [JobSketch(1000, 0, speeds=flat), JobSketch(1000, 0), JobSketch(1000, 0)])
    assert replay.changes["a"][0] == (0.0, 1)
    assert all(share <= 1 for at_s, share in replay.changes["a"] if at_s < 300)
    assert replay.changes["b"][1] == (60.0, 2)


def test_a_newcomer_gets_a_free_device_at_once() -> None:
    replay = run(sia, [JobSketch(1000, 0, speeds={1: 1.0, 2: 2.0}), JobSketch(100, 70)])
    assert replay.changes["b"][0] == (70.0, 1)


def test_nobody_is_restarted_for_a_gain_below_its_cost() -> None:
    slow_to_change = Overhead(base_s=400.0)
    speeds = {1: 1.0, 2: 1.1}
    replay = run(sia, [JobSketch(600, 0, speeds=speeds, overhead=slow_to_change)])
    assert replay.changes["a"] == [(0.0, 1)]


def test_the_job_that_gains_most_gets_the_fast_type() -> None:
    cluster = parse_cluster("1x1:a100,1x1:t4")
    jobs = build_jobs([JobSketch(1000, 0), JobSketch(1000, 0)])
    sensitive = replace(jobs[0], curve=FAST, typed=TypedCurves({"a100": FAST, "t4": SLOW}, movable=True))
    robust = replace(jobs[1], curve=FAST, typed=TypedCurves({"a100": SLOW, "t4": SLOW}, movable=True))
    views = {job.id: JobView(job, Progress(job.work)) for job in (robust, sensitive)}
    decision = sia(0.0, Snapshot(cluster, views, (1, 1), Changes(arrived=tuple(views))))
    assert decision.mixes == {sensitive.id: {"a100": 1}, robust.id: {"t4": 1}}


def test_a_job_of_one_type_stays_where_it_started() -> None:
    cluster = parse_cluster("1x1:a100,1x1:t4")
    (job,) = build_jobs([JobSketch(1000, 0)])
    bound = replace(job, curve=FAST, typed=TypedCurves({"a100": FAST, "t4": SLOW}))
    view = JobView(bound, Progress(1000.0), first_start_s=0.0, first_device_type="t4", mix={})
    decision = sia(500.0, Snapshot(cluster, {job.id: view}, (1, 1)))
    assert decision.mixes == {job.id: {"t4": 1}}
