from math import nextafter

import pytest

from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Plan, Progress, Segment
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.core.world import World
from springtide.policies.planning.open_answers import LAST_S, next_change_s
from springtide.policies.planning.plan_table import PlanTable, new_table, write_plan

NOW_S = 63917.22609455434
JOB = Job(JobId("waits"), 0, 0.0, 100.0, Curve((1,), (1.0,)), NOW_S + 100)


def plan_until(finish_s: float) -> PlanTable:
    """A table whose one job runs from now to an instant, without a promise."""
    table = new_table(NOW_S, World(parse_cluster("1x1:cpu")).snapshot())
    row = table.add(JobView(JOB, Progress(100.0, since_s=NOW_S)))
    write_plan(table.columns, row, Plan((Segment(NOW_S, 1),), finish_s, finish_s))
    return table


@pytest.mark.parametrize(
    ("finish_s", "again_s"),
    [
        (NOW_S + 50, NOW_S + 50 - LAST_S),  # shortly before its end
        (NOW_S + 1, NOW_S + 0.5),  # not before halfway to it
    ],
)
def test_a_job_that_runs_while_it_waits_is_looked_at_before_it_ends(finish_s: float, again_s: float) -> None:
    assert next_change_s(plan_until(finish_s), [JOB.id]) == pytest.approx(again_s, rel=1e-12)


@pytest.mark.parametrize("finish_s", [nextafter(NOW_S, NOW_S + 1), NOW_S, NOW_S - 1e-9])
def test_nobody_asks_to_be_woken_now_for_a_job_that_ends_now(finish_s: float) -> None:
    """Halfway to an end that is one rounding away is now itself, and a policy may not be woken then."""
    assert next_change_s(plan_until(finish_s), [JOB.id]) > NOW_S
