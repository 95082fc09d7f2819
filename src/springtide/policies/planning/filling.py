"""Progressive filling over time: the planner that every promise rests on (ElasticFlow §4.2).

A job's plan is a share for each stretch of time. `fill` finds the smallest level j such that holding
min(j, free(t)) devices, rescale pauses included, finishes the work by the deadline. Free capacity is a step function
(times, free); plans are subtracted from it. All of it works on plain arrays, one row per job, so that numba can compile
it (`compilation`); until then the same functions run as Python and give the same floats.
"""

from math import inf

import numpy as np

from springtide.policies.planning.columns import MAX_SEGMENTS as MAX_SEGMENTS
from springtide.policies.planning.columns import Capacity as Capacity
from springtide.policies.planning.columns import Floats as Floats
from springtide.policies.planning.columns import Ints as Ints
from springtide.policies.planning.columns import JobColumns as JobColumns
from springtide.policies.planning.columns import empty_capacity as empty_capacity
from springtide.policies.planning.columns import empty_columns as empty_columns
from springtide.policies.planning.compilation import kernel

GUARD_S = 5e-7
HOPE_S = 1.0  # a level that misses a deadline by this much at its best is not tried


@kernel
def find(times: Floats, size: int, time_s: float) -> int:
    """The last entry that starts at or before a time."""
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        if times[middle] <= time_s:
            low = middle
        else:
            high = middle
    return low


@kernel
def cut(capacity: Capacity, time_s: float) -> int:
    """The entry that starts exactly at a time, inserted if there is none."""
    times, free, size = capacity.times, capacity.free, capacity.size[0]
    position = find(times, size, time_s)
    if times[position] == time_s:
        return position
    for k in range(size, position + 1, -1):
        times[k], free[k] = times[k - 1], free[k - 1]
    times[position + 1], free[position + 1] = time_s, free[position]
    capacity.size[0] = size + 1
    return position + 1


@kernel
def occupy(capacity: Capacity, columns: JobColumns, job: int, sign: int) -> None:
    """Take the plan of a job out of the free devices (sign 1), or give it back (sign -1), from now on."""
    now_s = capacity.times[0]
    count = columns.segment_count[job]
    for s in range(count):
        share = columns.segment_shares[job, s]
        end_s = columns.segment_times[job, s + 1] if s + 1 < count else columns.held[job]
        start_s = max(columns.segment_times[job, s], now_s)
        if share == 0 or end_s <= start_s:
            continue
        first = cut(capacity, start_s)
        last = cut(capacity, end_s)
        for k in range(first, last):
            capacity.free[k] -= sign * share


@kernel
def resume(columns: JobColumns, job: int, level: int, held: int, now_s: float, ready: float) -> float:
    """When a job that changes from `held` devices to a level makes steps again: `Overhead.resumes_s` on columns."""
    resumes_s: float = now_s + columns.pauses[job, level]
    if held == 0:
        resumes_s += columns.start_s[job]
    elif columns.start_s[job] > 0.0:
        resumes_s = max(resumes_s, ready)
    return resumes_s


@kernel
def walk(
    capacity: Capacity, columns: JobColumns, job: int, cap: int, reserve: float, times: Floats, shares: Ints
) -> tuple[float, float, int, int]:
    """Hold the largest level <= min(level `cap`, free) at all times.

    `reserve` is extra work whose time is held after the finish. Returns (finish, held until, segments up to there,
    segments up to the finish); the first two are infinite if the work never ends, or after more than MAX_SEGMENTS
    changes.
    """
    # Invariant at entry k: `work` is what is left at bounds[k] after holding the shares written so far, no step is made
    # before `ready`, and the segments written are what is held up to bounds[k].
    free, size = capacity.free, capacity.size[0]
    bounds = capacity.times
    share = columns.share[job]
    ready = columns.ready[job]
    work = columns.work[job]
    finish = inf
    count = short = 0
    level = -1
    for k in range(size):
        start_s = bounds[k]
        end_s = bounds[k + 1] if k + 1 < size else inf
        level = cap
        while level >= 0 and columns.shares[job, level] > free[k]:
            level -= 1
        held = columns.shares[job, level] if level >= 0 else 0
        # a share that stays costs no pause, however often the free devices around it change; the first entry is written
        # even so: a plan says what is held from now on
        if held != share or k == 0:
            if held != share and held > 0:
                ready = resume(columns, job, level, share, start_s, ready)
            share = held
            if count == MAX_SEGMENTS:
                break  # too many changes: infinite, as if the work never ended
            times[count], shares[count] = start_s, held
            count += 1
        if held == 0:
            continue
        begin = max(start_s, ready)
        if begin >= end_s:
            continue  # all of this entry is pause
        rate = columns.rates[job, level]
        # the finish is taken once, where the work itself ends; the walk goes on through the reserve, which may end some
        # entries later and at other shares. `short` is where a plan without a reserve may be cut off.
        if finish == inf and begin + work / rate <= end_s:
            finish, short = begin + work / rate, count
        total = work + reserve
        if begin + total / rate <= end_s:
            return finish, begin + total / rate + GUARD_S, count, short
        work -= rate * (end_s - begin)
    return finish, inf, count, short


@kernel
def store(columns: JobColumns, job: int, finish: float, held: float, count: int, times: Floats, shares: Ints) -> None:
    """Make what `walk` wrote the plan of a job."""
    columns.touched[job] = 1
    columns.finish[job] = finish
    columns.held[job] = held
    columns.segment_count[job] = count
    for s in range(count):
        columns.segment_times[job, s] = times[s]
        columns.segment_shares[job, s] = shares[s]


@kernel
def fill(capacity: Capacity, columns: JobColumns, job: int, lowest: int) -> bool:
    """Plan a job at the smallest level from `lowest` on that meets its deadline, with a reserve if one can be had.

    The reserve is the work lost in one pause at the level's share: a forced move never makes the job late.
    """
    times = np.zeros(MAX_SEGMENTS)
    shares = np.zeros(MAX_SEGMENTS, np.int64)
    limit = columns.deadline[job] + GUARD_S
    for cap in range(lowest, columns.level_count[job]):
        if capacity.times[0] + columns.work[job] / columns.rates[job, cap] > limit + HOPE_S:
            continue  # late even if all devices were free
        reserve = columns.pauses[job, cap] * columns.rates[job, cap]
        finish, held, count, short = walk(capacity, columns, job, cap, reserve, times, shares)
        if held > limit or held == inf:
            held, count = finish + GUARD_S, short
        if held <= limit:
            store(columns, job, finish, held, count, times, shares)
            return True
    return False


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
def device_seconds(columns: JobColumns, job: int, now_s: float) -> float:
    """Device-seconds that the plan of a job still takes up to its finish."""
    total = 0.0
    count = columns.segment_count[job]
    for s in range(count):
        end_s = columns.segment_times[job, s + 1] if s + 1 < count else columns.finish[job]
        start_s = max(columns.segment_times[job, s], now_s)
        if end_s > start_s:
            total += columns.segment_shares[job, s] * (end_s - start_s)
    return total


@kernel
def share_now(columns: JobColumns, job: int, now_s: float) -> int:
    """The share that the plan of a job holds now."""
    share = 0
    for s in range(columns.segment_count[job]):
        if columns.segment_times[job, s] > now_s:
            break
        share = columns.segment_shares[job, s]
    return share


@kernel
def level_above(columns: JobColumns, job: int, share: int) -> int:
    """The lowest level above a share; -1 at the peak."""
    for level in range(columns.level_count[job]):
        if columns.shares[job, level] > share:
            return level
    return -1


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
    finish, until, count, short = walk(capacity, columns, job, level, reserve, times, shares)
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
    for i in range(len(jobs)):
        level = level_above(columns, jobs[i], share_now(columns, jobs[i], now_s))
        if level >= 0:
            values[i] = try_growth(capacity, columns, jobs[i], level, spare, gain, trial)
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
def occupy_all(capacity: Capacity, columns: JobColumns, rows: Ints) -> None:
    """Take the plans of all these rows out of the free devices."""
    for row in rows:
        occupy(capacity, columns, row, 1)


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
def look_ahead(columns: JobColumns, rows: Ints, now_s: float) -> tuple[float, bool]:
    """The next instant after now at which one of these plans changes, and whether one starts or grows after now."""
    soonest, grows = inf, False
    for row in rows:
        share = 0
        for s in range(columns.segment_count[row]):
            time_s = columns.segment_times[row, s]
            if time_s > now_s:
                soonest = min(soonest, time_s)
                grows = grows or columns.segment_shares[row, s] > share
            share = columns.segment_shares[row, s]
    return soonest, grows


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
    """Plan a job again at the highest share of its plan, after a pause that the plan did not have; in time or not."""
    occupy(capacity, columns, row, -1)
    peak = 0
    for s in range(columns.segment_count[row]):
        peak = max(peak, columns.segment_shares[row, s])
    level = 0
    while level + 1 < columns.level_count[row] and columns.shares[row, level] < peak:
        level += 1
    kept = fill(capacity, columns, row, level)
    occupy(capacity, columns, row, 1)
    return kept


@kernel
def least_cost(columns: JobColumns, row: int, now_s: float) -> float:
    """Device-seconds of a job alone at the smallest level that is in time; at the peak if none is."""
    cost = inf
    for level in range(columns.level_count[row]):
        share = columns.shares[row, level]
        wait_s = max(columns.ready[row] - now_s, 0.0)
        if share != columns.share[row]:
            wait_s = resume(columns, row, level, columns.share[row], 0.0, wait_s)
        needed_s = wait_s + columns.work[row] / columns.rates[row, level]
        cost = share * needed_s
        if now_s + needed_s <= columns.deadline[row]:
            break
    return cost


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
def highest_need(spans: Floats, needs: Floats, ends: Floats, costs: Floats, span_s: float, cost: float) -> float:
    """The most devices needed on average up to any deadline from `span_s` on: by all that end by then, and `cost`.

    Those that end are the promised (`spans` ascending, `needs`) and, of those to come (`ends` ascending, `costs`), the
    ones that cost less than the job. At most the cluster if all can be in time.
    """
    total = cost
    highest = cost / span_s
    i = j = 0
    while i < len(spans) or j < len(ends):
        if j == len(ends) or (i < len(spans) and spans[i] <= ends[j]):
            end_s, need = spans[i], needs[i]
            i += 1
        else:
            end_s, need = ends[j], costs[j] if costs[j] < cost else 0.0
            j += 1
        total += need
        highest = max(highest, total / max(end_s, span_s))
    return highest


@kernel
def earliest_end(capacity: Capacity, columns: JobColumns, row: int) -> float:
    """The earliest end that could be promised to a job on what is free, with a reserve."""
    times = np.zeros(MAX_SEGMENTS)
    shares = np.zeros(MAX_SEGMENTS, np.int64)
    best = inf
    for cap in range(columns.level_count[row]):
        reserve = columns.pauses[row, cap] * columns.rates[row, cap]
        best = min(best, walk(capacity, columns, row, cap, reserve, times, shares)[1])
    return best


@kernel
def largest_work(capacity: Capacity, columns: JobColumns, row: int) -> float:
    """The most work of a job that could be promised by its deadline on what is free, with a reserve."""
    wanted = columns.work[row]
    times = np.zeros(MAX_SEGMENTS)
    shares = np.zeros(MAX_SEGMENTS, np.int64)
    low, high = 0.0, 1.0
    for _ in range(20):  # to a millionth of the work
        columns.work[row] = wanted * (low + high) / 2
        fits = False
        for cap in range(columns.level_count[row]):
            reserve = columns.pauses[row, cap] * columns.rates[row, cap]
            if walk(capacity, columns, row, cap, reserve, times, shares)[1] <= columns.deadline[row] + GUARD_S:
                fits = True
                break
        if fits:
            low = (low + high) / 2
        else:
            high = (low + high) / 2
    columns.work[row] = wanted
    return float(wanted * low)


@kernel
def select(capacity: Capacity, columns: JobColumns, order: Ints, fixed: Ints, now_s: float) -> Ints:
    """Plan jobs in this order, dropping the costliest whenever one cannot be in time; returns those kept.

    A job that is `fixed` is never the one that is dropped; it is missing from what is kept only if dropping all others
    would not make room for it.
    """
    kept = np.zeros(len(order), np.int64)
    costs = np.zeros(len(order))
    bound = np.zeros(len(order), np.int64)
    count = 0
    for position in range(len(order)):
        row = order[position]
        own = least_cost(columns, row, now_s)
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
            columns.segment_count[row] = 0
            if costliest < 0:
                break
            for k in range(costliest, count):
                occupy(capacity, columns, kept[k], -1)
            columns.segment_count[kept[costliest]] = 0
            again = costliest
            for k in range(costliest + 1, count):
                if fill(capacity, columns, kept[k], 0):
                    occupy(capacity, columns, kept[k], 1)
                    kept[again], costs[again], bound[again] = kept[k], costs[k], bound[k]
                    again += 1
                else:
                    columns.segment_count[kept[k]] = 0
            count = again
    return kept[:count]
