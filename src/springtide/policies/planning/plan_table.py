"""The promised jobs of a Snapshot as columns, with their plans and what those leave free.

A `PlanTable` is opened at the start of a decision, changed while deciding, and closed into a Decision. It carries the
columns from call to call in `cache`; a plan table opened without one is built from the Snapshot and decides the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Plan, Segment, Snapshot, Status
from springtide.core.jobs import Job, JobId, Overhead
from springtide.placement.feasibility import Certificate
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Capacity, Floats, Ints, JobColumns

FEW_ROWS = 6  # rows that are written or read one by one faster than together
# by the names of the enumeration each takes longer to look up than all else that is done with a job
OFFERED, PENDING, WAITLISTED = Status.OFFERED, Status.PENDING, Status.WAITLISTED


def list_none() -> Ints:
    """No rows."""
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class JobRoster:
    """The jobs of a Snapshot by what is to be done with them, each kind in order of arrival."""

    planned: dict[JobId, JobView] = field(default_factory=dict)  # promised: their plans are in force
    waiting: dict[JobId, JobView] = field(default_factory=dict)  # for an answer
    best_effort: list[JobView] = field(default_factory=list)  # without a deadline, answered or not
    offered: dict[JobId, JobView] = field(default_factory=dict)  # with an open offer
    borrowing: list[JobId] = field(default_factory=list)  # hold devices without a promise


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
    in_force: dict[JobId, Plan] = field(default_factory=dict)  # the plans that were promised, as they were last seen

    def add(self, view: JobView) -> int:
        """A row for a job, with its levels and progress and without a plan."""
        if not self.spare_rows:
            self._extend(max(32, 2 * len(self.columns.deadline)), self.columns.shares.shape[1])
        if len(view.job.curve.levels) > self.columns.shares.shape[1]:
            self._extend(len(self.columns.deadline), len(view.job.curve.levels))
        row = self.spare_rows.pop()
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
        if view.promise is not None:
            self.in_force[view.job.id] = view.promise.plan
            write_plan(self.columns, row, view.promise.plan)

    def drop(self, job_id: JobId) -> None:
        """Free the row of a job."""
        row = self.rows.pop(job_id)
        del self.views[job_id]
        self.in_force.pop(job_id, None)
        self.columns.deadline[row] = inf
        self.columns.segment_count[row] = 0
        self.columns.share[row] = 0
        self.spare_rows.append(row)

    def drop_all(self, names: Iterable[JobId]) -> None:
        """Free the rows of these jobs."""
        places = []
        for job_id in names:
            places.append(self.rows.pop(job_id))
            del self.views[job_id]
            self.in_force.pop(job_id, None)
        rows = np.array(places, np.int64)
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
    table.roster = roster = call_roll(snapshot)
    for job_id in [job_id for job_id in table.rows if job_id not in roster.planned]:
        table.drop(job_id)
    views = table.views
    for job_id, view in roster.planned.items():
        seen = views.get(job_id)
        if seen is None:
            table.add(view)
        elif seen is not view:
            table.see(view)
    # in arrival order however they came in: a plan table without a cache breaks ties alike
    table.rows = {job_id: table.rows[job_id] for job_id in roster.planned}
    table.settle()
    table.columns.touched[:] = 0
    old = table.columns
    table.columns = old._replace(
        old_times=np.empty(old.old_times.shape), old_shares=np.empty(old.old_shares.shape, np.int64)
    )
    rows = active_rows(table)
    filling.keep_in_force(table.columns, rows)
    table.offered = tuple(view.promise.plan for view in roster.offered.values() if view.promise is not None)
    table.capacity = free_capacity(table)
    overruns = find_overruns(table, rows)
    filling.occupy_all(table.capacity, table.columns, np.setdiff1d(rows, overruns) if len(overruns) else rows)
    if len(overruns):
        mend_overruns(table, overruns)
    return table


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


def call_roll(snapshot: Snapshot) -> JobRoster:
    """Who is there: the one walk of a decision over all jobs."""
    roster = JobRoster()
    planned, waiting, best_effort, offered = roster.planned, roster.waiting, roster.best_effort, roster.offered
    for job_id, view in snapshot.jobs.items():
        status = view.status
        if status is OFFERED:
            offered[job_id] = view
            continue
        if status is PENDING or status is WAITLISTED:
            waiting[job_id] = view
        if view.promise is not None:
            planned[job_id] = view
            continue
        if view.job.deadline_s == inf:
            best_effort.append(view)
        if view.share:
            roster.borrowing.append(job_id)
    return roster


def is_at_rest(now_s: float, snapshot: Snapshot) -> bool:
    """Whether there is nothing to decide: no one is new or waits, and everyone holds all it can use to its end."""
    return not snapshot.changes.arrived and all(_holds_its_peak(now_s, view) for view in snapshot.jobs.values())


def _holds_its_peak(now_s: float, view: JobView) -> bool:
    if view.promise is None or view.status is not Status.ADMITTED:
        return False
    last = view.promise.plan.segments[-1]
    return last.start_s <= now_s and view.share == last.share == view.job.curve.peak


def free_capacity(table: PlanTable) -> Capacity:
    """All devices from now on, but for those that open offers reserve and those planned for jobs that will be late."""
    rows = len(table.columns.deadline) + len(table.roster.offered)  # more of these may be reserved for later
    capacity = filling.empty_capacity(rows, table.now_s, table.devices)
    for plan in table.offered:
        occupy_plan(table, capacity, plan, 1)
    filling.occupy_all(capacity, table.columns, table.late)
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
        in_force=dict(table.in_force),
    )


def copy_columns(columns: JobColumns) -> JobColumns:
    """The same columns in arrays of their own, but for the plans in force, which are written once for a table."""
    return JobColumns._make([column.copy() for column in columns[:-2]] + [*columns[-2:]])


def copy_plans(columns: JobColumns) -> JobColumns:
    """The same columns, those of the plans in arrays of their own."""
    return columns._replace(
        segment_count=columns.segment_count.copy(),
        segment_times=columns.segment_times.copy(),
        segment_shares=columns.segment_shares.copy(),
        finish=columns.finish.copy(),
        held=columns.held.copy(),
    )


def rows_but(table: PlanTable, names: Iterable[JobId]) -> Ints:
    """The rows in use, in their order, but for those of these jobs."""
    rows, left_out = active_rows(table), [table.rows[name] for name in names]
    return rows[~np.isin(rows, left_out)] if left_out else rows


def active_rows(table: PlanTable) -> Ints:
    """The rows in use: of jobs that were promised before in arrival order, then as they were added."""
    return np.fromiter(table.rows.values(), np.int64, len(table.rows))
