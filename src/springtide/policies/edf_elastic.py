"""Earliest deadline first with elastic shares: `elasticflow` without admission, the ablation of its Fig 9.

At every event all jobs are planned anew in order of deadlines, each at the smallest level that is in time on what the
more urgent ones leave (progressive filling, pauses included); devices left over go to the job whose device-seconds
grow least. Nobody is declined. Done better than in the ElasticFlow artifact: a job for which no level is in time
gives way to all that can be, instead of taking the highest share in its place; it is planned behind them as if it had
no deadline, and is tried again at the next event.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import answer_arrivals, remaining_views, smallest_share
from springtide.policies.elasticflow import warm_up
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Capacity, JobColumns
from springtide.policies.planning.plan_table import write_job

__all__ = ["edf_elastic", "warm_up"]


def edf_elastic(now_s: float, snapshot: Snapshot) -> Decision:
    """Gives every job its minimum share by deadline, and what is left where it costs least."""
    answers = answer_arrivals(snapshot, smallest_share)
    views = sorted(remaining_views(snapshot, answers), key=lambda view: (view.job.deadline_s, view.job.index))
    if not views:
        return Decision(answers=answers)
    columns = enroll(now_s, views)
    capacity = filling.empty_capacity(len(views), now_s, snapshot.cluster.total)
    rows = np.arange(len(views))
    plan_all(capacity, columns)
    needed = filling.shares_now(columns, rows, now_s).tolist()
    trial = filling.empty_columns(1, columns.shares.shape[1])
    filling.grow(capacity, columns, rows, int(capacity.free[0]), 0.0, trial)
    wanted = filling.shares_now(columns, rows, now_s).tolist()
    return Decision(
        answers=answers,
        shares={view.job.id: share for view, share in zip(views, wanted, strict=True) if share != view.share},
        optional=find_grown(views, needed, wanted),
        wake_at_s=filling.look_ahead(columns, rows, now_s)[0],
    )


def enroll(now_s: float, views: Sequence[JobView]) -> JobColumns:
    """The jobs as columns, without plans."""
    columns = filling.empty_columns(len(views), max(len(view.job.curve.levels) for view in views))
    for row, view in enumerate(views):
        write_job(columns, row, view.job)
        columns.work[row] = view.progress.work_left_at(now_s)
        columns.ready[row], columns.share[row] = view.progress.paused_until_s, view.share
    return columns


def plan_all(capacity: Capacity, columns: JobColumns) -> None:
    """Plan jobs in the order of the rows, then those that cannot be in time or have no deadline on what is left.

    Their deadlines in the columns become infinite.
    """
    behind = []
    for row in range(len(columns.deadline)):
        if columns.deadline[row] == inf or not plan(capacity, columns, row):
            behind.append(row)
    for row in behind:
        columns.deadline[row] = inf
        plan(capacity, columns, row)


def plan(capacity: Capacity, columns: JobColumns, row: int) -> bool:
    """Plan a job at the smallest level that is in time; says whether there is one."""
    found = bool(filling.fill(capacity, columns, row, 0))
    if found:
        filling.occupy(capacity, columns, row, 1)
    return found


def find_grown(views: Sequence[JobView], needed: Sequence[int], wanted: Sequence[int]) -> frozenset[JobId]:
    """The jobs that would grow although they hold what their plan needs: not worth moving another for it."""
    return frozenset(
        view.job.id for view, least, share in zip(views, needed, wanted, strict=True) if least <= view.share < share
    )
