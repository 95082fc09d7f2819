"""Our own policy: ElasticFlow's promises, and a third answer for jobs that cannot be promised yet: waitlisted.

A waitlisted job is told by when its answer comes: never later than its latest start alone. Until then it is planned
beside the promises whenever something changes, so that the most deadlines are met, and runs on devices that no promise
needs; what it has done counts when it is answered. Costly jobs wait for their promise while cheaper ones are likely to
need the devices (`planning.forecast`), and on a busy cluster no job is promised before a device is free for it. A
declined job gets counter-offers: the earliest deadline that could be promised, and the most work that fits its own.
Promises are never revoked, and no job is rescaled for a gain below its cost.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.jobs import JobId
from springtide.policies.elasticflow import BEST_EFFORT, PROMISED, decline, decline_size, list_best_effort, warm_up
from springtide.policies.planning import filling
from springtide.policies.planning.admission import decide_firmly
from springtide.policies.planning.best_effort import USAGE, read_usage
from springtide.policies.planning.drafts import Caution, Draft
from springtide.policies.planning.forecast import HISTORY, Arrivals, Demand, alone_cost, remember, survey
from springtide.policies.planning.open_answers import Outlook, plan_candidates, read_outlooks
from springtide.policies.planning.plan_table import PlanTable, is_at_rest, keep_resting
from springtide.policies.pools.joining import decide_pools
from springtide.policies.pools.partition import is_mixed

FEW_WAIT = 64  # jobs that wait up to which promised ones are planned again for them at every change
PATIENCE = 1.0  # a job grows only if it ends earlier by more than one pause beyond the pause itself

NO_ROOM = Answer(
    Status.WAITLISTED, "no_room_yet", "no room beside the promises already made; tried again whenever something changes"
)
HELD = Answer(
    Status.WAITLISTED, "cheaper_jobs_likely", "cheaper jobs are likely to need the devices; tried again at every change"
)
EARLY = Answer(
    Status.WAITLISTED, "no_device_yet", "there is room later; promised when a device is free, unless cheaper jobs come"
)

__all__ = ["springtide", "warm_up"]


class Candidate(NamedTuple):
    """A job without an answer, cheapest first, then in arrival order."""

    cost: float
    arrival: int
    view: JobView
    last_s: float  # when it must be answered
    outlook: Outlook


def springtide(now_s: float, snapshot: Snapshot) -> Decision:
    """Promises the jobs that fit, keeps the others waiting until their latest start, declines with offers."""
    if is_mixed(snapshot):
        return decide_pools(now_s, snapshot, propose)
    counts = USAGE in snapshot.memory and snapshot.changes.finished  # who has ended holds nothing from now on
    if not counts and is_at_rest(now_s, snapshot):
        return Decision(cache=keep_resting(snapshot))
    return decide_firmly(now_s, snapshot, propose)


def propose(table: PlanTable, snapshot: Snapshot, caution: Caution) -> Draft:
    """Answers for newcomers and for waitlisted jobs, with the plans of those admitted in the plan table."""
    draft = Draft(best_effort=list_best_effort(table), by_size=True, patience=PATIENCE)
    keep_usage(table, snapshot, draft)
    views = list_candidates(table, draft)
    if not views:
        return draft
    draft.tentative = {view.job.id: view for view in views}
    table.add_all(views)
    kept = plan_candidates(table, draft.tentative, may_replan=caution.admits and are_worth_replanning(table, views))
    arrivals = list_arrivals(table, views)
    past = remember(snapshot.memory, arrivals)
    answer_candidates(table, draft, rank_candidates(table, views), kept if caution.admits else (), past)
    if arrivals:
        draft.memory = {**snapshot.memory, HISTORY: past}
    return draft


def keep_usage(table: PlanTable, snapshot: Snapshot, draft: Draft) -> None:
    """Count what each user holds, where best-effort jobs of several share the cluster."""
    if draft.best_effort or USAGE in snapshot.memory:
        draft.usage = read_usage(snapshot.memory, table.now_s, snapshot.jobs.values())


def list_candidates(table: PlanTable, draft: Draft) -> list[JobView]:
    """The jobs with a deadline that wait for an answer; the others are answered in the draft."""
    views = []
    for job_id, view in table.roster.waiting.items():
        if view.job.curve.shares[0] > table.devices:
            draft.answers[job_id] = decline_size(view, table.devices)
        elif view.job.best_effort:
            draft.answers[job_id] = BEST_EFFORT
        else:
            views.append(view)
    return views


def are_worth_replanning(table: PlanTable, views: Sequence[JobView]) -> bool:
    """Whether promised jobs are planned again for these if need be: they are few, or one came or is answered now.

    Where many wait, each end of a job lets others begin beside the promises, and somebody comes before long.
    """
    if len(views) <= FEW_WAIT:
        return True
    return any(view.status is Status.PENDING or view.answer_by_s <= table.now_s for view in views)


def list_arrivals(table: PlanTable, views: Iterable[JobView]) -> list[tuple[float, float, float]]:
    """(submitted, cost, seconds to the deadline) of the newcomers."""
    new = [view.job for view in views if view.status is Status.PENDING]
    return [(job.submit_s, alone_cost(job, table.now_s, table.devices), job.deadline_s - job.submit_s) for job in new]


def rank_candidates(table: PlanTable, views: Sequence[JobView]) -> list[Candidate]:
    """The candidates by what they still cost, cheapest first."""
    rows = np.array([table.rows[view.job.id] for view in views], np.int64)
    ranked = []
    for view, outlook in zip(views, read_outlooks(table, rows), strict=True):
        last_s = view.answer_by_s if view.answer_by_s < inf else view.job.deadline_s - view.job.alone_s(table.devices)
        ranked.append(Candidate(outlook.cost, view.job.index, view, last_s, outlook))
    ranked.sort(key=itemgetter(0, 1))
    return ranked


def answer_candidates(
    table: PlanTable, draft: Draft, candidates: Sequence[Candidate], able: Container[JobId], past: Arrivals
) -> None:
    """Promise what had better not wait, cheapest first; let others wait, those excepted for whom it is too late."""
    demand = survey(table, past, draft.tentative)
    for candidate in candidates:
        job_id = candidate.view.job.id
        reason = find_reason_to_wait(table, candidate, demand) if job_id in able else NO_ROOM
        if reason is None:
            draft.answers[job_id] = PROMISED
            del draft.tentative[job_id]
            if candidate is not candidates[-1]:  # mostly one job comes at a time, and nobody asks after it
                demand = demand.with_promise(candidate.view.job.deadline_s, candidate.cost)
        else:
            keep_waiting(table, draft, candidate, reason)


def find_reason_to_wait(table: PlanTable, candidate: Candidate, demand: Demand) -> Answer | None:
    """Why a job that has a plan is better not promised yet; None if it is promised."""
    asked = candidate.view.job.deadline_s, candidate.cost
    if candidate.last_s <= table.now_s:
        return HELD if demand.advises_declining(*asked) else None
    if demand.is_calm(*asked) or candidate.outlook.last_chance_s <= table.now_s:
        return None
    starts = candidate.outlook.starts
    if not starts and candidate.view.status is Status.WAITLISTED:
        return EARLY  # it has been told why it waits
    if demand.advises_waiting(*asked):
        return HELD
    return None if starts else EARLY


def keep_waiting(table: PlanTable, draft: Draft, candidate: Candidate, reason: Answer) -> None:
    """Let a job wait until its latest start alone; decline it if that has come."""
    view = candidate.view
    if candidate.last_s <= table.now_s:
        draft.answers[view.job.id] = refuse(table, draft, view)
        return
    draft.wake_at_s = min(draft.wake_at_s, candidate.last_s)
    if view.status is Status.PENDING:
        draft.answers[view.job.id] = replace(reason, answer_by_s=candidate.last_s)


def refuse(table: PlanTable, draft: Draft, view: JobView) -> Answer:
    """A refusal; the offers that go with it are made once it is clear what all others do."""
    row, columns = table.rows[view.job.id], table.columns
    filling.occupy(table.capacity, columns, row, -1)  # its plan, if it has one
    columns.segment_count[row] = columns.level_count[row] = 0  # it leaves what it holds, and does not grow
    draft.refused.append(view)
    return decline(view, table)
