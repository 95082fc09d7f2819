from tests.policies.replays import JobSketch, build_jobs, run

from springtide.core.jobs import Overhead
from springtide.policies.research.rubick import minimum_share, rubick


def test_the_guarantee_is_a_speed_and_not_a_number_of_devices() -> None:
    (job,) = build_jobs([JobSketch(100, requested=4, speeds={1: 1.0, 2: 3.0, 4: 2.5})])
    assert minimum_share(job) == 2


def test_what_is_free_goes_to_the_steepest_slope() -> None:
    flat = {1: 1.0, 2: 1.1, 4: 1.2}
    replay = run(rubick, [JobSketch(1000, 0, speeds=flat), JobSketch(1000, 0, speeds={1: 1.0, 2: 1.9})])
    assert replay.changes["b"][0] == (0.0, 2)
    assert replay.changes["a"][0] == (0.0, 2)


def test_a_newcomer_gets_its_minimum_from_those_above_theirs() -> None:
    replay = run(rubick, [JobSketch(10_000, 0), JobSketch(1000, 100, requested=2)])
    assert replay.changes["a"][:2] == [(0.0, 4), (100.0, 2)]
    assert replay.changes["b"][0] == (100.0, 2)


def test_nobody_falls_below_its_guarantee() -> None:
    replay = run(rubick, [JobSketch(1000, 0, requested=4), JobSketch(100, 10, requested=4)], "1x4:cpu")
    assert replay.first_start("b") == replay.finishes["a"]


def test_a_job_that_holds_half_the_cluster_makes_room() -> None:
    whole = JobSketch(10_000, 0, requested=4, speeds={4: 1.0})
    replay = run(rubick, [whole, JobSketch(100, 500, speeds={1: 1.0})])
    assert replay.first_start("b") == 500.0
    assert set(replay.finishes) == {"a", "b"}


def test_changes_take_at_most_their_part_of_the_time() -> None:
    cost = Overhead(base_s=30.0)
    replay = run(rubick, [JobSketch(10_000, 0, overhead=cost), JobSketch(1000, 100, requested=2, overhead=cost)])
    assert replay.first_start("b") == 1000.0  # 30 s are 3 % of them
