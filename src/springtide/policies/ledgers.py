"""The promised jobs of a Snapshot as columns, with their plans and what those leave free.

A `Ledger` is opened at the start of a decision, changed while deciding, and closed into a Decision. It carries the
columns from call to call in `cache`; a ledger opened without one is built from the Snapshot and decides the same.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from springtide.core.decisions import JobView, Plan, Segment, Snapshot, Status
from springtide.core.jobs import Job, JobId
from springtide.placement.rehearsal import Certificate
from springtide.policies import filling
from springtide.policies.filling import Capacity, Floats, Ints, Roster


@dataclass(slots=True)
class Ledger:
    """Rows of a roster by job id. `base_*` hold progress as last seen, from which `roster.work` is settled to now."""

    now_s: float
    devices: int
    rows: dict[JobId, int]
    spare_rows: list[int]
    views: dict[JobId, JobView]
    roster: Roster
    base_work: Floats
    base_rate: Floats
    base_since: Floats
    capacity: Capacity
    trial: Roster
    certificate: Certificate | None = None  # of the last plans that were rehearsed
    offered: tuple[Plan, ...] = ()  # reservations of open offers: fixed, and gone when the offers are

    def add(self, view: JobView) -> int:
        """A row for a job, with its levels and progress and without a plan."""
        if not self.spare_rows:
            self._extend(max(32, 2 * len(self.roster.deadline)), self.roster.shares.shape[1])
        if len(view.job.curve.levels) > self.roster.shares.shape[1]:
            self._extend(len(self.roster.deadline), len(view.job.curve.levels))
        row = self.spare_rows.pop()
        write_job(self.roster, row, view.job)
        self.rows[view.job.id] = row
        self.see(view)
        self.roster.work[row] = view.progress.work_left_at(self.now_s)
        return row

    def see(self, view: JobView) -> None:
        """Take over the progress and holdings of a job, and its plan if it has one."""
        row = self.rows[view.job.id]
        self.views[view.job.id] = view
        progress = view.progress
        self.base_work[row], self.base_rate[row] = progress.work_left, progress.rate
        self.base_since[row] = max(progress.since_s, progress.paused_until_s)
        self.roster.ready[row] = progress.paused_until_s
        self.roster.share[row] = view.share
        if view.promise is not None:
            write_plan(self.roster, row, view.promise.plan)

    def drop(self, job_id: JobId) -> None:
        """Free the row of a job."""
        row = self.rows.pop(job_id)
        del self.views[job_id]
        self.roster.deadline[row] = inf
        self.roster.segment_count[row] = 0
        self.roster.share[row] = 0
        self.spare_rows.append(row)

    def settle(self) -> None:
        """Bring the work left of every row to now."""
        ran_s = np.maximum(self.now_s - self.base_since, 0.0)
        np.maximum(self.base_work - self.base_rate * ran_s, 0.0, out=self.roster.work)

    def plan(self, row: int) -> Plan:
        """The plan in a row as a value."""
        count = int(self.roster.segment_count[row])
        times = self.roster.segment_times[row, :count].tolist()
        shares = self.roster.segment_shares[row, :count].tolist()
        return Plan(
            tuple(Segment(time, share) for time, share in zip(times, shares, strict=True)),
            float(self.roster.finish[row]),
            float(self.roster.held[row]),
        )

    def _extend(self, jobs: int, levels: int) -> None:
        old = self.roster
        self.roster = filling.empty_roster(jobs, levels)
        size = len(old.deadline)
        for before, after in zip(old, self.roster, strict=True):
            if before.ndim == 1:
                after[:size] = before
            else:
                after[:size, : before.shape[1]] = before
        self.base_work = np.concatenate([self.base_work, np.zeros(jobs - size)])
        self.base_rate = np.concatenate([self.base_rate, np.zeros(jobs - size)])
        self.base_since = np.concatenate([self.base_since, np.zeros(jobs - size)])
        self.spare_rows[:0] = range(jobs - 1, size - 1, -1)
        capacity = filling.empty_capacity(jobs, self.now_s, self.devices)
        used = int(self.capacity.size[0])
        capacity.times[:used], capacity.free[:used] = self.capacity.times[:used], self.capacity.free[:used]
        capacity.size[0] = used
        self.capacity = capacity
        self.trial = filling.empty_roster(1, levels)


def write_job(roster: Roster, row: int, job: Job) -> None:
    """What of a job never changes: its deadline and the levels worth holding."""
    levels = job.curve.levels
    roster.deadline[row] = job.deadline_s
    roster.start_s[row] = job.overhead.start_s
    roster.level_count[row] = len(levels)
    roster.segment_count[row] = 0
    for level, share in enumerate(levels):
        roster.shares[row, level] = share
        roster.rates[row, level] = job.curve.rate(share)
        roster.pauses[row, level] = job.overhead.pause_s(share)


def write_plan(roster: Roster, row: int, plan: Plan) -> None:
    """A plan into its row."""
    roster.finish[row], roster.held[row] = plan.finish_s, plan.held_until_s
    roster.segment_count[row] = len(plan.segments)
    for position, segment in enumerate(plan.segments):
        roster.segment_times[row, position] = segment.start_s
        roster.segment_shares[row, position] = segment.share


def open_ledger(now_s: float, snapshot: Snapshot) -> Ledger:
    """The promised jobs of a Snapshot, settled to now, and what their plans leave free."""
    ledger = copy_ledger(snapshot.cache, now_s) if isinstance(snapshot.cache, Ledger) else new_ledger(now_s, snapshot)
    for job_id in [job_id for job_id in ledger.rows if job_id not in snapshot.jobs]:
        ledger.drop(job_id)
    offered = []
    for job_id, view in snapshot.jobs.items():
        if view.promise is None:
            continue
        if view.status is Status.OFFERED:
            offered.append(view.promise.plan)
            continue
        if job_id not in ledger.rows:
            ledger.add(view)
        elif ledger.views[job_id] is not view:
            ledger.see(view)
    # in arrival order however they came in: a ledger without a cache breaks ties alike
    ledger.rows = {job_id: ledger.rows[job_id] for job_id in snapshot.jobs if job_id in ledger.rows}
    ledger.settle()
    ledger.roster.touched[:] = 0
    ledger.offered = tuple(offered)
    ledger.capacity = free_capacity(ledger)
    filling.occupy_all(ledger.capacity, ledger.roster, active_rows(ledger))
    return ledger


def is_at_rest(now_s: float, snapshot: Snapshot) -> bool:
    """Whether there is nothing to decide: no one is new or waits, and everyone holds all it can use to its end."""
    return not snapshot.changes.arrived and all(_holds_its_peak(now_s, view) for view in snapshot.jobs.values())


def _holds_its_peak(now_s: float, view: JobView) -> bool:
    if view.promise is None or view.status is not Status.ADMITTED:
        return False
    last = view.promise.plan.segments[-1]
    return last.start_s <= now_s and view.share == last.share == view.job.curve.peak


def free_capacity(ledger: Ledger) -> Capacity:
    """All devices from now on, but for those that open offers reserve."""
    rows = len(ledger.roster.deadline) + len(ledger.offered)
    capacity = filling.empty_capacity(rows, ledger.now_s, ledger.devices)
    for plan in ledger.offered:
        occupy_plan(ledger, capacity, plan, 1)
    return capacity


def occupy_plan(ledger: Ledger, capacity: Capacity, plan: Plan, sign: int) -> None:
    """Take a plan that has no row out of the free devices (sign 1), or give it back (sign -1)."""
    write_plan(ledger.trial, 0, plan)
    filling.occupy(capacity, ledger.trial, 0, sign)


def new_ledger(now_s: float, snapshot: Snapshot) -> Ledger:
    """A ledger without jobs."""
    size, levels = 32, 8
    return Ledger(
        now_s,
        snapshot.cluster.total,
        {},
        list(range(size - 1, -1, -1)),
        {},
        filling.empty_roster(size, levels),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        filling.empty_capacity(size, now_s, snapshot.cluster.total),
        filling.empty_roster(1, levels),
    )


def copy_ledger(ledger: Ledger, now_s: float) -> Ledger:
    """A ledger that may be changed without changing this one."""
    return Ledger(
        now_s,
        ledger.devices,
        dict(ledger.rows),
        list(ledger.spare_rows),
        dict(ledger.views),
        copy_roster(ledger.roster),
        ledger.base_work.copy(),
        ledger.base_rate.copy(),
        ledger.base_since.copy(),
        ledger.capacity,
        ledger.trial,
        ledger.certificate,
    )


def copy_roster(roster: Roster) -> Roster:
    """The same columns in arrays of their own."""
    return Roster._make(column.copy() for column in roster)


def copy_plans(roster: Roster) -> Roster:
    """The same columns, those of the plans in arrays of their own."""
    return roster._replace(
        segment_count=roster.segment_count.copy(),
        segment_times=roster.segment_times.copy(),
        segment_shares=roster.segment_shares.copy(),
        finish=roster.finish.copy(),
        held=roster.held.copy(),
    )


def active_rows(ledger: Ledger) -> Ints:
    """The rows in use: of jobs that were promised before in arrival order, then as they were added."""
    return np.fromiter(ledger.rows.values(), np.int64, len(ledger.rows))
