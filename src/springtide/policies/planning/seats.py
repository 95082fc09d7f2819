"""Devices for jobs that nothing is promised to: who keeps them, who starts, and who makes way, promised jobs included.

A proposal's caution says how far they may go (`drafts.Caution`). What they get certifies nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from springtide.core.decisions import JobView, Plan, Segment
from springtide.core.jobs import JobId
from springtide.policies.planning import filling
from springtide.policies.planning.best_effort import find_urgent, keep_held, next_starving_s, seat_starved, share_out
from springtide.policies.planning.drafts import Caution, Draft
from springtide.policies.planning.filling import Ints
from springtide.policies.planning.plan_table import PlanTable, clear_plans, write_plan

AGAIN_S = 1.0  # after which those that left for promised jobs are seated again
LITTLE_SLACK = 0.1  # of the time to its deadline: a promised job with less goes before best-effort work


def hold_still(table: PlanTable, draft: Draft, leaves: bool) -> None:
    """Let jobs that wait for an answer hold no more than they do, or nothing: a promised job may be in their way."""
    columns, now_s = table.columns, table.now_s
    if leaves:
        draft.wake_at_s = min(draft.wake_at_s, now_s + AGAIN_S)
    for name in draft.tentative:
        row = table.rows[name]
        held = 0 if leaves else int(columns.share[row])
        if filling.share_now(columns, row, now_s) > held:
            until_s = float(columns.held[row])
            filling.occupy(table.capacity, columns, row, -1)
            clear_plans(columns, row)
            if held:
                write_plan(columns, row, Plan((Segment(now_s, held),), until_s, until_s))
                filling.occupy(table.capacity, columns, row, 1)


def give_way_to_starved(table: PlanTable, draft: Draft) -> list[JobId]:
    """Stop jobs that wait for an answer, the latest first, until starved best-effort jobs have room; returns which."""
    if not draft.tentative or not draft.by_size:
        return []
    columns, rows = table.columns, table.rows
    held = {name: filling.share_now(columns, rows[name], table.now_s) for name in reversed(draft.tentative)}
    holding = [name for name, share in held.items() if share]
    left = accumulate([held[name] for name in holding], initial=int(table.capacity.free[0]))
    waiting = [view for view in draft.best_effort if view.job.id not in draft.seating.blocked]
    seated = seat_starved(table.now_s, waiting, left)
    stopping = holding[: seated.index(max(seated))]
    for name in stopping:
        filling.occupy(table.capacity, columns, rows[name], -1)
        clear_plans(columns, rows[name])
    return stopping


def seat_in_order(table: PlanTable, draft: Draft, promised: Ints, caution: Caution) -> None:
    """Rows for the best-effort jobs, each planned in turn at its least share on what is left."""
    if caution.shares_anew:
        _make_way(table, promised, draft.best_effort)
    rows = table.add_all(draft.best_effort)
    filling.fill_each(table.capacity, table.columns, rows, np.zeros(len(rows), np.int64))
    filling.restore(table.capacity, table.columns, rows, table.trial)


def seat_by_size(table: PlanTable, draft: Draft, promised: Ints, caution: Caution) -> None:
    """Rows for the best-effort jobs, with plans on what is left; promised jobs with little slack grow before them."""
    if caution.admits:
        tight = _are_tight(table, promised)
        spare = int(table.capacity.free[0])
        if spare > 0 and tight.any():
            _grow_tight(table, draft, promised[tight], spare)
        if caution.shares_anew:
            _make_way(table, promised[~tight], draft.best_effort, keeps_slack=True)
    spare = int(table.capacity.free[0])
    if caution.shares_anew:
        chosen = share_out(table.now_s, draft.best_effort, spare, draft.usage)
    elif caution.unpromised_leave:
        chosen = {}
    else:
        chosen = _keep_seats(table, draft, spare, caution)
    table.add_all(draft.best_effort)
    _plan_shares(table, draft, draft.best_effort, chosen)


def _keep_seats(table: PlanTable, draft: Draft, spare: int, caution: Caution) -> dict[JobId, int]:
    """What best-effort jobs keep, and the least share of those that are urgent and may start."""
    now_s, seating = table.now_s, draft.seating
    urgent = [] if caution is Caution.ANYHOW else find_urgent(now_s, draft.best_effort)
    urgent = [view for view in urgent if view.job.id not in seating.blocked]
    chosen = keep_held(now_s, draft.best_effort, spare, urgent, seating.clears)
    draft.urgent = tuple([view.job.id for view in urgent if view.job.id in chosen])
    if draft.urgent and seating.clears:
        draft.wake_at_s = min(draft.wake_at_s, now_s + AGAIN_S)
    return chosen


def start_waiting(table: PlanTable, draft: Draft) -> None:
    """Plans for the other best-effort jobs that hold nothing, on what the steady and the urgent ones leave."""
    waiting = [view for view in draft.best_effort if not view.share and view.job.id not in draft.urgent]
    _plan_shares(table, draft, waiting, share_out(table.now_s, waiting, int(table.capacity.free[0]), draft.usage))


def _plan_shares(table: PlanTable, draft: Draft, asking: Sequence[JobView], chosen: Mapping[JobId, int]) -> None:
    """Plans of these best-effort jobs at the shares chosen for them, and when the next of the others starves."""
    seated = [view for view in asking if view.job.id in chosen]
    rows = np.array([table.rows[view.job.id] for view in seated], np.int64)
    lowest = [view.job.curve.levels.index(chosen[view.job.id]) for view in seated]
    filling.fill_each(table.capacity, table.columns, rows, np.array(lowest, np.int64))
    draft.wake_at_s = min(draft.wake_at_s, next_starving_s(table.now_s, asking, chosen))


def _grow_tight(table: PlanTable, draft: Draft, rows: Ints, spare: int) -> None:
    """Let promised jobs with little slack grow or start, and note which of them do."""
    before = filling.shares_now(table.columns, rows, table.now_s)
    filling.grow(table.capacity, table.columns, rows, spare, draft.patience, table.trial)
    grown = {*rows[filling.shares_now(table.columns, rows, table.now_s) > before].tolist()}
    draft.tight = tuple(name for name, row in table.rows.items() if row in grown)


def _are_tight(table: PlanTable, rows: Ints) -> npt.NDArray[np.bool_]:
    """Which of these plans leave little slack."""
    deadlines = table.columns.deadline[rows]
    return np.asarray(deadlines - table.columns.finish[rows] < LITTLE_SLACK * (deadlines - table.now_s))


def _make_way(table: PlanTable, promised: Ints, unpromised: Iterable[JobView], keeps_slack: bool = False) -> None:
    """Take promised jobs back to the share they need, most time to spare first, until each best-effort job has room.

    With `keeps_slack` none of them is left with little slack.
    """
    wanted = sum(view.job.curve.levels[0] for view in unpromised)
    if table.capacity.free[0] >= wanted:
        return
    columns = table.columns
    for row in promised[np.argsort(columns.finish[promised] - columns.deadline[promised], kind="stable")]:
        if table.capacity.free[0] >= wanted:
            break
        before = table.plan(row) if keeps_slack else None
        filling.shrink(table.capacity, columns, row, table.trial)
        if before is not None and _are_tight(table, np.array([row])).any():
            filling.occupy(table.capacity, columns, row, -1)
            write_plan(columns, row, before)
            filling.occupy(table.capacity, columns, row, 1)
