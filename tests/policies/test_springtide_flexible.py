from functools import partial
from math import inf

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, Replay, build_jobs, run

from springtide.core.decisions import Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, Overhead
from springtide.policies import decide
from springtide.policies.springtide_flexible import springtide_flexible
from springtide.simulator.front import replay as report_run
from springtide.simulator.reports import ReplayRun

PAUSE = Overhead(base_s=1.0)
ONE = {1: 1.0}


def statuses(replay: Replay, job_id: str) -> list[Status]:
    return [answer.status for _, answer in replay.told[job_id]]


def test_nothing_is_promised_and_what_is_met_is_counted_apart() -> None:
    jobs = build_jobs([JobSketch(40, 0, deadline_s=12), JobSketch(8, 1, deadline_s=13)])
    report = report_run(
        ReplayRun("two", "springtide-flexible", tuple(jobs), parse_cluster("1x4:cpu")),
        partial(decide, springtide_flexible),
    )
    assert (report.admitted, report.met, report.met_unpromised) == (0, 0, 2)


def test_the_dearest_is_dropped_where_not_all_can_be_in_time() -> None:
    replay = run(springtide_flexible, [JobSketch(40, 0, deadline_s=10), JobSketch(16, 1, deadline_s=10)])
    assert replay.finishes == {"b": 5.0}
    assert replay.changes["a"] == [(0.0, 4), (1.0, 0)]
    assert statuses(replay, "a") == [Status.WAITLISTED, Status.DECLINED]


def test_a_dropped_job_comes_back_with_its_progress_if_it_can_still_be_in_time() -> None:
    urgent = JobSketch(16, 1, deadline_s=5, speeds={4: 4.0})
    replay = run(springtide_flexible, [JobSketch(40, 0, deadline_s=14.5), urgent])
    assert replay.changes["a"] == [(0.0, 4), (1.0, 0), (5.0, 4)]
    assert replay.finishes == {"b": 5.0, "a": 14.0}


def test_best_effort_jobs_run_on_what_is_left() -> None:
    replay = run(springtide_flexible, [JobSketch(40, 0), JobSketch(40, 5, deadline_s=15)])
    assert statuses(replay, "a") == [Status.ADMITTED]
    assert replay.changes["a"][:2] == [(0.0, 4), (5.0, 0)]
    assert replay.finishes["b"] == 15.0
    assert set(replay.finishes) == {"a", "b"}


def test_jobs_that_cannot_be_in_time_are_declined() -> None:
    replay = run(springtide_flexible, [JobSketch(40, 0, deadline_s=9), JobSketch(1, 0, deadline_s=99, speeds={8: 1.0})])
    assert [replay.answers[job].reason for job in "ab"] == ["deadline_too_tight", "exceeds_cluster"]


def test_a_job_that_a_move_made_late_leaves_its_devices() -> None:
    short, long = JobSketch(10, 0, 1, 13, ONE, PAUSE), JobSketch(40, 0, 1, 41.5, ONE, PAUSE)
    pair, whole = JobSketch(20, 12, 1, 30, {2: 2.0}, PAUSE), JobSketch(40, 50, 1, 70, {4: 4.0}, PAUSE)
    replay = run(springtide_flexible, [short, long, short, long, pair, whole])
    assert sorted(replay.finishes) == ["a", "c", "d", "e", "f"]
    assert statuses(replay, "b")[-1] is Status.DECLINED
    assert replay.changes["b"][-1][1] == 0
    assert replay.first_start("f") == 50


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from((0.0, 0.0, 5.0, 40.0)),
            st.integers(5, 300),
            st.sampled_from((0.4, 0.8, 1.0, 1.5, inf)),
            st.sampled_from((FREE, PAUSE, Overhead(7.0, 2.0))),
        ),
        min_size=1,
        max_size=12,
    ),
    cluster=st.sampled_from(("1x4:cpu", "3x2:cpu", "1x3:cpu")),
)
def test_every_deadline_job_ends_or_is_declined(rows: list[tuple[float, int, float, Overhead]], cluster: str) -> None:
    sketches, submit_s = [], 0.0
    for gap_s, work, stretch, overhead in rows:
        submit_s += gap_s
        sketches.append(JobSketch(work, submit_s, 1, submit_s + stretch * work, {1: 1.0, 2: 1.8}, overhead))
    replay = run(springtide_flexible, sketches, cluster)
    for job in build_jobs(sketches):
        declined = statuses(replay, job.id)[-1] is Status.DECLINED
        assert declined != (job.id in replay.finishes)
        assert job.best_effort or Status.ADMITTED not in statuses(replay, job.id)
