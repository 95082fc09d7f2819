"""Open offers as entries of a Snapshot: devices reserved for what a declined job may still accept.

A reservation is a plan that begins when the offer expires (its `answer_by_s`), so it needs nothing before it is a
promise or gone, and best-effort work runs on. It is fixed: newcomers and re-planning find the devices taken. An offer
that is accepted becomes an admitted job with that plan, which may then start earlier. The simulator makes no offers.
"""

from math import inf

from springtide.core.decisions import JobView, Plan, Promise, Segment
from springtide.core.jobs import JobId
from springtide.policies.planning import filling
from springtide.policies.planning.filling import GUARD_S
from springtide.policies.planning.plan_table import PlanTable, occupy_plan


def reserve(table: PlanTable) -> dict[JobId, Promise]:
    """A reservation for each open offer that has none yet, on what the promises leave free; absent where none fits."""
    reserved = {}
    for job_id, view in table.roster.offered.items():
        if view.promise is not None:
            continue
        promise = plan_after(table, view, view.answer_by_s)
        if promise is not None:
            occupy_plan(table, table.capacity, promise.plan, 1)
            reserved[job_id] = promise
    return reserved


def plan_after(table: PlanTable, view: JobView, start_s: float) -> Promise | None:
    """A plan that begins at `start_s` and ends by the job's deadline, or by the earliest later one."""
    row = table.add(view)
    before = Plan((Segment(table.now_s, table.devices),), start_s, start_s)
    occupy_plan(table, table.capacity, before, 1)
    deadline_s = view.job.deadline_s
    fits = filling.fill(table.capacity, table.columns, row, 0)
    if not fits:
        deadline_s = float(filling.earliest_end(table.capacity, table.columns, row)) + GUARD_S
        table.columns.deadline[row] = deadline_s
        fits = deadline_s < inf and filling.fill(table.capacity, table.columns, row, 0)
    plan = table.plan(row) if fits else None
    occupy_plan(table, table.capacity, before, -1)
    table.drop(view.job.id)
    return None if plan is None else Promise(deadline_s, plan)
