"""The promised jobs of a Snapshot as columns, with their plans and what those leave free.

A `PlanTable` is opened at the start of a decision, changed while deciding, and closed into a Decision. It carries the
columns from call to call in `cache`; a plan table opened without one is built from the Snapshot and decides the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, filterfalse, repeat
from math import inf
from operator import is_not
from typing import Any, TypeVar

import numpy as np

from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Plan, Segment, Snapshot, Status
from springtide.core.jobs import Job, JobId, Overhead
from springtide.placement.feasibility import Certificate
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Capacity, DeviceLedger, Floats, Ints, JobColumns

FEW_ROWS = 6  # rows that are written or read one by one faster than together
# by the names of the enumeration each takes longer to look up than all else that is done with a job
OFFERED, PENDING, WAITLISTED = Status.OFFERED, Status.PENDING, Status.WAITLISTED

NOBODY = JobId("")

Column = TypeVar("Column", Floats, Ints)
Kept = TypeVar("Kept")


def list_none() -> Ints:
    """No rows."""
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class JobRoster:
    """The jobs of a Snapshot by what is to be done with them, each kind in order of arrival.

    Those that are promised, and have no open offer, have a row in the plan table instead.
    """

    jobs: dict[JobId, JobView] = field(default_factory=dict)  # all of them, as they were seen
    waiting: dict[JobId, JobView] = field(default_factory=dict)  # for an answer
    best_effort: dict[JobId, JobView] = field(default_factory=dict)  # without a deadline, answered or not
    offered: dict[JobId, JobView] = field(default_factory=dict)  # with an open offer
    borrowing: dict[JobId, JobView] = field(default_factory=dict)  # hold devices without a promise


@dataclass(slots=True)
class PlanTable:
    """Rows of columns by job id. `base_*` hold progress as last seen, from which `columns.work` is settled to now.

    Up to `doubts_s` a job follows its plan if nothing else is seen of it.
    """

    now_s: float
    devices: int
    rows: dict[JobId, int]
    spare_rows: list[int]
    views: dict[JobId, JobView]
    columns: JobColumns
    base_work: Floats
    base_rate: Floats
    base_since: Floats
    doubts_s: Floats
    capacity: Capacity
    trial: JobColumns
    certificate: Certificate | None = None  # of the last plans that were checked
    offered: tuple[Plan, ...] = ()  # reservations of open offers: fixed, and gone when the offers are
    # rows of promised jobs that cannot be in time beside the others: all others are planned first
    late: Ints = field(default_factory=list_none)
    roster: JobRoster = field(default_factory=JobRoster)
    in_force: dict[JobId, Plan] = field(default_factory=dict)  # the plans that are promised: those in the rows
    ledger: DeviceLedger | None = None  # of the plans in force, as the table was opened
    rests: bool = False  # whether nobody waits and everyone holds all it can use to its end, since this was a cache
    restless: JobId = NOBODY  # one who was not at rest when the decision was made, to be asked first
    active: Ints | None = None  # `active_rows`, if nobody came or left since it was asked for

    def add(self, view: JobView) -> int:
        """A row for a job, with its levels and progress and without a plan."""
        if not self.spare_rows:
            self._extend(max(32, 2 * len(self.columns.deadline)), self.columns.shares.shape[1])
        if len(view.job.curve.levels) > self.columns.shares.shape[1]:
            self._extend(len(self.columns.deadline), len(view.job.curve.levels))
        row = self.spare_rows.pop()
        self.active = None
        write_job(self.columns, row, view.job)
        self.rows[view.job.id] = row
        self.see(view)
        self.columns.work[row] = view.progress.work_left_at(self.now_s)
        return row

    def add_all(self, views: Sequence[JobView]) -> Ints:
        """Rows for jobs without plans, as `add` makes them, written together."""
        if len(views) <= FEW_ROWS:
            return np.array([self.add(view) for view in views], np.int64)
        levels = max(len(view.job.curve.levels) for view in views)
        size, missing = len(self.columns.deadline), len(views) - len(self.spare_rows)
        if missing > 0 or levels > self.columns.shares.shape[1]:
            room = max(32, 2 * size, size + missing) if missing > 0 else size
            self._extend(room, max(levels, self.columns.shares.shape[1]))
        places = [self.spare_rows.pop() for _ in views]
        self.active = None
        for view, row in zip(views, places, strict=True):
            self.rows[view.job.id] = row
            self.views[view.job.id] = view
        rows = np.array(places, np.int64)
        write_jobs(self.columns, rows, [view.job for view in views])
        seen = [view.progress for view in views]
        self.base_work[rows] = [progress.work_left for progress in seen]
        self.base_rate[rows] = [progress.rate for progress in seen]
        self.base_since[rows] = [max(progress.since_s, progress.paused_until_s) for progress in seen]
        self.columns.ready[rows] = [progress.paused_until_s for progress in seen]
        self.columns.share[rows] = [view.share for view in views]
        self.columns.work[rows] = [progress.work_left_at(self.now_s) for progress in seen]
        return rows

    def see(self, view: JobView) -> None:
        """Take over the progress and holdings of a job, and its plan if it has one."""
        row = self.rows[view.job.id]
        self.views[view.job.id] = view
        progress = view.progress
        self.base_work[row], self.base_rate[row] = progress.work_left, progress.rate
        self.base_since[row] = max(progress.since_s, progress.paused_until_s)
        self.columns.ready[row] = progress.paused_until_s
        self.columns.share[row] = view.share
        self.doubts_s[row] = -inf
        if view.promise is not None and self.in_force.get(view.job.id) is not view.promise.plan:
            self.in_force[view.job.id] = view.promise.plan
            write_plan(self.columns, row, view.promise.plan)

    def drop(self, job_id: JobId) -> None:
        """Free the row of a job."""
        row = self.rows.pop(job_id)
        self.active = None
        del self.views[job_id]
        self.in_force.pop(job_id, None)
        self.columns.deadline[row] = inf
        self.columns.segment_count[row] = 0
        self.columns.share[row] = 0
        self.spare_rows.append(row)

    def drop_all(self, names: Iterable[JobId]) -> None:
        """Free the rows of these jobs."""
        places: list[int] = []
        for job_id in names:
            places.append(self.rows.pop(job_id))
            del self.views[job_id]
            self.in_force.pop(job_id, None)
        if not places:
            return
        self.active, rows = None, np.array(places, np.int64)
        self.columns.deadline[rows] = inf
        self.columns.segment_count[rows] = 0
        self.columns.share[rows] = 0
        self.spare_rows += places

    def settle(self) -> None:
        """Bring the work left of every row to now."""
        ran_s = np.maximum(self.now_s - self.base_since, 0.0)
        np.maximum(self.base_work - self.base_rate * ran_s, 0.0, out=self.columns.work)

    def plan(self, row: int) -> Plan:
        """The plan in a row as a value."""
        columns, count = self.columns, int(self.columns.segment_count[row])
        times_s, shares = columns.segment_times[row, :count].tolist(), columns.segment_shares[row, :count].tolist()
        return Plan(tuple(map(Segment, times_s, shares)), float(columns.finish[row]), float(columns.held[row]))

    def plans(self, rows: Ints) -> list[Plan]:
        """The plans in these rows: where they are many, the columns are read once for all of them."""
        if len(rows) <= FEW_ROWS:
            return [self.plan(row) for row in rows.tolist()]
        columns, counts = self.columns, self.columns.segment_count[rows]
        most = int(counts.max())
        return [
            Plan(tuple(map(Segment, times_s[:count], shares[:count])), finish_s, held_s)
            for count, times_s, shares, finish_s, held_s in zip(
                counts.tolist(),
                columns.segment_times[rows, :most].tolist(),
                columns.segment_shares[rows, :most].tolist(),
                columns.finish[rows].tolist(),
                columns.held[rows].tolist(),
                strict=True,
            )
        ]

    def _extend(self, jobs: int, levels: int) -> None:
        old = self.columns
        self.columns = filling.empty_columns(jobs, levels)
        size = len(old.deadline)
        for before, after in zip(old, self.columns, strict=True):
            if before.ndim == 1:
                after[:size] = before
            else:
                after[:size, : before.shape[1]] = before
        self.base_work = np.concatenate([self.base_work, np.zeros(jobs - size)])
        self.base_rate = np.concatenate([self.base_rate, np.zeros(jobs - size)])
        self.base_since = np.concatenate([self.base_since, np.zeros(jobs - size)])
        self.doubts_s = np.concatenate([self.doubts_s, np.zeros(jobs - size)])
        self.spare_rows[:0] = range(jobs - 1, size - 1, -1)
        capacity = filling.empty_capacity(jobs + len(self.roster.offered), self.now_s, self.devices)
        used = int(self.capacity.size[0])
        capacity.times[:used], capacity.free[:used] = self.capacity.times[:used], self.capacity.free[:used]
        capacity.size[:] = self.capacity.size
        self.capacity = capacity
        self.trial = filling.empty_columns(1, levels)


def write_job(columns: JobColumns, row: int, job: Job) -> None:
    """What of a job never changes: its deadline and the levels worth holding."""
    levels = job.curve.levels
    columns.deadline[row] = job.deadline_s
    columns.start_s[row] = job.overhead.start_s
    columns.level_count[row] = len(levels)
    clear_plans(columns, row)
    for level, share in enumerate(levels):
        columns.shares[row, level] = share
        columns.rates[row, level] = job.curve.rate(share)
        columns.pauses[row, level] = job.overhead.pause_s(share)


def write_jobs(columns: JobColumns, rows: Ints, jobs: Sequence[Job]) -> None:
    """`write_job` for each of these rows; jobs of one speed and one cost are read once."""
    kinds: dict[tuple[Curve, Overhead], int] = {}
    kind = np.array([kinds.setdefault((job.curve, job.overhead), len(kinds)) for job in jobs], np.int64)
    pattern = filling.empty_columns(len(kinds), columns.shares.shape[1])
    for (curve, overhead), place in kinds.items():
        pattern.start_s[place], pattern.level_count[place] = overhead.start_s, len(curve.levels)
        for level, share in enumerate(curve.levels):
            pattern.shares[place, level] = share
            pattern.rates[place, level] = curve.rate(share)
            pattern.pauses[place, level] = overhead.pause_s(share)
    columns.deadline[rows] = [job.deadline_s for job in jobs]
    clear_plans(columns, rows)
    for written, read in (
        (columns.start_s, pattern.start_s),
        (columns.level_count, pattern.level_count),
        (columns.shares, pattern.shares),
        (columns.rates, pattern.rates),
        (columns.pauses, pattern.pauses),
    ):
        written[rows] = read[kind]


def clear_plans(columns: JobColumns, rows: int | Ints) -> None:
    """No plan: it never ends, whoever had the row before."""
    columns.segment_count[rows] = 0
    columns.finish[rows] = columns.held[rows] = inf


def write_plan(columns: JobColumns, row: int, plan: Plan) -> None:
    """A plan into its row."""
    columns.finish[row], columns.held[row] = plan.finish_s, plan.held_until_s
    columns.segment_count[row] = len(plan.segments)
    for position, segment in enumerate(plan.segments):
        columns.segment_times[row, position] = segment.start_s
        columns.segment_shares[row, position] = segment.share


def open_table(now_s: float, snapshot: Snapshot) -> PlanTable:
    """The promised jobs of a Snapshot, settled to now, and what their plans leave free."""
    table = copy_table(snapshot.cache, now_s) if isinstance(snapshot.cache, PlanTable) else new_table(now_s, snapshot)
    table.roster, gone, changed = call_roll(snapshot, table.roster)
    unplanned = [view.job.id for view in changed if not is_planned(view)]
    table.drop_all([job_id for job_id in chain(gone, unplanned) if job_id in table.rows])
    for view in filter(is_planned, changed):
        if view.job.id in table.rows:
            table.see(view)
        else:
            table.add(view)
    in_order = [*filter(table.rows.__contains__, snapshot.jobs)]
    if in_order != [*table.rows]:
        # however they came in: a plan table without a cache breaks ties alike
        table.rows = {job_id: table.rows[job_id] for job_id in in_order}
        table.active = None
    table.settle()
    table.columns.touched[:] = 0
    old = table.columns
    table.columns = old._replace(
        old_times=np.empty(old.old_times.shape), old_shares=np.empty(old.old_shares.shape, np.int64)
    )
    rows = active_rows(table)
    filling.keep_in_force(table.columns, rows)
    table.offered = tuple(view.promise.plan for view in table.roster.offered.values() if view.promise is not None)
    overruns = find_overruns(table, rows)
    table.ledger = ledger = follow_ledger(snapshot.cache, table, overruns)
    table.capacity = free_capacity(table, ledger)
    if len(overruns):
        table.ledger = None  # it is without them
        mend_overruns(table, overruns)
    return table


def follow_ledger(cache: Any, table: PlanTable, overruns: Ints) -> DeviceLedger:
    """What the plans in force leave free, but for these: from what they left when the table before was opened."""
    absent = np.zeros(len(table.columns.deadline), np.int64)
    absent[overruns] = 1
    before, ledger = filling.empty_columns(0, 1), filling.empty_ledger(1, table.now_s, table.devices)
    if isinstance(cache, PlanTable) and cache.ledger is not None:
        before, ledger = cache.columns, cache.ledger
    return filling.follow_plans(ledger, before, table.columns, absent, table.now_s)


def find_overruns(table: PlanTable, rows: Ints) -> Ints:
    """The jobs whose plans do not do: they need their devices longer than planned, or are planned to be late.

    With speeds and work as they were stated there are none.
    """
    doubtful = rows[table.doubts_s[rows] <= table.now_s]
    overruns = np.empty(len(doubtful), np.int64)
    found = filling.write_overruns(table.columns, doubtful, table.now_s, filling.GUARD_S, overruns, table.doubts_s)
    return overruns[:found]


def mend_overruns(table: PlanTable, overruns: Ints) -> None:
    """Plan these jobs again, the most urgent first, on what the plans of all others leave: nobody pays for them."""
    order = overruns[np.argsort(table.columns.deadline[overruns], kind="stable")]
    is_late = np.zeros(len(order), np.int64)
    filling.mend(table.capacity, table.columns, order, is_late)
    table.late = order[is_late > 0]


def call_roll(snapshot: Snapshot, last: JobRoster) -> tuple[JobRoster, list[JobId], list[JobView]]:
    """Who is there, who has left since the last roll, and whose view is another one or new: only these are looked at.

    All others are passed over without a step of Python for each, which is most of what thousands of jobs would cost.
    """
    jobs, gone = snapshot.jobs, [*filterfalse(snapshot.jobs.__contains__, last.jobs)]
    known = drop_keys(last.jobs, gone)
    roster = JobRoster(dict(jobs), *[drop_keys(kind, gone) for kind in kinds_of(last)])
    # Views are compared in pairs. Who has come stands behind the others; if ever not, more of them count as changed.
    changed = [*compress(jobs.values(), map(is_not, jobs.values(), chain(known.values(), repeat(None))))]
    for view in changed:
        for kind, belongs in zip(kinds_of(roster), find_kinds(view), strict=True):
            if belongs:
                kind[view.job.id] = view
            else:
                kind.pop(view.job.id, None)
    roster.waiting, roster.best_effort, roster.offered, roster.borrowing = [
        put_in_order(kind, jobs) for kind in kinds_of(roster)
    ]
    return roster, gone, changed


def kinds_of(roster: JobRoster) -> tuple[dict[JobId, JobView], ...]:
    """The kinds of jobs in a roster, as `find_kinds` orders them."""
    return roster.waiting, roster.best_effort, roster.offered, roster.borrowing


def find_kinds(view: JobView) -> tuple[bool, bool, bool, bool]:
    """Whether a job waits for an answer, has no deadline, has an open offer, or holds devices without a promise."""
    status, is_free = view.status, view.promise is None
    if status is OFFERED:
        return False, False, True, False
    waits = status is PENDING or status is WAITLISTED
    return waits, is_free and view.job.deadline_s == inf, False, is_free and view.share > 0


def is_planned(view: JobView) -> bool:
    """Whether the plan of a job is in force: it is promised."""
    return view.promise is not None and view.status is not OFFERED


def drop_keys(views: Mapping[JobId, JobView], names: Iterable[JobId]) -> dict[JobId, JobView]:
    """A copy without these jobs."""
    left = dict(views)
    for name in names:
        left.pop(name, None)
    return left


def put_in_order(kind: dict[JobId, Kept], jobs: Mapping[JobId, JobView]) -> dict[JobId, Kept]:
    """The same entries in order of arrival; mostly few of all jobs, or in order already."""
    if len(kind) < 2:
        return kind
    return {job_id: kind[job_id] for job_id in filter(kind.__contains__, jobs)}


def is_at_rest(now_s: float, snapshot: Snapshot) -> bool:
    """Whether there is nothing to decide: no one is new or waits, and everyone holds all it can use to its end."""
    if snapshot.changes.arrived:
        return False
    if isinstance(snapshot.cache, PlanTable):
        if snapshot.cache.rests:
            return True  # since then jobs have ended, and nothing else has happened
        restless = snapshot.jobs.get(snapshot.cache.restless)
        if restless is not None and not _holds_its_peak(now_s, restless):
            return False
    return all(_holds_its_peak(now_s, view) for view in snapshot.jobs.values())


def find_restless(table: PlanTable) -> JobId:
    """A job that holds less than it can use, or may hold something else later; empty if none is found."""
    rows = active_rows(table)
    place = filling.find_below_peak(table.columns, rows, table.now_s)
    return [*table.rows][place] if place >= 0 else NOBODY


def leaves_nothing(table: PlanTable) -> bool:
    """Whether there is nothing to decide but for the plans in a table, and the devices are enough for all they hold."""
    return not table.roster.best_effort and not table.roster.offered and bool(table.capacity.free[0] >= 0)


def keep_resting(snapshot: Snapshot) -> Any:
    """The cache of a Snapshot in which nothing is to be decided: what it needs not be found again."""
    cache = snapshot.cache
    return replace(cache, rests=True) if isinstance(cache, PlanTable) and not cache.rests else cache


def _holds_its_peak(now_s: float, view: JobView) -> bool:
    if view.promise is None or view.status is not Status.ADMITTED:
        return False
    last = view.promise.plan.segments[-1]
    return last.start_s <= now_s and view.share == last.share == view.job.curve.peak


def free_capacity(table: PlanTable, ledger: DeviceLedger | None = None) -> Capacity:
    """All devices from now on, or those in a ledger, but for those that open offers reserve and late jobs will need."""
    rows = len(table.columns.deadline) + len(table.roster.offered)  # more of these may be reserved for later
    capacity = filling.empty_capacity(rows, table.now_s, table.devices)
    if ledger is not None:
        filling.begin_with(capacity, ledger)
    for plan in table.offered:
        occupy_plan(table, capacity, plan, 1)
    filling.occupy_each(capacity, table.columns, table.late)
    return capacity


def occupy_plan(table: PlanTable, capacity: Capacity, plan: Plan, sign: int) -> None:
    """Take a plan that has no row out of the free devices (sign 1), or give it back (sign -1)."""
    write_plan(table.trial, 0, plan)
    filling.occupy(capacity, table.trial, 0, sign)


def new_table(now_s: float, snapshot: Snapshot) -> PlanTable:
    """A plan table without jobs."""
    size, levels = 32, 8
    return PlanTable(
        now_s,
        snapshot.cluster.total,
        {},
        list(range(size - 1, -1, -1)),
        {},
        filling.empty_columns(size, levels),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        filling.empty_capacity(size, now_s, snapshot.cluster.total),
        filling.empty_columns(1, levels),
    )


def copy_table(table: PlanTable, now_s: float) -> PlanTable:
    """A plan table that may be changed without changing this one."""
    return PlanTable(
        now_s,
        table.devices,
        dict(table.rows),
        list(table.spare_rows),
        dict(table.views),
        copy_columns(table.columns),
        table.base_work.copy(),
        table.base_rate.copy(),
        table.base_since.copy(),
        table.doubts_s.copy(),
        table.capacity,
        table.trial,
        table.certificate,
        roster=table.roster,
        in_force=dict(table.in_force),
    )


def copy_columns(columns: JobColumns) -> JobColumns:
    """The same columns in arrays of their own, but for the plans in force, which are written once for a table.

    Of levels and plans only what there is: nobody reads what lies beyond their numbers.
    """
    levels = int(columns.level_count.max())
    flat = JobColumns._make([column.copy() if column.ndim == 1 else column for column in columns])
    return copy_plans(
        flat._replace(
            shares=copy_first(columns.shares, levels),
            rates=copy_first(columns.rates, levels),
            pauses=copy_first(columns.pauses, levels),
        )
    )


def copy_first(column: Column, width: int) -> Column:
    """An array of the same shape with the first entries of each row; what is in the others is left open."""
    made = np.empty_like(column)
    made[:, :width] = column[:, :width]
    return made


def copy_plans(columns: JobColumns) -> JobColumns:
    """The same columns, those of the plans in arrays of their own."""
    copy = columns._replace(
        segment_count=columns.segment_count.copy(),
        segment_times=np.empty_like(columns.segment_times),
        segment_shares=np.empty_like(columns.segment_shares),
        finish=columns.finish.copy(),
        held=columns.held.copy(),
    )
    filling.copy_segments(columns, copy)
    return copy


def rows_but(table: PlanTable, names: Iterable[JobId]) -> Ints:
    """The rows in use, in their order, but for those of these jobs."""
    rows, left_out = active_rows(table), [table.rows[name] for name in names]
    return rows[~np.isin(rows, left_out)] if left_out else rows


def active_rows(table: PlanTable) -> Ints:
    """The rows in use: of jobs that were promised before in arrival order, then as they were added."""
    if table.active is None:
        table.active = np.fromiter(table.rows.values(), np.int64, len(table.rows))
    return table.active
