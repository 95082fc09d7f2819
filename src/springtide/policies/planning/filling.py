"""Progressive filling over time: the planner that every promise rests on (ElasticFlow §4.2).

A job's plan is a share for each stretch of time. `fill` finds the smallest level j such that holding
min(j, free(t)) devices, rescale pauses included, finishes the work by the deadline. Free capacity is a step function
(times, free); plans are subtracted from it. All of it works on plain arrays, one row per job, so that numba can compile
it (`compilation`); until then the same functions run as Python and give the same floats. The kernels of `plan_making`,
`free_devices` and `plan_reading` are compiled with those here, and used from here.
"""

from math import inf

import numpy as np

from springtide.policies.planning.columns import MAX_SEGMENTS as MAX_SEGMENTS
from springtide.policies.planning.columns import SIZES as SIZES
from springtide.policies.planning.columns import Capacity as Capacity
from springtide.policies.planning.columns import DeviceLedger as DeviceLedger
from springtide.policies.planning.columns import Floats as Floats
from springtide.policies.planning.columns import Ints as Ints
from springtide.policies.planning.columns import JobColumns as JobColumns
from springtide.policies.planning.columns import empty_capacity as empty_capacity
from springtide.policies.planning.columns import empty_columns as empty_columns
from springtide.policies.planning.columns import empty_ledger as empty_ledger
from springtide.policies.planning.compilation import kernel
from springtide.policies.planning.free_devices import cut as cut
from springtide.policies.planning.free_devices import find as find
from springtide.policies.planning.free_devices import join_equals as join_equals
from springtide.policies.planning.free_devices import occupy as occupy
from springtide.policies.planning.free_devices import occupy_each as occupy_each
from springtide.policies.planning.free_devices import pass_full as pass_full
from springtide.policies.planning.ledger import begin_with as begin_with
from springtide.policies.planning.ledger import is_same as is_same
from springtide.policies.planning.ledger import merge as merge
from springtide.policies.planning.ledger import write_cuts as write_cuts
from springtide.policies.planning.ledger import write_differences as write_differences
from springtide.policies.planning.plan_making import GUARD_S as GUARD_S
from springtide.policies.planning.plan_making import HOPE_S as HOPE_S
from springtide.policies.planning.plan_making import MARGIN_S as MARGIN_S
from springtide.policies.planning.plan_making import copy_segments as copy_segments
from springtide.policies.planning.plan_making import could_start as could_start
from springtide.policies.planning.plan_making import fill as fill
from springtide.policies.planning.plan_making import fill_late as fill_late
from springtide.policies.planning.plan_making import keep_in_force as keep_in_force
from springtide.policies.planning.plan_making import mend as mend
from springtide.policies.planning.plan_making import most_time as most_time
from springtide.policies.planning.plan_making import replan_late as replan_late
from springtide.policies.planning.plan_making import store as store
from springtide.policies.planning.plan_making import walk as walk
from springtide.policies.planning.plan_making import write_stretches as write_stretches
from springtide.policies.planning.plan_reading import can_be_in_time as can_be_in_time
from springtide.policies.planning.plan_reading import device_seconds as device_seconds
from springtide.policies.planning.plan_reading import find_below_peak as find_below_peak
from springtide.policies.planning.plan_reading import first_hold as first_hold
from springtide.policies.planning.plan_reading import highest_need as highest_need
from springtide.policies.planning.plan_reading import is_in_force as is_in_force
from springtide.policies.planning.plan_reading import least_cost as least_cost
from springtide.policies.planning.plan_reading import level_above as level_above
from springtide.policies.planning.plan_reading import level_within as level_within
from springtide.policies.planning.plan_reading import look_ahead as look_ahead
from springtide.policies.planning.plan_reading import next_end as next_end
from springtide.policies.planning.plan_reading import planned_peak as planned_peak
from springtide.policies.planning.plan_reading import projected_end as projected_end
from springtide.policies.planning.plan_reading import resume as resume
from springtide.policies.planning.plan_reading import share_now as share_now
from springtide.policies.planning.plan_reading import shortly_before_end as shortly_before_end
from springtide.policies.planning.plan_reading import write_changing as write_changing
from springtide.policies.planning.plan_reading import write_growths as write_growths
from springtide.policies.planning.plan_reading import write_outlooks as write_outlooks
from springtide.policies.planning.plan_reading import write_overruns as write_overruns

KINDS = 16  # of least shares that `grow` looks up when jobs with these could begin


def follow_plans(
    ledger: DeviceLedger, before: JobColumns, columns: JobColumns, absent: Ints, now_s: float
) -> DeviceLedger:
    """The ledger of the plans in force now, from that of those before; rows that are `absent` have no part in it."""
    room = 2 * int(before.old_shares[:, MAX_SEGMENTS].sum() + columns.old_shares[:, MAX_SEGMENTS].sum())
    cuts, gains, uses = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    count = write_differences(before, columns, absent, now_s, cuts, gains, uses)
    merged = empty_ledger(len(ledger.times) + count, now_s, 0)
    size = merge(ledger, now_s, cuts, gains, uses, np.argsort(cuts[:count]), merged)
    return DeviceLedger(merged.times[:size], merged.free[:size], merged.uses[:size])


@kernel
def fill_all(capacity: Capacity, columns: JobColumns, order: Ints) -> int:
    """Plan jobs in this order on what is free; returns how many could be, stopping at the first that could not."""
    for position in range(len(order)):
        job = order[position]
        if not fill(capacity, columns, job, 0):
            return position
        occupy(capacity, columns, job, 1)
    return len(order)


@kernel
def fill_each(capacity: Capacity, columns: JobColumns, order: Ints, lowest: Ints) -> None:
    """Plan each of these jobs in turn on what is left, from a level of its own on; those that cannot be get none."""
    for position in range(len(order)):
        fill(capacity, columns, order[position], lowest[position])
        occupy(capacity, columns, order[position], 1)


@kernel
def try_growth(
    capacity: Capacity, columns: JobColumns, job: int, level: int, spare: int, gain: float, trial: JobColumns
) -> float:
    """Extra device-seconds per extra device if a job held `level` from now on; infinite if it should not.

    It should not where the devices are not there, where its deadline would not be met, or where it would not finish
    earlier by more than `gain` pauses. The plan is left in row 0 of `trial`.
    """
    now_s = capacity.times[0]
    held = share_now(columns, job, now_s)
    extra = columns.shares[job, level] - held
    if extra > spare:
        return inf
    old = device_seconds(columns, job, now_s)
    occupy(capacity, columns, job, -1)
    times, shares = trial.segment_times[0], trial.segment_shares[0]
    best = inf
    limit = columns.deadline[job] + GUARD_S
    reserve = columns.pauses[job, level] * columns.rates[job, level]
    finish, until, count, short = walk(capacity, columns, job, level, reserve, limit, times, shares)
    if until > limit or until == inf:
        until, count = finish + GUARD_S, short
    margin = 0.0
    if columns.shares[job, level] != columns.share[job]:
        margin = gain * columns.pauses[job, level] if gain < inf else inf
    if until <= limit and shares[0] == columns.shares[job, level] and finish < columns.finish[job] - margin:
        trial.finish[0], trial.held[0], trial.segment_count[0] = finish, until, count
        best = (device_seconds(trial, 0, now_s) - old) / extra
    occupy(capacity, columns, job, 1)
    return best


@kernel
def adopt(columns: JobColumns, job: int, trial: JobColumns) -> None:
    """Make the plan in row 0 of `trial` the plan of a job."""
    store(
        columns,
        job,
        trial.finish[0],
        trial.held[0],
        trial.segment_count[0],
        trial.segment_times[0],
        trial.segment_shares[0],
    )


@kernel
def grow(capacity: Capacity, columns: JobColumns, jobs: Ints, spare: int, gain: float, trial: JobColumns) -> int:
    """Hand `spare` devices to jobs, each time to the one whose device-seconds grow least per device; returns the rest.

    Values are recomputed lazily: only the best is checked again before it is taken.
    """
    now_s = capacity.times[0]
    values = np.full(len(jobs), inf)
    # where thousands wait to begin, a plan is tried only for those that could end earlier if they began now
    shares, stretches, kinds = np.zeros(KINDS, np.int64), np.empty((KINDS, MAX_SEGMENTS)), 0
    for i in range(len(jobs)):
        job = jobs[i]
        level = level_above(columns, job, share_now(columns, job, now_s))
        if level < 0 or columns.shares[job, level] > spare + share_now(columns, job, now_s):
            continue
        if level == 0 and columns.share[job] == 0:
            kind = 0
            while kind < kinds and shares[kind] != columns.shares[job, 0]:
                kind += 1
            if kind == kinds and kinds < KINDS:
                shares[kind], kinds = columns.shares[job, 0], kinds + 1
                write_stretches(capacity, shares[kind], stretches[kind])
            if kind < kinds and not could_start(columns, job, stretches[kind], gain):
                continue
        values[i] = try_growth(capacity, columns, job, level, spare, gain, trial)
    while spare > 0 and len(jobs) > 0:
        i = int(np.argmin(values))
        if values[i] == inf:
            break
        job = jobs[i]
        held = share_now(columns, job, now_s)
        level = level_above(columns, job, held)
        value = try_growth(capacity, columns, job, level, spare, gain, trial)
        if value > values[i] + 1e-9:
            values[i] = value
            continue
        occupy(capacity, columns, job, -1)
        adopt(columns, job, trial)
        occupy(capacity, columns, job, 1)
        spare -= columns.shares[job, level] - held
        level = level_above(columns, job, columns.shares[job, level])
        values[i] = try_growth(capacity, columns, job, level, spare, gain, trial) if level >= 0 else inf
    return spare


@kernel
def write_shares_now(columns: JobColumns, rows: Ints, now_s: float, shares: Ints) -> None:
    """The share that each of these plans holds now, into `shares`: an array that comes back from a kernel is costly."""
    for i in range(len(rows)):
        shares[i] = share_now(columns, rows[i], now_s)


def shares_now(columns: JobColumns, rows: Ints, now_s: float) -> Ints:
    """The share that each of these plans holds now."""
    shares = np.empty(len(rows), np.int64)
    write_shares_now(columns, rows, now_s, shares)
    return shares


@kernel
def write_renewed(columns: JobColumns, rows: Ints, now_s: float, renewed: Ints) -> None:
    """Which of these plans are not those in force, into `renewed`."""
    for i in range(len(rows)):
        row = rows[i]
        renewed[i] = columns.touched[row] > 0 and not is_in_force(columns, row, now_s, 0.0)


@kernel
def restore(capacity: Capacity, columns: JobColumns, rows: Ints, trial: JobColumns) -> None:
    """Let jobs keep the share they hold where there is room: a share that stays costs no pause."""
    for row in rows:
        held = columns.share[row]
        if held <= share_now(columns, row, capacity.times[0]):
            continue
        for level in range(columns.level_count[row]):
            if columns.shares[row, level] != held:
                continue
            if try_growth(capacity, columns, row, level, capacity.free[0], 0.0, trial) < inf:
                occupy(capacity, columns, row, -1)
                adopt(columns, row, trial)
                occupy(capacity, columns, row, 1)


@kernel
def shrink(capacity: Capacity, columns: JobColumns, row: int, trial: JobColumns) -> None:
    """Plan a job at the smallest share that is in time, if that is less than it would hold now."""
    held = share_now(columns, row, capacity.times[0])
    occupy(capacity, columns, row, -1)
    trial.finish[0], trial.held[0] = columns.finish[row], columns.held[row]
    trial.segment_count[0] = columns.segment_count[row]
    trial.segment_times[0], trial.segment_shares[0] = columns.segment_times[row], columns.segment_shares[row]
    if not fill(capacity, columns, row, 0) or share_now(columns, row, capacity.times[0]) >= held:
        adopt(columns, row, trial)
    occupy(capacity, columns, row, 1)


@kernel
def replan_paused(capacity: Capacity, columns: JobColumns, row: int) -> bool:
    """Plan a job again at the highest share of its plan, after a pause that the plan did not have; in time or not.

    It is moved as it is: a plan that holds more from now on would not be followed.
    """
    occupy(capacity, columns, row, -1)
    kept = fill(capacity, columns, row, planned_peak(columns, row))
    if kept and share_now(columns, row, capacity.times[0]) != columns.share[row]:
        kept = fill(capacity, columns, row, level_within(columns, row, columns.share[row]))
        kept = kept and share_now(columns, row, capacity.times[0]) == columns.share[row]
    occupy(capacity, columns, row, 1)
    return kept


@kernel
def fill_thriftily(capacity: Capacity, columns: JobColumns, job: int, thrift: float) -> int:
    """Plan a job on what is free: 2 if it is planned and takes no more than `thrift` times what it needs alone.

    Then its plan is taken out of the free devices. 1 if its plan takes more, and is not; 0 if there is none.
    """
    now_s = capacity.times[0]
    if not fill(capacity, columns, job, 0):
        return 0
    if device_seconds(columns, job, now_s) > thrift * least_cost(columns, job, now_s):
        return 1
    occupy(capacity, columns, job, 1)
    return 2


@kernel
def fill_all_thriftily(capacity: Capacity, columns: JobColumns, order: Ints, thrift: float) -> bool:
    """Plan all jobs in this order on what is free, each thriftily; or take none of them out of the free devices."""
    for position in range(len(order)):
        if fill_thriftily(capacity, columns, order[position], thrift) != 2:
            for before in range(position):
                occupy(capacity, columns, order[before], -1)
            return False
    return True


@kernel
def write_least_costs(columns: JobColumns, rows: Ints, now_s: float, costs: Floats) -> None:
    """`least_cost` of each of these jobs, into `costs`."""
    for i in range(len(rows)):
        costs[i] = least_cost(columns, rows[i], now_s)


def least_costs(columns: JobColumns, rows: Ints, now_s: float) -> Floats:
    """`least_cost` of each of these jobs."""
    costs = np.empty(len(rows))
    write_least_costs(columns, rows, now_s, costs)
    return costs


@kernel
def earliest_end(capacity: Capacity, columns: JobColumns, row: int) -> float:
    """The earliest end that could be promised to a job on what is free, with a reserve."""
    times = np.zeros(MAX_SEGMENTS)
    shares = np.zeros(MAX_SEGMENTS, np.int64)
    best = inf
    for cap in range(columns.level_count[row]):
        reserve = columns.pauses[row, cap] * columns.rates[row, cap]
        best = min(best, walk(capacity, columns, row, cap, reserve, inf, times, shares)[1])
    return best


@kernel
def largest_work(capacity: Capacity, columns: JobColumns, row: int) -> float:
    """The most work of a job that could be promised by its deadline on what is free, with a reserve."""
    wanted, limit = columns.work[row], columns.deadline[row] + GUARD_S
    times = np.zeros(MAX_SEGMENTS)
    shares = np.zeros(MAX_SEGMENTS, np.int64)
    low, high = 0.0, 1.0
    for _ in range(20):  # to a millionth of the work
        columns.work[row] = wanted * (low + high) / 2
        fits = False
        for cap in range(columns.level_count[row]):
            reserve = columns.pauses[row, cap] * columns.rates[row, cap]
            if walk(capacity, columns, row, cap, reserve, limit, times, shares)[1] <= limit:
                fits = True
                break
        if fits:
            low = (low + high) / 2
        else:
            high = (low + high) / 2
    columns.work[row] = wanted
    return float(wanted * low)


@kernel
def fits_without(
    capacity: Capacity, columns: JobColumns, row: int, kept: Ints, costs: Floats, bound: Ints, cost: float
) -> bool:
    """Whether a job could be planned beside the others as they are, without those that cost more and are not bound."""
    for k in range(len(kept)):
        if costs[k] > cost and not bound[k]:
            occupy(capacity, columns, kept[k], -1)
    fits = fill(capacity, columns, row, 0)
    for k in range(len(kept)):
        if costs[k] > cost and not bound[k]:
            occupy(capacity, columns, kept[k], 1)
    return fits


@kernel
def select(capacity: Capacity, columns: JobColumns, order: Ints, fixed: Ints, now_s: float, most: int) -> Ints:
    """Plan jobs in this order, dropping the costliest whenever one cannot be in time; returns those kept.

    Nobody is dropped for a job that would have no room without all that cost more, as the others are planned by then.
    A job that is `fixed` is never the one that is dropped; it is missing from what is kept only if dropping all others
    would not make room for it. Once it and another are missing the rest is not looked at: whoever asks for a fixed job
    can make up for one, not for two. Nor is it once more than `most` are missing in all.
    """
    kept = np.zeros(len(order), np.int64)
    costs = np.zeros(len(order))
    bound = np.zeros(len(order), np.int64)
    count = 0
    unbound = False  # whether a fixed job is missing
    for position in range(len(order)):
        if position - count > (1 if unbound else most):
            break
        row = order[position]
        own, is_sure = least_cost(columns, row, now_s), False
        while True:
            if fill(capacity, columns, row, 0):
                occupy(capacity, columns, row, 1)
                kept[count], costs[count], bound[count] = row, own, fixed[position]
                count += 1
                break
            costliest, cost = -1, -1.0 if fixed[position] else own
            for k in range(count):
                if costs[k] > cost and not bound[k]:
                    costliest, cost = k, costs[k]
            if costliest >= 0 and not fixed[position] and not is_sure:
                # whoever has no room even without all who cost more is not worth dropping one of them
                is_sure = fits_without(capacity, columns, row, kept[:count], costs, bound, own)
                costliest = costliest if is_sure else -1
            columns.segment_count[row] = 0
            if costliest < 0:
                unbound = unbound or fixed[position] > 0
                break
            for k in range(costliest, count):
                occupy(capacity, columns, kept[k], -1)
            join_equals(capacity)  # or each job that is dropped would leave the cuts of all that come after it
            columns.segment_count[kept[costliest]] = 0
            again = costliest
            for k in range(costliest + 1, count):
                if fill(capacity, columns, kept[k], 0):
                    occupy(capacity, columns, kept[k], 1)
                    kept[again], costs[again], bound[again] = kept[k], costs[k], bound[k]
                    again += 1
                else:
                    columns.segment_count[kept[k]] = 0
                    unbound = unbound or bound[k] > 0
            count = again
    return kept[:count]
