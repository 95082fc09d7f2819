from tests.policies.replays import JobSketch, run

from springtide.core.jobs import Overhead
from springtide.policies.srtf import srtf


def test_a_shorter_job_preempts_a_longer_one() -> None:
    replay = run(srtf, [JobSketch(40, 0, requested=4), JobSketch(8, 1, requested=4)])
    assert replay.finishes == {"b": 3.0, "a": 12.0}


def test_a_job_is_not_preempted_for_less_than_the_pause() -> None:
    cost = Overhead(base_s=3.0)
    # at 1 s a needs 12 s more, its pause included; b would need 13
    replay = run(srtf, [JobSketch(40, 0, requested=4, overhead=cost), JobSketch(40, 1, requested=4, overhead=cost)])
    assert replay.finishes == {"a": 13.0, "b": 26.0}


def test_a_job_that_does_not_fit_is_passed_over() -> None:
    replay = run(srtf, [JobSketch(4, 0, requested=2), JobSketch(12, 0, requested=4), JobSketch(10, 0, requested=2)])
    assert replay.finishes == {"a": 2.0, "b": 5.0, "c": 8.0}
