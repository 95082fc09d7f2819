import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, run

from springtide.core.decisions import Plan, Segment, Status
from springtide.core.jobs import Overhead
from springtide.core.timelines import Timeline
from springtide.policies.edf_admission import edf_admission


def test_a_newcomer_that_makes_an_admitted_job_late_is_declined() -> None:
    jobs = [JobSketch(40, 0, deadline_s=12), JobSketch(16, 0, deadline_s=4), JobSketch(4, 0, deadline_s=1.5)]
    replay = run(edf_admission, jobs)
    assert replay.answers["b"].reason == "makes_others_late"
    assert replay.finishes == {"c": 1.0, "a": 11.0}


def test_a_newcomer_that_would_be_late_is_declined() -> None:
    replay = run(edf_admission, [JobSketch(40, 0, deadline_s=12), JobSketch(12, 0, deadline_s=12.5)])
    assert replay.answers["b"].reason == "late"
    assert run(edf_admission, [JobSketch(40, 0, deadline_s=12), JobSketch(8, 0, deadline_s=12.5)]).finishes["b"] == 12.0


@pytest.mark.parametrize(("deadline_s", "status"), [(15.0, Status.ADMITTED), (14.9, Status.DECLINED)])
def test_plans_count_pauses(deadline_s: float, status: Status) -> None:
    replay = run(edf_admission, [JobSketch(40, 0, deadline_s=deadline_s, overhead=Overhead(base_s=5.0))])
    assert replay.answers["a"].status is status


def test_best_effort_jobs_take_what_is_left() -> None:
    speeds = {1: 1.0, 2: 2.0}
    replay = run(edf_admission, [JobSketch(40, 0), JobSketch(20, 0, deadline_s=10, speeds=speeds)])
    assert replay.changes["a"] == [(0.0, 2), (10.0, 4)]
    assert replay.finishes == {"b": 10.0, "a": 15.0}


def test_a_timeline_is_cut_where_plans_change() -> None:
    timeline = Timeline([0.0], [8])
    timeline.take(Plan((Segment(0.0, 2), Segment(5.0, 4)), 9.0, 9.0))
    timeline.take(Plan((Segment(5.0, 0), Segment(7.0, 1)), 12.0, 12.0))
    assert list(zip(timeline.times, timeline.free, strict=True)) == [(0.0, 6), (5.0, 4), (7.0, 3), (9.0, 7), (12.0, 8)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 3.0, 10.0]), st.floats(1, 100), st.floats(0.2, 3)), min_size=1, max_size=8)
)
def test_admitted_jobs_are_in_time_where_moves_cost_nothing(rows: list[tuple[float, float, float]]) -> None:
    sketches, submit_s = [], 0.0
    for gap_s, work, stretch in rows:
        submit_s += gap_s
        sketches.append(JobSketch(work, submit_s, deadline_s=submit_s + stretch * work))
    replay = run(edf_admission, sketches)
    for job_id, finish_s in replay.finishes.items():
        assert finish_s <= sketches[ord(job_id) - ord("a")].deadline_s + 1e-6
