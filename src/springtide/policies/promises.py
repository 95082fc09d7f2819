"""From plans to a Decision that keeps every promise, devices and pauses included.

The plans in force are the certificate of the promises: they are feasible together, and placement can follow them
(`placement.rehearsal`). A proposal may replace them only by plans that are such a certificate again. If one cannot be
placed, growth and admission are left out; what remains is the old certificate, or all promises planned afresh.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import inf
from typing import Any, TypeAlias

import numpy as np

from springtide.core.decisions import Answer, Decision, JobView, Plan, Promise, Snapshot
from springtide.core.jobs import JobId
from springtide.placement.buddy import Placement, arrange
from springtide.placement.rehearsal import rehearse
from springtide.policies import filling
from springtide.policies.filling import Ints
from springtide.policies.ledgers import Ledger, active_rows, copy_plans, copy_roster, free_capacity, open_ledger
from springtide.policies.offers import reserve

THRIFT = 1.2  # a plan on what is left may cost this many times what the job needs alone before all are planned again
ORDERS = 3  # orders in which all jobs are planned again before a newcomer is turned away


class Caution(IntEnum):
    """How much a proposal may change: each step leaves out what may have made the one before impossible to place."""

    GROW = 0  # admit newcomers and hand out spare devices
    CLOSED = 1  # only follow the plans in force
    AFRESH = 2  # admit no one, and look for other plans
    UNREHEARSED = 3  # follow the plans in force although they do not pass a rehearsal: a job ended early in between
    ANYHOW = 4  # follow the plans in force, whoever must be moved


@dataclass(slots=True)
class Draft:
    """What a policy wants to say beside the plans in the ledger."""

    answers: dict[JobId, Answer] = field(default_factory=dict)
    best_effort: list[JobView] = field(default_factory=list)
    wake_at_s: float = inf
    memory: dict[str, Any] | None = None
    patience: float = 0.0  # a job grows only if it then ends earlier by more than this many pauses


OPEN = (Caution.GROW,)  # the steps at which newcomers may be admitted: never without a rehearsal

Propose: TypeAlias = Callable[[Ledger, Snapshot, Caution], Draft]


def decide_firmly(now_s: float, snapshot: Snapshot, propose: Propose) -> Decision:
    """The boldest decision among what is proposed that keeps every promise on real devices."""
    for caution in Caution:
        ledger = open_ledger(now_s, snapshot)
        draft = propose(ledger, snapshot, caution)
        if caution is Caution.AFRESH and not replan(ledger):
            continue
        reserved = reserve(ledger, snapshot)
        decision = conclude(ledger, snapshot, draft, caution)
        if decision is not None:
            return replace(decision, promises={**decision.promises, **reserved}) if reserved else decision
    raise AssertionError("plans are followed anyhow")


def admit(ledger: Ledger, view: JobView) -> bool:
    """Plan a newcomer beside the promised jobs, planning all of them again if that is what it takes.

    Without room it leaves no trace. First on what the plans in force leave free; if that does not do, or would cost
    much more than the job needs, all jobs are planned in order of deadlines (ElasticFlow's admission, for one job).
    """
    row = ledger.add(view)
    fits = filling.fill_thriftily(ledger.capacity, ledger.roster, row, THRIFT)
    if fits == 2 or replan(ledger):
        return True
    if fits:
        filling.occupy(ledger.capacity, ledger.roster, row, 1)
        return True
    ledger.drop(view.job.id)
    return False


def replan(ledger: Ledger) -> bool:
    """Plan all jobs anew by deadline, or change nothing if one of them would be late.

    Filling by deadline is greedy: a job that finds no room may find it when it goes first, and the others still fit.
    """
    rows = active_rows(ledger)
    order = rows[np.argsort(ledger.roster.deadline[rows], kind="stable")]
    kept = copy_roster(ledger.roster)
    for _ in range(ORDERS):
        capacity = free_capacity(ledger)
        planned = filling.fill_all(capacity, ledger.roster, order)
        if planned == len(order):
            ledger.capacity = capacity
            filling.restore(capacity, ledger.roster, rows, ledger.trial)
            return True
        order = np.concatenate([order[planned : planned + 1], order[:planned], order[planned + 1 :]])
    ledger.roster = kept
    return False


def conclude(ledger: Ledger, snapshot: Snapshot, draft: Draft, caution: Caution) -> Decision | None:
    """The ledger as a Decision on named devices; None if placement could not keep all its promises.

    Spare devices go to one device per best-effort job in order, then to whom they cost the fewest device-seconds.
    """
    promised = active_rows(ledger)
    if caution is Caution.GROW:
        _make_way(ledger, promised, draft.best_effort)
    guests = {view.job.id: _add_guest(ledger, view) for view in draft.best_effort}
    rows = active_rows(ledger)
    if guests:
        filling.restore(ledger.capacity, ledger.roster, rows[len(promised) :], ledger.trial)
    needed = ledger.roster
    spare = int(ledger.capacity.free[0]) if caution is Caution.GROW else 0
    if spare > 0 and len(rows):
        needed = copy_plans(ledger.roster)
        filling.grow(ledger.capacity, ledger.roster, rows, spare, draft.patience, ledger.trial)
    names = [*ledger.rows]
    decision, placement = _place(ledger, snapshot, draft, needed, names, rows)
    for job_id in guests:
        ledger.drop(job_id)
    final = _settle_moves(ledger, placement, decision)
    change_s, grows = filling.look_ahead(ledger.roster, promised, ledger.now_s)
    rehearses = grows and caution is not Caution.UNREHEARSED
    if caution is not Caution.ANYHOW and (
        placement.forced or final is None or (rehearses and not _is_certified(ledger, snapshot, placement, final))
    ):
        return None
    final = final or _postpone(ledger, placement, decision)
    wake_at_s = min(draft.wake_at_s, change_s)
    return replace(final, allocations=placement.allocations, wake_at_s=wake_at_s, memory=draft.memory, cache=ledger)


def _make_way(ledger: Ledger, promised: Ints, guests: Iterable[JobView]) -> None:
    """Take promised jobs back to the share they need, most time to spare first, until each best-effort job has room."""
    wanted = sum(view.job.curve.levels[0] for view in guests)
    if ledger.capacity.free[0] >= wanted:
        return
    roster = ledger.roster
    for row in promised[np.argsort(roster.finish[promised] - roster.deadline[promised], kind="stable")]:
        if ledger.capacity.free[0] >= wanted:
            break
        filling.shrink(ledger.capacity, roster, row, ledger.trial)


def _add_guest(ledger: Ledger, view: JobView) -> int:
    """A row for a best-effort job, planned on what is left at the least share."""
    row = ledger.add(view)
    filling.fill(ledger.capacity, ledger.roster, row, 0)
    filling.occupy(ledger.capacity, ledger.roster, row, 1)
    return row


def _place(
    ledger: Ledger, snapshot: Snapshot, draft: Draft, needed: filling.Roster, names: list[JobId], rows: Ints
) -> tuple[Decision, Placement]:
    """The shares of now and their devices, without the growth that would need a move."""
    while True:
        decision = _compose(ledger, draft, needed, names, rows)
        placement = arrange(ledger.now_s, snapshot, decision)
        if not placement.skipped:
            return decision, placement
        for job_id in placement.skipped:
            _take_back(ledger, needed, ledger.rows[job_id])


def _take_back(ledger: Ledger, needed: filling.Roster, row: int) -> None:
    """Return a job to the plan it needs."""
    filling.occupy(ledger.capacity, ledger.roster, row, -1)
    filling.store(
        ledger.roster,
        row,
        needed.finish[row],
        needed.held[row],
        needed.segment_count[row],
        needed.segment_times[row],
        needed.segment_shares[row],
    )
    filling.occupy(ledger.capacity, ledger.roster, row, 1)


def _compose(ledger: Ledger, draft: Draft, needed: filling.Roster, names: list[JobId], rows: Ints) -> Decision:
    """The shares of now as a difference; what goes beyond the needed share is optional."""
    now_s = ledger.now_s
    wanted = _within(ledger, rows, filling.shares_now(ledger.roster, rows, now_s).tolist())
    held = ledger.roster.share[rows].tolist()
    shares = {name: share for name, share, had in zip(names, wanted, held, strict=True) if share != had}
    optional: frozenset[JobId] = frozenset()
    if shares and needed is not ledger.roster:
        least = filling.shares_now(needed, rows, now_s).tolist()
        optional = frozenset(
            [name for name, share, floor in zip(names, wanted, least, strict=True) if share > floor and name in shares]
        )
    return Decision(
        answers=draft.answers,
        promises=_changed_promises(ledger, names, rows),
        shares=shares,
        optional=optional,
    )


def _within(ledger: Ledger, rows: Ints, shares: list[int]) -> list[int]:
    """Shares that the cluster has: those with the most time to spare wait where a job still runs longer than planned.

    That happens only after a move that no reserve covered.
    """
    excess = sum(shares) - ledger.devices
    if excess <= 0:
        return shares
    slack = ledger.roster.deadline[rows] - ledger.roster.finish[rows]
    for position in np.argsort(-slack, kind="stable").tolist():
        held = int(ledger.roster.share[rows[position]])
        if excess > 0 and shares[position] > held:
            excess -= shares[position] - held
            shares[position] = held
    return shares


def _changed_promises(ledger: Ledger, names: Iterable[JobId], rows: Ints) -> dict[JobId, Promise]:
    """The promises whose plan is not the one in force."""
    promises = {}
    for name, row, touched in zip(names, rows.tolist(), ledger.roster.touched[rows].tolist(), strict=True):
        if not touched or ledger.views[name].job.best_effort:
            continue
        view = ledger.views[name]
        promise = view.promise
        if promise is None or not _is_same(ledger.roster, row, promise.plan):
            promises[name] = Promise(view.job.deadline_s, ledger.plan(row))
    return promises


def _is_same(roster: filling.Roster, row: int, plan: Plan) -> bool:
    """Whether a row still holds this plan; equal ends are not enough, a middle segment may have been shifted."""
    return bool(
        roster.finish[row] == plan.finish_s
        and roster.held[row] == plan.held_until_s
        and roster.segment_count[row] == len(plan.segments)
        and all(
            roster.segment_times[row, position] == segment.start_s
            and roster.segment_shares[row, position] == segment.share
            for position, segment in enumerate(plan.segments)
        )
    )


def _settle_moves(ledger: Ledger, placement: Placement, decision: Decision) -> Decision | None:
    """The decision with the pauses of moved jobs in their plans; None if one of them would then be late."""
    moved = [job_id for job_id in placement.moved if job_id in ledger.rows]
    if not moved:
        return decision
    promises = dict(decision.promises)
    for job_id in moved:
        row, view = ledger.rows[job_id], ledger.views[job_id]
        ready_s = ledger.roster.ready[row]
        ledger.roster.ready[row] = view.job.overhead.resumes_s(ledger.now_s, view.share, False, ready_s)
        if not filling.replan_paused(ledger.capacity, ledger.roster, row):
            return None
        promises[job_id] = Promise(view.job.deadline_s, ledger.plan(row))
    return replace(decision, promises=promises)


def _postpone(ledger: Ledger, placement: Placement, decision: Decision) -> Decision:
    """The decision with the plans of moved jobs simply held longer by their pause."""
    promises = dict(decision.promises)
    for job_id in placement.moved:
        if job_id not in ledger.rows:
            continue
        row, view = ledger.rows[job_id], ledger.views[job_id]
        pause_s = view.job.overhead.pause_s(view.share)
        ledger.roster.finish[row] += pause_s
        ledger.roster.held[row] += pause_s
        promises[job_id] = Promise(view.job.deadline_s, ledger.plan(row))
    return replace(decision, promises=promises)


def _is_certified(ledger: Ledger, snapshot: Snapshot, placement: Placement, decision: Decision) -> bool:
    """Whether all that is planned can be placed as time goes on: known from before, or rehearsed."""
    plans = {
        name: promise.plan
        for name, view in ledger.views.items()
        if (promise := decision.promises.get(name, view.promise)) is not None
    }
    certificate = ledger.certificate
    if certificate is not None and certificate.covers(ledger.now_s, snapshot, placement.allocations, plans):
        return True
    rehearsal = rehearse(ledger.now_s, snapshot, decision, plans)
    ledger.certificate = rehearsal.certificate
    return rehearsal.ok
