from tests.policies.replays import JobSketch, run

from springtide.core.jobs import Overhead
from springtide.policies.research.gandiva import gandiva


def test_all_jobs_run_at_once_while_they_fit() -> None:
    replay = run(gandiva, [JobSketch(20, 0, requested=2), JobSketch(20, 0, requested=1), JobSketch(20, 5, requested=1)])
    assert replay.finishes == {"a": 10.0, "b": 20.0, "c": 25.0}
    assert replay.calls == 5


def test_jobs_take_turns_of_a_round_when_they_do_not_fit() -> None:
    replay = run(gandiva, [JobSketch(1800, 0, requested=4), JobSketch(1800, 10, requested=4)])
    assert replay.changes["a"] == [(0.0, 4), (10.0, 0), (310.0, 4), (610.0, 0), (760.0, 4)]
    assert replay.finishes == {"b": 760.0, "a": 900.0}


def test_devices_free_inside_a_round_are_used_at_once() -> None:
    jobs = [
        JobSketch(40, 0, requested=2),
        JobSketch(1200, 0, requested=2),
        JobSketch(2000, 1, requested=4),
        JobSketch(9, 2),
    ]
    replay = run(gandiva, jobs)
    # c takes its turn at 1; a and b wait longest and share the next round, in which a ends and d takes its place
    assert replay.changes["c"][:2] == [(1.0, 4), (301.0, 0)]
    assert replay.first_start("d") == 320.0
    assert replay.finishes["a"] == 320.0


def test_rounds_stretch_with_the_pause_so_that_turns_make_progress() -> None:
    cost = Overhead(base_s=400.0)
    replay = run(
        gandiva, [JobSketch(40_000, 0, requested=4, overhead=cost), JobSketch(40_000, 0, requested=4, overhead=cost)]
    )
    # 300 s doubled until it is ten times the pause: 4,800 s
    assert [time for time, _ in replay.changes["a"]][:2] == [0.0, 4800.0]
    assert len(replay.finishes) == 2
