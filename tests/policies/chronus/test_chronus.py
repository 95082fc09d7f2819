from tests.policies.replays import JobSketch, build_jobs, run

from springtide.core.decisions import JobView, Progress, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Overhead
from springtide.policies.chronus.chronus import chronus, count_leases


def test_leases_hold_the_rest_in_the_last() -> None:
    assert count_leases(500.0, 240.0) == (3, 20.0)
    assert count_leases(480.0, 240.0) == (2, 240.0)
    assert count_leases(-5.0, 240.0) == (0, 0.0)


def test_an_accepted_deadline_preempts_best_effort_at_the_boundary() -> None:
    replay = run(chronus, [JobSketch(40_000, 0, requested=4), JobSketch(2000, 100, requested=4, deadline_s=1000)])
    assert replay.answers["b"].reason == "accepted"
    assert replay.finishes["b"] <= 1000.0
    assert all(time % 240 == 0 for time, _ in replay.changes["a"][1:-1])


def test_a_deadline_that_cannot_be_reserved_is_refused_but_runs_on_what_is_left() -> None:
    jobs = [JobSketch(4000, 0, requested=4, deadline_s=1010), JobSketch(400, 10, requested=4, deadline_s=500)]
    replay = run(chronus, jobs)
    assert replay.answers["a"].reason == "accepted"
    assert (replay.answers["b"].status, replay.answers["b"].reason) == (Status.ADMITTED, "no_promise")
    assert replay.finishes == {"a": 1000.0, "b": 1100.0}


def test_accepted_jobs_wait_while_a_refused_one_can_be_in_time() -> None:
    jobs = [JobSketch(2000, 0, requested=4, deadline_s=5000), JobSketch(100, 10, requested=4, deadline_s=270)]
    replay = run(chronus, jobs)
    # b cannot be reserved (its one lease would begin at 240 and end at 265: it can, and takes it from a)
    assert replay.finishes["b"] == 265.0
    assert replay.finishes["a"] == 525.0


def test_a_job_that_runs_alone_is_not_woken_for_every_lease() -> None:
    assert run(chronus, [JobSketch(40_000, 0, requested=4, deadline_s=50_000)]).calls == 2


def test_leases_stretch_with_the_pause() -> None:
    cost = Overhead(base_s=300.0)
    replay = run(
        chronus, [JobSketch(40_000, 7, requested=4, overhead=cost), JobSketch(40_000, 9, requested=4, overhead=cost)]
    )
    assert len(replay.finishes) == 2


def test_an_accepted_job_that_has_lost_its_deadline_claims_no_leases() -> None:
    """As a server makes it of a job whose promise cannot be kept any more."""
    (job,) = build_jobs([JobSketch(400, requested=2)])
    view = JobView(job, Progress(400.0), Status.ADMITTED)
    snapshot = Snapshot(parse_cluster("1x4:cpu"), {job.id: view}, (0b1111,), memory={"accepted": [job.id]})
    decision = chronus(7.0, snapshot)
    assert (decision.shares, decision.memory) == ({job.id: 2}, {"accepted": []})
