"""Jobs that wait for an answer, planned beside the promises: as many of them as can be in time, the cheapest first.

Their plans promise nothing. They say who may run meanwhile on devices that no promise needs, and who could be promised.
Planned by deadline; where one finds no room, the costliest of those planned so far is dropped (Moore and Hodgson's
rule), but never a promised job.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np

from springtide.core.decisions import JobView, Offer
from springtide.core.jobs import JobId
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Ints
from springtide.policies.planning.plan_table import PlanTable, active_rows, copy_columns, free_capacity

THRIFT = 1.2  # a plan on what is left may cost this many times what the job needs alone before all are planned again
ORDERS = 3  # orders in which all jobs are planned again before a newcomer is turned away
LAST_S = 1.0  # before its end a job that runs without a promise gets it, or a pause before if that is longer


def plan_candidates(table: PlanTable, names: Iterable[JobId], may_replan: bool) -> set[JobId]:
    """Plan candidates that have rows but no plans; returns those that can be in time beside all promises.

    First around the plans in force; if that leaves out somebody, or is wasteful, promised jobs are planned again with
    them, where that is permitted. The plans of those that are left out are empty.
    """
    rows = {table.rows[name]: name for name in names}
    if not rows:
        return set()
    candidates = np.fromiter(rows, np.int64, len(rows))
    kept = candidates if plan_easily(table, candidates) else plan_most(table, candidates, may_replan)
    if table.columns.share[candidates].any():
        filling.restore(table.capacity, table.columns, candidates, table.trial)
    return {rows[row] for row in kept.tolist()}


def plan_easily(table: PlanTable, candidates: Ints) -> bool:
    """Plan all candidates around the plans in force, none of them wastefully; or none of them."""
    order = order_by_deadline(table, candidates)
    if filling.fill_all_thriftily(table.capacity, table.columns, order, THRIFT):
        return True
    table.columns.segment_count[candidates] = 0
    return False


def plan_most(table: PlanTable, candidates: Ints, may_replan: bool) -> Ints:
    """Plan as many candidates as can be in time: with the promised jobs planned again, or around them."""
    columns = copy_columns(table.columns) if may_replan else table.columns
    around = select(table, table.capacity, order_by_deadline(table, candidates), candidates[:0])
    if not may_replan:
        return around
    planned = table.capacity, table.columns
    table.columns = columns
    together = plan_together(table, candidates, len(around))
    if together is not None and (len(together) == len(candidates) or len(together) > len(around)):
        return together
    table.capacity, table.columns = planned
    return around


def plan_together(table: PlanTable, candidates: Ints, enough: int) -> Ints | None:
    """Plan promised jobs and candidates anew; returns the candidates kept, None if a promised job found no room.

    None too if no more candidates are kept than are `enough` and not all of them are: it is left as soon as that shows.
    """
    everyone = timely_rows(table)
    promised = np.setdiff1d(everyone, candidates, assume_unique=True)
    columns = copy_columns(table.columns)
    most = max(1, len(candidates) - enough - 1)  # one that is missing may be made up for, see below
    table.capacity = free_capacity(table)
    kept = select(table, table.capacity, order_by_deadline(table, everyone), promised, most)
    if len(kept) == len(everyone) - 1:  # another order may do
        planned = table.capacity, table.columns
        table.columns = columns
        if replan(table):
            return candidates
        table.capacity, table.columns = planned
    found = np.isin(promised, kept, assume_unique=True)
    if not found.all():
        return None
    filling.restore(table.capacity, table.columns, promised, table.trial)
    return np.setdiff1d(kept, promised, assume_unique=True)


def replan(table: PlanTable) -> bool:
    """Plan all jobs anew by deadline, those aside that are late; or change nothing if another would be.

    Filling by deadline is greedy: a job that finds no room may find it when it goes first, and the others still fit.
    """
    rows = timely_rows(table)
    order = order_by_deadline(table, rows)
    kept = copy_columns(table.columns)
    for _ in range(ORDERS):
        capacity = free_capacity(table)
        planned = filling.fill_all(capacity, table.columns, order)
        if planned == len(order):
            table.capacity = capacity
            filling.restore(capacity, table.columns, rows, table.trial)
            return True
        order = np.concatenate([order[planned : planned + 1], order[:planned], order[planned + 1 :]])
    table.columns = kept
    return False


def rescue(table: PlanTable) -> None:
    """Plan all jobs again where one that would be late beside the others could be in time that way."""
    late = table.late
    is_hopeless = [not filling.can_be_in_time(table.columns, row, table.now_s) for row in late.tolist()]
    if all(is_hopeless):
        return
    table.late = late[is_hopeless]
    if not replan(table):
        table.late = late


def timely_rows(table: PlanTable) -> Ints:
    """The rows in use of jobs that are planned to be in time; the others do not take part in planning again."""
    rows = active_rows(table)
    return rows[~np.isin(rows, table.late)] if len(table.late) else rows


def order_by_deadline(table: PlanTable, rows: Ints) -> Ints:
    """Rows, the most urgent first."""
    return rows[np.argsort(table.columns.deadline[rows], kind="stable")]


def select(table: PlanTable, capacity: filling.Capacity, order: Ints, fixed: Ints, most: int | None = None) -> Ints:
    """Plan rows in this order on what is free: as many as can be in time, and all that are fixed.

    With `most` it is given up once more than so many are missing.
    """
    is_fixed, missing = np.isin(order, fixed).astype(np.int64), len(order) if most is None else most
    return filling.select(capacity, table.columns, order, is_fixed, table.now_s, missing)


class Outlook(NamedTuple):
    """What is to be known of a job that waits, with the plan it has."""

    cost: float  # device-seconds alone, at the smallest level that is in time
    starts: bool  # whether its plan holds devices from now on
    last_chance_s: float  # when it is promised its finish at the latest if it runs without: shortly before its end


def read_outlooks(table: PlanTable, rows: Ints) -> list[Outlook]:
    """The outlook of each of these rows."""
    costs, shares, chances_s = np.empty(len(rows)), np.empty(len(rows), np.int64), np.empty(len(rows))
    filling.write_outlooks(table.columns, rows, table.now_s, LAST_S, costs, shares, chances_s)
    return list(map(Outlook, costs.tolist(), (shares > 0).tolist(), chances_s.tolist()))


def find_offers(table: PlanTable, capacity: filling.Capacity, view: JobView) -> tuple[Offer, ...]:
    """What would be accepted of a job on what is free: all of the work later, or less of it by the deadline.

    What it has done while it waited does not count: an offer holds for a job that starts anew.
    """
    row, columns = table.add(view), table.columns
    columns.work[row], columns.ready[row], columns.share[row] = view.job.work, table.now_s, 0
    offers = []
    earliest_s = float(filling.earliest_end(capacity, columns, row))
    if earliest_s < inf:
        offers.append(Offer(earliest_s, view.job.work))
    work = float(filling.largest_work(capacity, columns, row))
    if work > 0:
        offers.append(Offer(view.job.deadline_s, work))
    table.drop(view.job.id)
    return tuple(offers)


def next_change_s(table: PlanTable, names: Iterable[JobId]) -> float:
    """When to look again at jobs that wait: where one of their plans changes, or one that runs is about to end."""
    rows = np.array([table.rows[name] for name in names], np.int64)
    if not len(rows):
        return inf
    soonest_s, _ = filling.look_ahead(table.columns, rows, table.now_s)
    return float(min(soonest_s, filling.next_end(table.columns, rows, table.now_s, LAST_S)))
