from tests.policies.replays import JobSketch, run

from springtide.policies.research.tiresias import tiresias


def test_a_job_gives_way_when_it_passes_the_limit_of_its_queue() -> None:
    replay = run(tiresias, [JobSketch(4000, 0, requested=4), JobSketch(400, 100, requested=4)])
    # 3,250 device-seconds on four devices are 812.5 s
    assert replay.changes["b"] == [(812.5, 4)]
    assert replay.finishes == {"b": 912.5, "a": 1100.0}


def test_running_jobs_go_first_inside_a_queue() -> None:
    replay = run(
        tiresias, [JobSketch(40, 0, requested=2), JobSketch(40, 1, requested=4), JobSketch(40, 2, requested=2)]
    )
    assert replay.first_start("c") == 2.0
    assert replay.first_start("b") == 22.0


def test_a_newcomer_preempts_a_job_of_a_lower_queue() -> None:
    replay = run(tiresias, [JobSketch(40_000, 0, requested=4), JobSketch(400, 5000, requested=4)])
    assert replay.finishes["b"] == 5100.0
    assert replay.finishes["a"] == 10_100.0


def test_the_entry_into_a_queue_is_the_moment_its_limit_was_passed() -> None:
    # b passes 3,250 device-seconds first (812.5 s), a at 1,625; found out together when c comes and both give way
    jobs = [
        JobSketch(1e5, 0, requested=2),
        JobSketch(1e5, 0, requested=4),
        JobSketch(8000, 2000, requested=8),
        JobSketch(1e5, 2001, requested=1),
    ]
    speeds = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}
    replay = run(tiresias, [JobSketch(s.work, s.submit_s, s.requested, speeds=speeds) for s in jobs], cluster="1x8:cpu")
    resumed = [
        job for _, job in sorted((changes[-1][0], job) for job, changes in replay.changes.items() if job in "ab")
    ]
    assert replay.changes["c"][0] == (2000.0, 8)
    assert resumed == ["a", "b"]
