"""From plans to a Decision that keeps every promise, devices and pauses included.

The plans in force are the certificate of the promises: they are feasible together, and placement can follow them
(checked by `placement.feasibility`). A proposal may replace them only by plans that are such a certificate again. If
one cannot be placed, growth and admission are left out; what remains is the old certificate, or all promises planned
afresh.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeAlias

import numpy as np

from springtide.core.decisions import Answer, Cause, Decision, JobView, Promise, Reason, Snapshot
from springtide.core.devices import count_devices
from springtide.core.jobs import JobId
from springtide.placement.buddy import Placement, arrange
from springtide.placement.feasibility import Horizon, check_plans, find_last_followed_s
from springtide.placement.move_costs import ROUNDING_S
from springtide.policies.planning import filling
from springtide.policies.planning.best_effort import USAGE, write_usage
from springtide.policies.planning.drafts import Caution, Draft, Seating
from springtide.policies.planning.filling import Ints
from springtide.policies.planning.open_answers import THRIFT, find_offers, next_change_s, replan, rescue
from springtide.policies.planning.plan_table import (
    NOBODY,
    PlanTable,
    active_rows,
    copy_plans,
    find_restless,
    free_capacity,
    leaves_nothing,
    open_table,
    rows_but,
)
from springtide.policies.planning.reservations import reserve
from springtide.policies.planning.seats import (
    AGAIN_S,
    give_way_to_starved,
    hold_still,
    seat_by_size,
    seat_in_order,
    start_waiting,
)

Propose: TypeAlias = Callable[[PlanTable, Snapshot, Caution], Draft]


def decide_firmly(now_s: float, snapshot: Snapshot, propose: Propose) -> Decision:
    """The boldest decision among what is proposed that keeps every promise on real devices."""
    draft, tried = Draft(), Seating()
    for caution in Caution:
        unpromised = draft.tentative or (draft.best_effort and draft.by_size)
        if caution in (Caution.STEADY, Caution.ALONE) and not unpromised:
            continue  # it would be the proposal before
        seating: Seating | None = replace(tried, clears=False)
        while seating is not None:
            table = open_table(now_s, snapshot)
            if len(table.late) and caution.admits:
                rescue(table)
            draft = propose(table, snapshot, caution)
            draft.seating = seating
            if caution is Caution.AFRESH and not replan(table):
                break
            reserved = reserve(table)
            decision = conclude(table, snapshot, draft, caution)
            if decision is not None:
                return replace(decision, promises={**decision.promises, **reserved}) if reserved else decision
            tried, seating = seating, seating.follow(draft)
    raise AssertionError("plans are followed anyhow")


def admit(table: PlanTable, view: JobView) -> bool:
    """Plan a newcomer beside the promised jobs, planning all of them again if that is what it takes.

    Without room it leaves no trace. First on what the plans in force leave free; if that does not do, or would cost
    much more than the job needs, all jobs are planned in order of deadlines (ElasticFlow's admission, for one job).
    """
    row = table.add(view)
    fits = filling.fill_thriftily(table.capacity, table.columns, row, THRIFT)
    if fits == 2 or replan(table):
        return True
    if fits:
        filling.occupy(table.capacity, table.columns, row, 1)
        return True
    table.drop(view.job.id)
    return False


def conclude(table: PlanTable, snapshot: Snapshot, draft: Draft, caution: Caution) -> Decision | None:
    """The plan table as a Decision on named devices; None if placement could not keep all its promises.

    Spare devices go to best-effort jobs (`Draft.by_size` says how), then to whom they cost the fewest device-seconds.

    Invariant: a Decision leaves promised plans that are a certificate. They fit the devices together (every plan in the
    table was taken out of `capacity`), each ends by its deadline with the pauses of today's moves in it
    (`_settle_moves`), and the next starts and growths can be placed with moves that reserves pay for
    (`_is_certified`; those after them are looked at once they are among the next). Plans of best-effort jobs and of
    those that wait for an answer certify nothing: they are dropped again, and found anew each time.
    """
    promised = _list_promised(table, draft)
    if not caution.shares_anew:
        hold_still(table, draft, leaves=caution.unpromised_leave)
    stopping = give_way_to_starved(table, draft) if caution < Caution.ALONE else []
    growing = rows_but(table, stopping)
    if draft.best_effort and draft.by_size:
        seat_by_size(table, draft, promised, caution)
    elif draft.best_effort:
        seat_in_order(table, draft, promised, caution)
        growing = active_rows(table)
    rows = active_rows(table)
    unpromised = [*draft.tentative, *(view.job.id for view in draft.best_effort)]
    # What the plans need is kept beside what they grow to: placement skips growth that would need a move, and a job
    # whose growth is skipped goes back to the plan it needs, which is part of the old certificate.
    needed = table.columns
    if draft.best_effort and draft.by_size and not (caution.shares_anew or caution.unpromised_leave):
        needed = copy_plans(table.columns)
        start_waiting(table, draft)
    spare = int(table.capacity.free[0]) if caution.admits else 0
    if spare > 0 and len(growing):
        needed = copy_plans(table.columns) if needed is table.columns else needed
        filling.grow(table.capacity, table.columns, growing, spare, draft.patience, table.trial)
    names = [*table.rows]
    decision, placement = _place(table, snapshot, draft, needed, names, rows)
    tentative_s = next_change_s(table, draft.tentative)
    left = _free_beside_waiting(table, draft, needed) if draft.refused else None
    table.drop_all(unpromised)
    final = _settle_moves(table, placement, decision)
    change_s, grows = filling.look_ahead(table.columns, promised, table.now_s)
    # If no plan starts or grows later, devices only come free, and what is placed now is all there is to place.
    checks = grows and caution.checks
    draft.pushing = frozenset(placement.pushing).intersection(draft.urgent)
    unchecked = caution is Caution.UNCHECKED and draft.pushing
    if caution is not Caution.ANYHOW and (
        placement.forced
        or final is None
        or unchecked
        or (checks and not _is_certified(table, snapshot, placement, decision, final))
    ):
        return None
    final = final or _postpone(table, placement, decision)
    if left is not None:
        final = replace(final, answers={**final.answers, **_make_offers(table, draft, left, promised)})
    # whoever has moved may have left a place for those that were left out
    again_s = table.now_s + AGAIN_S if draft.seating.blocked and placement.allocations else inf
    wake_at_s = min(draft.wake_at_s, change_s, tentative_s, again_s)
    memory = _remember_usage(snapshot, draft, placement)
    table.restless = next(iter(unpromised), NOBODY) or find_restless(table)
    table.rests = table.restless == NOBODY and leaves_nothing(table)
    table.in_force |= {name: promise.plan for name, promise in final.promises.items()}
    return replace(final, allocations=placement.allocations, wake_at_s=wake_at_s, memory=memory, cache=table)


def _free_beside_waiting(table: PlanTable, draft: Draft, needed: filling.JobColumns) -> filling.Capacity:
    """The devices that nobody needs who waits for an answer, whatever they grow to."""
    refused = {view.job.id for view in draft.refused}
    waiting = np.array([table.rows[name] for name in draft.tentative if name not in refused], np.int64)
    capacity = free_capacity(table)
    filling.occupy_each(capacity, needed, waiting)
    return capacity


def _make_offers(table: PlanTable, draft: Draft, capacity: filling.Capacity, promised: Ints) -> dict[JobId, Answer]:
    """The refusals with what would be accepted, beside the promised plans as they are now, growth and moves included.

    Beside those before, an offer might rest on devices that another job has just grown to.
    """
    filling.occupy_each(capacity, table.columns, np.setdiff1d(promised, table.late))
    refusals = [(view, draft.answers[view.job.id]) for view in draft.refused]
    return {view.job.id: replace(answer, offers=find_offers(table, capacity, view)) for view, answer in refusals}


def _remember_usage(snapshot: Snapshot, draft: Draft, placement: Placement) -> dict[str, Any] | None:
    """What the draft remembers, and what users have used and hold from now on where that is counted."""
    if draft.usage is None:
        return draft.memory
    shares = {job_id: count_devices(devices) for job_id, devices in placement.allocations.items()}
    return {**(draft.memory or snapshot.memory), USAGE: write_usage(draft.usage, snapshot.jobs.values(), shares)}


def _list_promised(table: PlanTable, draft: Draft) -> Ints:
    """The rows of the jobs whose plans are promised."""
    return rows_but(table, draft.tentative)


def _place(
    table: PlanTable, snapshot: Snapshot, draft: Draft, needed: filling.JobColumns, names: list[JobId], rows: Ints
) -> tuple[Decision, Placement]:
    """The shares of now and their devices, without the growth that would need a move."""
    while True:
        decision = _compose(table, draft, needed, names, rows)
        placement = arrange(table.now_s, snapshot, decision)
        if not placement.skipped:
            return decision, placement
        for job_id in placement.skipped:
            _take_back(table, needed, table.rows[job_id])


def _take_back(table: PlanTable, needed: filling.JobColumns, row: int) -> None:
    """Return a job to the plan it needs."""
    filling.occupy(table.capacity, table.columns, row, -1)
    filling.store(
        table.columns,
        row,
        needed.finish[row],
        needed.held[row],
        needed.segment_count[row],
        needed.segment_times[row],
        needed.segment_shares[row],
    )
    filling.occupy(table.capacity, table.columns, row, 1)


def _compose(table: PlanTable, draft: Draft, needed: filling.JobColumns, names: list[JobId], rows: Ints) -> Decision:
    """The shares of now as a difference; what goes beyond the needed share is optional."""
    now_s = table.now_s
    wanted = filling.shares_now(table.columns, rows, now_s)
    if wanted.sum() > table.devices:
        wanted = np.array(_within(table, rows, wanted.tolist()), np.int64)
    changing = np.flatnonzero(wanted != table.columns.share[rows])
    shares = dict(zip([names[position] for position in changing.tolist()], wanted[changing].tolist(), strict=True))
    optional: frozenset[JobId] = frozenset()
    if shares and needed is not table.columns:
        least = filling.shares_now(needed, rows[changing], now_s).tolist()
        optional = frozenset(
            [name for (name, share), floor in zip(shares.items(), least, strict=True) if share > floor]
        )
    gaining = [name for name in draft.tight if shares.get(name, 0) > table.views[name].share]
    return Decision(
        answers=draft.answers,
        promises=_changed_promises(table, draft, names, rows),
        shares=shares,
        optional=optional,
        reasons={name: Reason(Cause.TIGHT) for name in gaining},
    )


def _within(table: PlanTable, rows: Ints, shares: list[int]) -> list[int]:
    """Shares that the cluster has, where a job still runs longer than planned: most time to spare, first cut.

    Each is cut to the largest share that is left for it, and not below what it holds.
    """
    excess = sum(shares) - table.devices
    if excess <= 0:
        return shares
    columns = table.columns
    slack = columns.deadline[rows] - columns.finish[rows]
    for position in np.argsort(-slack, kind="stable").tolist():
        row = rows[position]
        held = int(columns.share[row])
        if excess > 0 and shares[position] > held:
            levels = columns.shares[row, : columns.level_count[row]]
            fitting = levels[levels <= shares[position] - excess]
            left = max(held, int(fitting[-1]) if len(fitting) else 0)
            excess -= shares[position] - left
            shares[position] = left
    return shares


def _changed_promises(table: PlanTable, draft: Draft, names: Sequence[JobId], rows: Ints) -> dict[JobId, Promise]:
    """The promises whose plan is not the one in force."""
    renewed = np.empty(len(rows), np.int64)
    filling.write_renewed(table.columns, rows, table.now_s, renewed)
    changed = [
        position
        for position in np.flatnonzero(renewed).tolist()
        if names[position] not in draft.tentative and not table.views[names[position]].job.best_effort
    ]
    return {
        names[position]: Promise(table.views[names[position]].job.deadline_s, plan)
        for position, plan in zip(changed, table.plans(rows[changed]), strict=True)
    }


def _settle_moves(table: PlanTable, placement: Placement, decision: Decision) -> Decision | None:
    """The decision with the pauses of moved jobs in their plans; None if that would make one of them late."""
    moved = [job_id for job_id in placement.moved if job_id in table.rows]
    if not moved:
        return decision
    promises = dict(decision.promises)
    for job_id in moved:
        row, view = table.rows[job_id], table.views[job_id]
        ready_s = table.columns.ready[row]
        table.columns.ready[row] = view.job.overhead.resumes_s(table.now_s, view.share, False, ready_s)
        if row in table.late:
            filling.replan_late(table.capacity, table.columns, row)
        elif not filling.replan_paused(table.capacity, table.columns, row):
            return None
        promises[job_id] = Promise(view.job.deadline_s, table.plan(row))
    return replace(decision, promises=promises)


def _postpone(table: PlanTable, placement: Placement, decision: Decision) -> Decision:
    """The decision with the plans of moved jobs simply held longer by their pause."""
    promises = dict(decision.promises)
    for job_id in placement.moved:
        if job_id not in table.rows:
            continue
        row, view = table.rows[job_id], table.views[job_id]
        pause_s = view.job.overhead.pause_s(view.share)
        table.columns.finish[row] += pause_s
        table.columns.held[row] += pause_s
        promises[job_id] = Promise(view.job.deadline_s, table.plan(row))
    return replace(decision, promises=promises)


def _is_certified(
    table: PlanTable, snapshot: Snapshot, placement: Placement, placed: Decision, decision: Decision
) -> bool:
    """Whether all that is planned can be placed as time goes on: known from before, or checked.

    `placement` is how the decision was placed when it was `placed`: before the pauses of moves came into its plans.
    """
    plans = {**table.in_force, **{name: promise.plan for name, promise in decision.promises.items()}}
    laid_out = placement if decision is placed else None
    found = check_plans(table.now_s, snapshot, decision, plans, look_far(table), laid_out, table.certificate)
    table.certificate = found.certificate
    return found.ok


def look_far(table: PlanTable) -> Horizon:
    """How far a check of the plans in a table goes, read from their columns."""
    columns, rows = table.columns, active_rows(table)
    growths_s, changing = np.empty(int(columns.segment_count[rows].sum())), np.empty(len(rows), np.int64)
    count = filling.write_growths(columns, rows, table.now_s, growths_s)
    until_s = find_last_followed_s(growths_s[:count].tolist())
    filling.write_changing(columns, rows, table.now_s, until_s + ROUNDING_S, changing)
    names = [*table.rows]
    return Horizon(until_s, [*[names[i] for i in np.flatnonzero(changing).tolist()], *table.roster.borrowing])
