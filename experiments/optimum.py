"""Bounds what any scheduler could reach on a set of jobs, knowing the future and rescaling for free.

The interval programme: time is cut at all submissions and deadlines; a variable says for which fraction of an
interval a job runs at a share; a job counts if its work fits into its window. Only the choice of jobs is integer and
no slot rounding enters, so its optimum is a valid upper bound. A schedule is made from the solution and replayed by the
engine; what the replay meets is the lower bound. Instances that are too large get the linear relaxation, on coarser
intervals if need be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from time import perf_counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import csr_array

from experiments.fixed_schedules import Schedule, ScheduledShare, follow, merge
from experiments.optimum_packing import ENOUGH, pack
from springtide.core.curves import Curve
from springtide.core.devices import Cluster
from springtide.core.jobs import Job
from springtide.simulator.reports import TOLERANCE_S

MILP_COLUMNS = 30_000  # above this only the relaxation is tried; forty jobs on 32 devices stay well below
LP_COLUMNS = (15_000, 150_000)  # sizes to which larger ones are coarsened, in turn

Method = Literal["milp", "lp", "alone"]
METHODS: tuple[Method, ...] = ("milp", "lp", "alone")  # from tight to loose
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bound:
    """How many deadlines can be met: at least `lower` (the schedule shows it), at most `upper`."""

    lower: int
    upper: int
    schedule: Schedule
    seconds: float
    method: Method

    def describe(self, deadlines: int) -> str:
        """The bounds as shares of the deadline jobs."""
        low, high = self.lower / max(1, deadlines), self.upper / max(1, deadlines)
        if self.method == "milp":
            return f"{high:.3f}" if self.lower == self.upper else f"{low:.3f} to {high:.3f}"
        return f"at most {high:.3f}"


def upper_bound(jobs: Sequence[Job], cluster: Cluster, time_limit_s: float = 60.0) -> Bound:
    """Bounds on how many deadlines can be met on a cluster; best-effort jobs take no part.

    Jobs whose windows form groups without overlap are solved apart, each with its part of the time limit.
    """
    started_s = perf_counter()
    feasible = [job for job in jobs if not job.best_effort and _fits_alone(job)]
    groups = list(_split(feasible))
    sizes = [min(_count_columns(group), LP_COLUMNS[-1]) for group in groups]
    limits = [max(1.0, time_limit_s * size / sum(sizes)) for size in sizes]
    parts = [_solve(group, cluster.total, limit_s) for group, limit_s in zip(groups, limits, strict=True)]
    schedule = merge([piece for part in parts for piece in part.pieces])
    return Bound(
        follow(feasible, cluster, schedule) if schedule else 0,
        sum(part.upper for part in parts),
        schedule,
        perf_counter() - started_s,
        max((part.method for part in parts), key=METHODS.index, default="milp"),
    )


def _fits_alone(job: Job) -> bool:
    return job.submit_s + job.work / max(job.curve.rates) <= job.deadline_s + TOLERANCE_S


def _split(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Groups of jobs such that no window of one overlaps a window of another."""
    group: list[Job] = []
    open_until_s = 0.0
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.index)):
        if group and job.submit_s >= open_until_s:
            yield group
            group = []
        open_until_s = max(open_until_s, job.deadline_s) if group else job.deadline_s
        group.append(job)
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class Programme:
    """The columns of one interval programme: for each its job, interval, share and speed; `room` is the fraction
    of the interval that lies in the job's window (1 unless intervals were made coarser)."""

    jobs: Sequence[Job]
    devices: int
    edges: Floats
    job: Ints
    interval: Ints
    share: Floats
    rate: Floats
    room: Floats

    @property
    def lengths(self) -> Floats:
        """Seconds of each interval."""
        return np.diff(self.edges)


@dataclass(frozen=True, slots=True)
class ProgrammePart:
    """What is known of one group of jobs."""

    upper: int
    method: Method
    pieces: Sequence[ScheduledShare] = ()


def _count_columns(jobs: Sequence[Job]) -> int:
    """The size of the exact programme, without building it."""
    edges = _list_edges(jobs)
    first = np.searchsorted(edges, [job.submit_s for job in jobs])
    last = np.searchsorted(edges, [job.deadline_s for job in jobs])
    return int(np.dot(last - first, [len(hull(job.curve)[0]) for job in jobs]))


def _list_edges(jobs: Sequence[Job]) -> Floats:
    return np.unique([instant for job in jobs for instant in (job.submit_s, job.deadline_s)])


def _coarsen(jobs: Sequence[Job], devices: int, columns: int) -> Programme:
    """A programme of at most so many columns: every second instant is left out until it is small enough.

    Capacity then holds on average over longer intervals, so what it allows is more, and its optimum still a bound.
    """
    edges = _list_edges(jobs)
    programme = _fill(jobs, devices, edges)
    while len(programme.job) > columns and len(edges) > 3:
        edges = np.unique(np.concatenate((edges[::2], edges[-1:])))
        programme = _fill(jobs, devices, edges)
    return programme


def _fill(jobs: Sequence[Job], devices: int, edges: Floats) -> Programme:
    columns = [_fill_job(number, job, edges) for number, job in enumerate(jobs)]
    number, interval, share, rate, room = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Programme(jobs, devices, edges, number.astype(np.int64), interval.astype(np.int64), share, rate, room)


def _fill_job(number: int, job: Job, edges: Floats) -> tuple[Floats, ...]:
    """job, interval, share, speed and room of each column of one job."""
    first = int(np.searchsorted(edges, job.submit_s, side="right")) - 1
    last = int(np.searchsorted(edges, job.deadline_s, side="left"))
    intervals = np.arange(first, max(last, first + 1), dtype=np.float64)
    starts, ends = edges[first : first + len(intervals)], edges[first + 1 : first + len(intervals) + 1]
    inside = np.minimum(ends, job.deadline_s) - np.maximum(starts, job.submit_s)
    room = np.clip(inside / (ends - starts), 0.0, 1.0)
    shares, rates = hull(job.curve)
    repeat = len(shares)
    return (
        np.full(len(intervals) * repeat, float(number)),
        np.repeat(intervals, repeat),
        np.tile(np.array(shares, dtype=np.float64), len(intervals)),
        np.tile(np.array(rates), len(intervals)),
        np.repeat(room, repeat),
    )


def hull(curve: Curve) -> tuple[list[int], list[float]]:
    """The shares on the upper concave hull of (0, 0) and the curve up to its peak, with their speeds.

    Running at another share is never better than running at its two neighbours on the hull in turn.
    """
    points: list[tuple[int, float]] = [(0, 0.0)]
    for share in curve.levels:
        point = (share, curve.rate(share))
        while len(points) > 1 and _slope(points[-2], point) >= _slope(points[-2], points[-1]):
            points.pop()
        points.append(point)
    return [share for share, _ in points[1:]], [rate for _, rate in points[1:]]


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


def _solve(jobs: Sequence[Job], devices: int, time_limit_s: float) -> ProgrammePart:
    """What can be met of one group of jobs, each of which could be met alone."""
    if len(jobs) == 1:
        return ProgrammePart(1, "milp", _schedule(jobs, devices, time_limit_s))
    if _count_columns(jobs) > MILP_COLUMNS:
        return _relax(jobs, devices, time_limit_s)
    result = _maximise(_fill(jobs, devices, _list_edges(jobs)), True, time_limit_s)
    upper = _round_down(getattr(result, "mip_dual_bound", None), len(jobs))
    if result.x is None:
        return ProgrammePart(upper, "milp")
    chosen = [job for job, done in zip(jobs, result.x[-len(jobs) :], strict=True) if done > 0.5]
    return ProgrammePart(upper, "milp", _schedule(chosen, devices, time_limit_s))


def _relax(jobs: Sequence[Job], devices: int, time_limit_s: float) -> ProgrammePart:
    """The best of the linear relaxations that can be solved in time, from coarse to fine."""
    best = ProgrammePart(len(jobs), "alone")
    until_s = perf_counter() + time_limit_s
    for columns in LP_COLUMNS:
        left_s = until_s - perf_counter()
        if left_s <= 0:
            break
        result = _maximise(_coarsen(jobs, devices, columns), False, left_s)
        if result.status == 0:
            best = ProgrammePart(min(best.upper, _round_down(result.fun, len(jobs))), "lp")
    return best


def _round_down(objective: float | None, count: int) -> int:
    """The bound in whole jobs from that of the solver, which minimises."""
    return count if objective is None or not isfinite(objective) else min(count, floor(-objective + 1e-6))


def _maximise(programme: Programme, whole: bool, time_limit_s: float) -> OptimizeResult:
    """Solve the programme for the most jobs; the last columns say which jobs are done."""
    count, columns = len(programme.jobs), len(programme.job)
    return milp(
        np.concatenate((np.zeros(columns), -np.ones(count))),
        integrality=np.concatenate((np.zeros(columns), np.full(count, int(whole)))),
        bounds=Bounds(0.0, np.concatenate((programme.room, np.ones(count)))),
        constraints=[*_limit_time(programme, count), _link_work(programme)],
        # Any gap below one deadline proves the optimum.
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.99 / count},
    )


def _needed_work(jobs: Sequence[Job]) -> Floats:
    """The work of each job, less what the tolerance of a deadline lets it do late: the bound covers that too."""
    return np.array([max(job.work - max(job.curve.rates) * TOLERANCE_S, job.work * 0.5) for job in jobs])


def _limit_time(programme: Programme, extra: int) -> tuple[LinearConstraint, LinearConstraint]:
    """No job runs longer than an interval, and no interval holds more devices than there are."""
    columns = len(programme.job)
    intervals = len(programme.edges) - 1
    pairs, row = np.unique(programme.job * intervals + programme.interval, return_inverse=True)
    room = np.zeros(len(pairs))
    room[row] = programme.room
    position = np.arange(columns)
    own = csr_array((np.ones(columns), (row, position)), shape=(len(pairs), columns + extra))
    shared = csr_array(
        (programme.share / programme.devices, (programme.interval, position)), shape=(intervals, columns + extra)
    )
    return LinearConstraint(own, ub=room), LinearConstraint(shared, ub=np.ones(intervals))


def _link_work(programme: Programme) -> LinearConstraint:
    """A job is done only if all its work is: sum of speed * seconds / work >= its `done` column."""
    columns, count = len(programme.job), len(programme.jobs)
    gain = programme.rate * programme.lengths[programme.interval] / _needed_work(programme.jobs)[programme.job]
    rows = np.concatenate((programme.job, np.arange(count)))
    values = np.concatenate((gain, -np.ones(count)))
    matrix = csr_array((values, (rows, np.arange(columns + count))), shape=(count, columns + count))
    return LinearConstraint(matrix, lb=0.0)


def _schedule(jobs: Sequence[Job], devices: int, time_limit_s: float) -> list[ScheduledShare]:
    """Pieces that finish as many of the jobs as can be packed exactly; the one that lacks most is dropped, in turn."""
    chosen = list(jobs)
    until_s = perf_counter() + time_limit_s
    while chosen:
        packing = pack(chosen, devices, until_s - perf_counter())
        if packing.shortfalls.max() <= ENOUGH or perf_counter() >= until_s:
            return packing.pieces
        del chosen[int(packing.shortfalls.argmax())]
    return []
