from tests.policies.replays import JobSketch, run

from springtide.core.jobs import Overhead
from springtide.policies.edf import edf


def test_the_most_urgent_job_takes_all_it_can_use() -> None:
    replay = run(edf, [JobSketch(40, 0, deadline_s=100), JobSketch(40, 0, deadline_s=20)])
    assert replay.finishes == {"b": 10.0, "a": 20.0}


def test_a_newcomer_with_an_earlier_deadline_preempts() -> None:
    replay = run(edf, [JobSketch(40, 0, deadline_s=100), JobSketch(20, 4, deadline_s=10)])
    assert replay.changes["a"] == [(0.0, 4), (4.0, 0), (9.0, 4)]
    assert replay.finishes == {"b": 9.0, "a": 15.0}


def test_no_job_holds_more_than_its_peak() -> None:
    speeds = {1: 1.0, 2: 2.0, 4: 1.5}
    replay = run(edf, [JobSketch(20, 0, deadline_s=20, speeds=speeds), JobSketch(20, 0, deadline_s=30)])
    assert replay.changes["a"] == [(0.0, 2)]
    assert replay.changes["b"] == [(0.0, 2)]


def test_a_job_that_cannot_be_in_time_goes_behind_all_that_can() -> None:
    replay = run(edf, [JobSketch(400, 0, deadline_s=50), JobSketch(40, 0, deadline_s=60), JobSketch(40, 0)])
    assert replay.finishes["b"] == 10.0
    # and before best effort
    assert replay.finishes["a"] == 110.0
    assert replay.finishes["c"] == 120.0


def test_a_job_does_not_grow_for_less_than_its_pause() -> None:
    cost = Overhead(base_s=5.0)
    jobs = [
        JobSketch(20, 0, deadline_s=30, speeds={2: 2.0}, overhead=cost),
        JobSketch(20, 0, deadline_s=40, overhead=cost),
    ]
    replay = run(edf, jobs)
    # both end their pauses at 5 and their work at 15; a's end is b's, so nothing is left to grow for
    assert replay.changes["b"] == [(0.0, 2)]
    longer = run(edf, [jobs[0], JobSketch(28, 0, deadline_s=40, overhead=cost)])
    # at 15 b has 8 steps left: 4 s as it is, 5 + 2 s on four devices
    assert longer.changes["b"] == [(0.0, 2)]
    longest = run(edf, [jobs[0], JobSketch(48, 0, deadline_s=40, overhead=cost)])
    # at 15 b has 28 steps left: 14 s as it is, 5 + 7 s on four devices
    assert longest.changes["b"] == [(0.0, 2), (15.0, 4)]
