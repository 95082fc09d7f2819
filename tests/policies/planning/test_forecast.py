from math import inf

import pytest

from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Progress
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.world import World
from springtide.policies.planning.forecast import FEW, HISTORY, REMEMBERED, Demand, alone_cost, remember, survey
from springtide.policies.planning.plan_table import new_table

NOW_S = 1000.0
CURVE = Curve((1, 2, 4, 8), (1.0, 2.0, 3.0, 2.5))


def build_job(work: float, deadline_s: float, overhead: Overhead | None = None) -> Job:
    return Job(JobId("a"), 0, 0.0, work, CURVE, deadline_s, overhead=overhead or Overhead())


@pytest.mark.parametrize(
    ("deadline_s", "cost"), [(120.0, 120.0), (60.0, 120.0), (59.0, 4 * 40.0), (40.0, 4 * 40.0), (39.0, inf)]
)
def test_the_cost_is_that_of_the_smallest_share_in_time(deadline_s: float, cost: float) -> None:
    assert alone_cost(build_job(120, deadline_s), 0.0) == cost
    assert alone_cost(build_job(120, deadline_s + 7), 7.0) == cost


def test_the_cost_includes_the_start() -> None:
    job = build_job(120, 73, Overhead(base_s=2.0, start_s=10.0))
    assert alone_cost(job, 0.0) == 2 * (2 + 10 + 60)


def test_the_last_arrivals_are_remembered_and_those_without_a_chance_are_not() -> None:
    first = remember({}, [(1.0, 5.0, 9.0), (2.0, inf, 9.0)])
    assert first == [[1.0, 5.0, 9.0]]
    many = remember({HISTORY: first}, [(float(at_s), 1.0, 9.0) for at_s in range(REMEMBERED)])
    assert len(many) == REMEMBERED
    assert many[-1] == [REMEMBERED - 1.0, 1.0, 9.0]


def ask(history: list[list[float]], promised: float = 100.0) -> Demand:
    """The demand on 10 devices with a promise for 100 s of so much work, seen at NOW_S."""
    table = new_table(NOW_S, World(parse_cluster("1x10:cpu")).snapshot())
    curve = Curve((1, 10), (1.0, 10.0))
    job = Job(JobId("promised"), 0, NOW_S, promised, curve, NOW_S + 100)
    table.add(JobView(job, Progress(promised, since_s=NOW_S)))
    return survey(table, history)


def arrivals(count: int, cost: float, given_s: float = 20.0) -> list[list[float]]:
    """So many arrivals of this cost, spread over the last 100 s, each with so much time."""
    return [[NOW_S - 100 + 100 * position / count, cost, given_s] for position in range(count)]


def test_the_promise_of_a_dear_job_waits_where_cheaper_ones_are_likely_to_come() -> None:
    busy = ask(arrivals(50, 40.0), promised=800.0)
    assert busy.advises_waiting(NOW_S + 100, 100.0)
    assert not busy.advises_waiting(NOW_S + 100, 39.0)  # nothing cheaper was seen


def test_no_promise_waits_for_cheaper_jobs_that_have_time() -> None:
    assert not ask(arrivals(50, 40.0, given_s=20_000.0), promised=800.0).advises_waiting(NOW_S + 100, 100.0)


def test_no_promise_waits_where_the_past_says_little_or_nothing_cheaper_came() -> None:
    assert not ask([], promised=900.0).advises_waiting(NOW_S + 100, 100.0)
    assert not ask(arrivals(FEW - 1, 50.0), promised=800.0).advises_waiting(NOW_S + 100, 100.0)
    assert ask(arrivals(FEW, 50.0), promised=800.0).advises_waiting(NOW_S + 100, 100.0)
    assert not ask(arrivals(50, 1000.0), promised=900.0).advises_waiting(NOW_S + 100, 100.0)


def test_no_promise_waits_while_little_is_promised_and_little_is_to_come() -> None:
    demand = ask(arrivals(10, 10.0), promised=10.0)
    assert demand.is_calm(NOW_S + 100, 50.0)
    assert not demand.advises_waiting(NOW_S + 100, 50.0)
    assert not demand.is_calm(NOW_S + 100, 500.0)
    assert not ask(arrivals(50, 40.0), promised=10.0).is_calm(NOW_S + 100, 50.0)


def test_a_job_is_declined_for_others_to_come_only_where_they_need_nearly_all() -> None:
    assert not ask(arrivals(10, 10.0), promised=600.0).advises_declining(NOW_S + 100, 100.0)
    assert ask(arrivals(30, 10.0), promised=600.0).advises_declining(NOW_S + 100, 100.0)
    assert not ask(arrivals(30, 10.0), promised=600.0).advises_declining(NOW_S + 100, 9.0)
    assert not ask(arrivals(50, 40.0), promised=10.0).advises_declining(NOW_S + 100, 50.0)  # little is promised
