"""What could be met if nothing had to be promised: the price of promising, measured; no substitute for `springtide`.

No job is ever told a finish. At every event the jobs are planned by deadline; when one cannot be in time, the costliest
of those planned so far is dropped (Moore and Hodgson's rule) and stays a candidate for later, with the progress it has.
Its deadlines are met without a promise and are counted apart.
"""

from math import inf

import numpy as np

from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.jobs import JobId
from springtide.policies.elasticflow import BEST_EFFORT, decline, decline_size, warm_up
from springtide.policies.planning import filling
from springtide.policies.planning.plan_table import PlanTable, new_table

__all__ = ["springtide_flexible", "warm_up"]

UNPROMISED = Answer(Status.WAITLISTED, "unpromised", "runs while it may still be in time; nothing is promised")


def springtide_flexible(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs the set of jobs that meets the most deadlines as far as is known now, and revises it at every event."""
    table = new_table(now_s, snapshot)
    answers: dict[JobId, Answer] = {}
    for job_id, view in snapshot.jobs.items():
        answer = judge(table, view)
        if answer.status is not Status.DECLINED:
            table.add(view)
        if answer.status is Status.DECLINED or view.status is Status.PENDING:
            answers[job_id] = answer
    rows = np.fromiter(table.rows.values(), np.int64, len(table.rows))
    order = rows[np.lexsort((rows, table.columns.deadline[rows]))]
    capacity = filling.empty_capacity(len(table.columns.deadline), now_s, table.devices)
    kept = filling.select(capacity, table.columns, order, np.zeros(len(order), np.int64), now_s, len(order))
    filling.restore(capacity, table.columns, kept, table.trial)
    filling.grow(capacity, table.columns, kept, int(capacity.free[0]), 1.0, table.trial)
    return compose(table, snapshot, answers, set(kept.tolist()))


def judge(table: PlanTable, view: JobView) -> Answer:
    """Whether a job can still be in time alone, whatever the others do."""
    job = view.job
    if job.curve.shares[0] > table.devices:
        return decline_size(view, table.devices)
    if job.best_effort:
        return BEST_EFFORT
    left = view.progress.work_left_at(table.now_s)
    soonest_s = min(
        (max(view.progress.paused_until_s - table.now_s, 0.0) if share == view.share else job.overhead.pause_s(share))
        + left / job.curve.rate(share)
        for share in job.curve.levels
    )
    return decline(view, table) if table.now_s + soonest_s > job.deadline_s + 1e-6 else UNPROMISED


def given_up(answer: Answer, view: JobView) -> bool:
    """Whether a running job is dropped for good: a move may have cost it the time it needed."""
    return answer.status is Status.DECLINED and view.share > 0


def compose(table: PlanTable, snapshot: Snapshot, answers: dict[JobId, Answer], kept: set[int]) -> Decision:
    """The shares of now as a difference, and when the plans change next; a job that is given up leaves its devices."""
    shares = {job_id: 0 for job_id, answer in answers.items() if given_up(answer, snapshot.jobs[job_id])}
    rows = np.fromiter(table.rows.values(), np.int64, len(table.rows))
    wanted = filling.shares_now(table.columns, rows, table.now_s).tolist()
    for job_id, row, share in zip(table.rows, rows.tolist(), wanted, strict=True):
        due = share if row in kept else 0
        if due != table.views[job_id].share:
            shares[job_id] = due
    wake_at_s = filling.look_ahead(table.columns, rows, table.now_s)[0]
    return Decision(answers=answers, shares=shares, wake_at_s=wake_at_s if wake_at_s > table.now_s else inf)
