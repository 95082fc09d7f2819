"""Our own policy: ElasticFlow's promises, and a third answer for jobs that cannot be promised yet: waitlisted.

A waitlisted job is told by when its answer comes: never later than its latest start alone. Until then it holds no
devices and is tried again whenever something changes, cheapest first, so that the most deadlines are met; costly jobs
wait while cheaper ones are likely to need the devices (`planning.forecast`), and on a busy cluster no job is promised
before a device is free for it. A declined job gets counter-offers: the earliest deadline that could be promised, and
the most work that fits its own. Promises are never revoked, and no job is rescaled for a gain below its cost.
"""

from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from springtide.core.decisions import Answer, Decision, JobView, Offer, Snapshot, Status
from springtide.core.jobs import JobId
from springtide.policies.elasticflow import BEST_EFFORT, PROMISED, decline, decline_size, list_best_effort, warm_up
from springtide.policies.planning import filling
from springtide.policies.planning.admission import OPEN, Caution, Draft, admit, decide_firmly
from springtide.policies.planning.forecast import Demand, Past, alone_cost, remember, survey
from springtide.policies.planning.plan_table import PlanTable, is_at_rest
from springtide.policies.pools.joining import decide_pools
from springtide.policies.pools.partition import is_mixed

PATIENCE = 1.0  # a job grows only if it ends earlier by more than one pause beyond the pause itself
TRIES = 5  # failed plans of jobs that could still wait, per decision

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


def springtide(now_s: float, snapshot: Snapshot) -> Decision:
    """Promises the jobs that fit, keeps the others waiting until their latest start, declines with offers."""
    if is_mixed(snapshot):
        return decide_pools(now_s, snapshot, propose)
    if is_at_rest(now_s, snapshot):
        return Decision(cache=snapshot.cache)
    return decide_firmly(now_s, snapshot, propose)


def propose(table: PlanTable, snapshot: Snapshot, caution: Caution) -> Draft:
    """Answers for newcomers and for waitlisted jobs, with the plans of those admitted in the plan table."""
    draft = Draft(best_effort=list_best_effort(snapshot), patience=PATIENCE)
    candidates = list_candidates(snapshot, table, draft)
    new = [(c.view.job, c.cost) for c in candidates if c.view.status is Status.PENDING]
    arrivals = [(job.submit_s, cost, job.deadline_s - job.submit_s) for job, cost in new]
    past = remember(snapshot.memory, arrivals)
    feasible = [candidate for candidate in candidates if candidate.cost < inf]
    waiting = consider(table, draft, feasible, past) if caution in OPEN else {}
    for candidate in candidates:
        if candidate.view.job.id not in draft.answers:
            keep_waiting(table, draft, candidate, waiting.get(candidate.view.job.id, NO_ROOM))
    early = [job_id for job_id, reason in waiting.items() if reason is EARLY]
    draft.wake_at_s = min(draft.wake_at_s, release(table, early))
    refusals = sum(answer.crowded for answer in draft.answers.values())
    if arrivals or refusals:
        draft.memory = past.write(snapshot.memory, refusals)
    return draft


def list_candidates(snapshot: Snapshot, table: PlanTable, draft: Draft) -> list[Candidate]:
    """The jobs with a deadline that wait for an answer; the others are answered in the draft."""
    candidates = []
    for job_id, view in snapshot.jobs.items():
        if view.status is not Status.PENDING and view.status is not Status.WAITLISTED:
            continue
        job = view.job
        if job.curve.shares[0] > table.devices:
            draft.answers[job_id] = decline_size(view, table.devices)
        elif job.best_effort:
            draft.answers[job_id] = BEST_EFFORT
        else:
            last_s = view.answer_by_s if view.answer_by_s < inf else job.deadline_s - job.alone_s(table.devices)
            candidates.append(Candidate(alone_cost(job, table.now_s, table.devices), job.index, view, last_s))
    candidates.sort(key=lambda candidate: candidate[:2])
    return candidates


def consider(table: PlanTable, draft: Draft, candidates: list[Candidate], past: Past) -> dict[JobId, Answer]:
    """Promise what fits and had better not wait, cheapest first; returns who had better wait, and why.

    Those that are only early stay planned beside costlier ones in this decision (until `release`), but no device is
    bound before one of them needs it: a cheaper job may come first.
    """
    demand: Demand | None = None
    failures = 0
    waiting: dict[JobId, Answer] = {}
    for candidate in candidates:
        view = candidate.view
        is_due = candidate.last_s <= table.now_s
        if failures >= TRIES and not is_due and view.status is Status.WAITLISTED:
            continue
        if demand is None:
            demand = survey(table, past)
        asked = view.job.deadline_s, candidate.cost
        if demand.advises_waiting(*asked, idle=int(table.capacity.free[0])):
            waiting[view.job.id] = HELD
            continue
        if not admit(table, view):
            failures += 1
        elif is_due or demand.is_calm(*asked) or starts_now(table, view):
            draft.answers[view.job.id] = PROMISED
            demand = None
        else:
            waiting[view.job.id] = EARLY
    return waiting


def starts_now(table: PlanTable, view: JobView) -> bool:
    """Whether the plan of a job holds devices from now on."""
    return bool(filling.share_now(table.columns, table.rows[view.job.id], table.now_s) > 0)


def release(table: PlanTable, early: list[JobId]) -> float:
    """Take the plans of jobs that wait out of the plan table; returns when the first of them would start."""
    if not early:
        return inf
    rows = np.array([table.rows[job_id] for job_id in early], np.int64)
    start_s, _ = filling.look_ahead(table.columns, rows, table.now_s)
    for job_id in early:
        filling.occupy(table.capacity, table.columns, table.rows[job_id], -1)
        table.drop(job_id)
    return start_s


def keep_waiting(table: PlanTable, draft: Draft, candidate: Candidate, reason: Answer) -> None:
    """Let a job wait until its latest start alone; decline it if that has come."""
    view = candidate.view
    if candidate.cost == inf or candidate.last_s <= table.now_s:
        draft.answers[view.job.id] = decline_with_offers(table, view)
        return
    draft.wake_at_s = min(draft.wake_at_s, candidate.last_s)
    if view.status is Status.PENDING:
        draft.answers[view.job.id] = replace(reason, answer_by_s=candidate.last_s)


def decline_with_offers(table: PlanTable, view: JobView) -> Answer:
    """A refusal with what would be accepted: all of the work later, or less of it by the deadline."""
    row = table.add(view)
    offers = []
    earliest_s = float(filling.earliest_end(table.capacity, table.columns, row))
    if earliest_s < inf:
        offers.append(Offer(earliest_s, view.job.work))
    work = float(filling.largest_work(table.capacity, table.columns, row))
    if work > 0:
        offers.append(Offer(view.job.deadline_s, work))
    table.drop(view.job.id)
    return replace(decline(view, table), offers=tuple(offers))
