"""One job at a time, looked at once a minute, each 20 s after its turn."""

from tests.policies.replays import JobSketch, run

from springtide.core.jobs import Overhead
from springtide.policies.yarn_cs import yarn_cs


def test_jobs_run_one_by_one_at_the_turn_of_a_minute() -> None:
    replay = run(yarn_cs, [JobSketch(30, 0), JobSketch(10, 5), JobSketch(10, 5)])
    assert replay.finishes == {"a": 50.0, "b": 90.0, "c": 150.0}


def test_a_start_that_costs_anyway_is_not_paid_twice() -> None:
    costly, cheap = Overhead(base_s=30.0), Overhead(base_s=5.0)
    assert run(yarn_cs, [JobSketch(10, 0, overhead=cheap)]).finishes == {"a": 30.0}
    assert run(yarn_cs, [JobSketch(10, 0, overhead=costly)]).finishes == {"a": 40.0}
