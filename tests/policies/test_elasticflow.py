from math import inf

import pytest
from tests.policies.replays import JobSketch, run

from springtide.core.decisions import Status
from springtide.core.jobs import Overhead
from springtide.policies.elasticflow import elasticflow

ONE = {1: 1.0}
PAIR = {2: 2.0}


def test_each_newcomer_is_judged_by_itself() -> None:
    replay = run(
        elasticflow, [JobSketch(40, 0, deadline_s=10), JobSketch(40, 0, deadline_s=12), JobSketch(8, 0, deadline_s=13)]
    )
    assert [replay.answers[job].status for job in "abc"] == [Status.ADMITTED, Status.DECLINED, Status.ADMITTED]
    assert replay.finishes == {"a": 10.0, "c": pytest.approx(12.0)}


def test_a_newcomer_never_displaces_a_promise() -> None:
    replay = run(
        elasticflow, [JobSketch(40, 0, deadline_s=12), JobSketch(4, 1, deadline_s=2.5), JobSketch(12, 1, deadline_s=4)]
    )
    assert replay.answers["b"].status is Status.ADMITTED
    assert replay.answers["c"].reason == "no_room"
    assert replay.finishes["b"] <= 2.5 and replay.finishes["a"] <= 12


@pytest.mark.parametrize(
    ("sketch", "reason", "sentence"),
    [
        (JobSketch(40, 0, deadline_s=9), "deadline_too_tight", "needs 10 s even alone"),
        (JobSketch(40, 0, deadline_s=19), "no_room", "beside the promises already made"),
        (JobSketch(1, 0, deadline_s=99, speeds={8: 1.0}), "exceeds_cluster", "at least 8 devices; the cluster has 4"),
        (JobSketch(1, 0, speeds={8: 1.0}), "exceeds_cluster", "at least 8 devices; the cluster has 4"),
    ],
)
def test_a_refusal_says_why(sketch: JobSketch, reason: str, sentence: str) -> None:
    replay = run(elasticflow, [JobSketch(40, 0, deadline_s=10), sketch])
    answer = replay.answers["b"]
    assert (answer.status, answer.reason) == (Status.DECLINED, reason)
    assert sentence in answer.sentence
    assert replay.finishes == {"a": 10.0}


def test_a_declined_job_is_not_reconsidered() -> None:
    overhead = Overhead(base_s=2.0)
    jobs = [JobSketch(40, 0, deadline_s=14, overhead=overhead), JobSketch(20, 1, deadline_s=20, overhead=overhead)]
    replay = run(elasticflow, jobs)  # the first ends at 12 and leaves its reserve; only then would the second fit
    assert [answer.status for _, answer in replay.told["b"]] == [Status.DECLINED]
    assert replay.finishes == {"a": 12.0}


@pytest.mark.parametrize(("deadline_s", "status"), [(15.0, Status.ADMITTED), (14.9, Status.DECLINED)])
def test_plans_count_pauses(deadline_s: float, status: Status) -> None:
    replay = run(elasticflow, [JobSketch(40, 0, deadline_s=deadline_s, overhead=Overhead(base_s=5.0))])
    assert replay.answers["a"].status is status


def test_spare_devices_go_where_they_cost_least() -> None:
    jobs = [
        JobSketch(40, 0, deadline_s=100, speeds={1: 1.0, 2: 1.2}),
        JobSketch(40, 0, deadline_s=100, speeds={1: 1, 2: 2}),
    ]
    replay = run(elasticflow, jobs, "1x3:cpu")
    assert replay.changes["b"][0] == (0.0, 2)
    assert replay.changes["a"] == [(0.0, 1), (20.0, 2)]


def test_growth_stops_at_the_throughput_peak() -> None:
    replay = run(elasticflow, [JobSketch(30, 0, deadline_s=100, speeds={1: 1.0, 2: 1.5, 4: 1.2})])
    assert replay.changes["a"] == [(0.0, 2)]


def test_best_effort_jobs_get_one_device_each_first() -> None:
    replay = run(
        elasticflow, [JobSketch(100, 0), JobSketch(100, 0), JobSketch(100, 0), JobSketch(100, 0), JobSketch(100, 0)]
    )
    assert [replay.changes[job][0] for job in "abcd"] == [(0.0, 1)] * 4
    assert replay.first_start("e") == 100.0
    assert {answer.reason for answer in replay.answers.values()} == {"best_effort"}


def test_best_effort_jobs_make_way_for_a_promise_and_come_back() -> None:
    replay = run(elasticflow, [JobSketch(40, 0), JobSketch(40, 0), JobSketch(40, 5, deadline_s=15)])
    assert replay.changes["a"] == [(0.0, 2), (5.0, 0), (15.0, 2)]
    assert replay.changes["b"] == [(0.0, 2), (5.0, 0), (15.0, 2)]
    assert replay.finishes == {"c": 15.0, "a": 30.0, "b": 30.0}


def fragmented(deadline_s: float) -> list[JobSketch]:
    """Four jobs on one device each, of which two end and leave no pair of neighbours; then one that needs a pair."""
    overhead = Overhead(base_s=1.0)
    short, long = JobSketch(10, 0, deadline_s=13, speeds=ONE), JobSketch(40, 0, deadline_s=deadline_s, speeds=ONE)
    jobs = [short, long, short, long, JobSketch(20, 12, deadline_s=30, speeds=PAIR)]
    return [JobSketch(job.work, job.submit_s, 1, job.deadline_s, job.speeds, overhead) for job in jobs]


def test_a_forced_move_uses_the_reserve() -> None:
    replay = run(elasticflow, fragmented(deadline_s=42))  # 1 + 40 s, and 1 s for a move
    assert replay.finishes["e"] == 23.0
    assert sorted(len(replay.changes[job]) for job in "bd") == [1, 2]
    assert sorted(replay.finishes[job] for job in "bd") == [41.0, 42.0]


def test_a_newcomer_that_would_need_a_move_without_reserve_is_declined() -> None:
    replay = run(elasticflow, fragmented(deadline_s=41))
    assert replay.answers["e"].reason == "no_room"
    assert [replay.finishes[job] for job in "bd"] == [41.0, 41.0]


def test_best_effort_jobs_wait_for_ever_behind_nothing() -> None:
    replay = run(elasticflow, [JobSketch(8, 0), JobSketch(4, 0, deadline_s=inf)])
    assert set(replay.finishes) == {"a", "b"}
