"""How one plan is made: the largest share up to a level at all times, by the deadline, or as early as can be.

Kernels of `filling`.
"""

from math import inf

import numpy as np

from springtide.policies.planning.columns import MAX_SEGMENTS, Capacity, Floats, Ints, JobColumns
from springtide.policies.planning.compilation import kernel
from springtide.policies.planning.free_devices import find, occupy, pass_full
from springtide.policies.planning.plan_reading import first_hold, is_in_force, planned_peak, resume

# Devices stay planned this much longer than computed. It is half the tolerance within which a deadline is met, so that
# a plan whose computed end is the deadline itself is in time.
GUARD_S = 5e-7
MARGIN_S = 1e-3  # more than the roundings of all entries of a plan together
HOPE_S = 1.0  # a level that misses a deadline by this much at its best is not tried


@kernel
def walk(
    capacity: Capacity,
    columns: JobColumns,
    job: int,
    cap: int,
    reserve: float,
    limit: float,
    times: Floats,
    shares: Ints,
) -> tuple[float, float, int, int]:
    """Hold the largest level <= min(level `cap`, free) at all times.

    `reserve` is extra work whose time is held after the finish. Returns (finish, held until, segments up to there,
    segments up to the finish); the first two are infinite if the work never ends, or after more than MAX_SEGMENTS
    changes. Where they are beyond `limit`, they may be infinite too: nobody looks further.
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
    least, stop = columns.shares[job, 0], find(bounds, size, limit) + 1
    full = pass_full(capacity, least, stop)
    if full > 0:  # as the loop would find it, entry by entry
        times[0], shares[0] = bounds[0], 0
        share, count = 0, 1
    k = full - 1
    while k + 1 < stop:
        k += 1
        # who holds nothing passes over all that is too little for it at once: most of the way to a start that is far
        while share == 0 and 0 < k < stop and free[k] < least:
            k += 1
        if k == stop:
            break
        start_s = bounds[k]
        if start_s > limit:
            break
        end_s = bounds[k + 1] if k + 1 < size else inf
        before, level = level, cap
        while level >= 0 and columns.shares[job, level] > free[k]:
            level -= 1
        held = columns.shares[job, level] if level >= 0 else 0
        # two plans that touch may overlap by the guard of one, or by rounding; that interrupts no one
        if held < share and k > 0 and end_s - start_s <= GUARD_S:
            level, held = before, share
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
        if level == cap and begin == start_s and finish == inf:
            # all it may have, as long as it is there: no more than its work changes until that is about to end
            while k + 1 < stop and free[k + 1] >= held and work > rate * (end_s - start_s + 2.0 * GUARD_S):
                work -= rate * (end_s - start_s)
                k += 1
                start_s, end_s = end_s, bounds[k + 1] if k + 1 < size else inf
            begin = start_s
        # the finish is taken once, where the work itself ends; the walk goes on through the reserve, which may end some
        # entries later and at other shares. `short` is where a plan without a reserve may be cut off.
        if finish == inf and begin + work / rate <= end_s:
            finish, short = begin + work / rate, count
        if finish < inf and begin + (work + reserve) / rate <= end_s:
            return finish, begin + (work + reserve) / rate + GUARD_S, count, short
        work -= rate * (end_s - begin)
    return finish, inf, count, short


@kernel
def store(columns: JobColumns, job: int, finish: float, held: float, count: int, times: Floats, shares: Ints) -> None:
    """Make what `walk` wrote the plan of a job.

    Where that is the plan in force but for a rounding, it is the plan in force: computed anew at each decision, ends
    would differ by their last digits, and with them all that begins when these devices come free.
    """
    columns.touched[job] = 1
    columns.finish[job] = finish
    columns.held[job] = held
    columns.segment_count[job] = count
    for s in range(count):
        columns.segment_times[job, s] = times[s]
        columns.segment_shares[job, s] = shares[s]
    if count and is_in_force(columns, job, times[0], GUARD_S):
        columns.finish[job] = columns.old_times[job, MAX_SEGMENTS]
        columns.held[job] = columns.old_times[job, MAX_SEGMENTS + 1]
        columns.segment_count[job] = columns.old_shares[job, MAX_SEGMENTS]
        for s in range(columns.segment_count[job]):
            columns.segment_times[job, s] = columns.old_times[job, s]
            columns.segment_shares[job, s] = columns.old_shares[job, s]


@kernel
def keep_in_force(columns: JobColumns, rows: Ints) -> None:
    """Note the plans of these jobs as those in force; the others have none."""
    columns.old_shares[:, MAX_SEGMENTS] = 0
    for row in rows:
        count = columns.segment_count[row]
        for s in range(count):
            columns.old_times[row, s] = columns.segment_times[row, s]
            columns.old_shares[row, s] = columns.segment_shares[row, s]
        columns.old_times[row, MAX_SEGMENTS] = columns.finish[row]
        columns.old_times[row, MAX_SEGMENTS + 1] = columns.held[row]
        columns.old_shares[row, MAX_SEGMENTS] = count


@kernel
def copy_segments(columns: JobColumns, copy: JobColumns) -> None:
    """The segments of all plans into other columns: most plans have few, and only these are copied."""
    for row in range(len(columns.segment_count)):
        for s in range(columns.segment_count[row]):
            copy.segment_times[row, s] = columns.segment_times[row, s]
            copy.segment_shares[row, s] = columns.segment_shares[row, s]


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
        finish, held, count, short = walk(capacity, columns, job, cap, reserve, limit, times, shares)
        if held > limit or held == inf:
            held, count = finish + GUARD_S, short
        if held <= limit:
            store(columns, job, finish, held, count, times, shares)
            return True
    return False


@kernel
def write_stretches(capacity: Capacity, share: int, stretches: Floats) -> None:
    """The first stretches of time, from now on, in which so many devices are free: begin, end, begin, end ...

    As `walk` passes through them: what is too little for no longer than the guard interrupts no one.
    """
    size, count = capacity.size[0], 0
    stretches[:] = inf
    for k in range(size):
        start_s, is_enough = capacity.times[k], capacity.free[k] >= share
        if count % 2:
            end_s = capacity.times[k + 1] if k + 1 < size else inf
            if is_enough or end_s - start_s <= GUARD_S:
                continue
        elif not is_enough:
            continue
        stretches[count] = start_s
        count += 1
        if count == len(stretches):
            break


@kernel
def most_time(stretches: Floats, pause_s: float, from_s: float, until_s: float) -> float:
    """The most time for steps up to `until_s` of a job that holds devices in these stretches and at will `from_s` on.

    It pauses wherever it begins. There are as many stretches as a plan can have.
    """
    total, stop_s = 0.0, min(from_s, until_s)
    for k in range(0, len(stretches), 2):
        begin_s, end_s = stretches[k], stretches[k + 1]
        if begin_s >= stop_s:
            if from_s < until_s:
                total += max(until_s - from_s - pause_s, 0.0)
            break
        if end_s >= stop_s:
            total += max(until_s - begin_s - pause_s, 0.0)
            break
        total += max(end_s - begin_s - pause_s, 0.0)
    return total


@kernel
def could_start(columns: JobColumns, job: int, stretches: Floats, gain: float) -> bool:
    """Whether a job that holds nothing, and is to begin later, may end earlier by `gain` pauses if it begins now.

    `stretches` are those in which its least share is free. If not, following a plan from now on would find the same.
    """
    until_s = columns.deadline[job] + GUARD_S
    if gain < inf:
        until_s = min(until_s, columns.finish[job] - gain * columns.pauses[job, 0])
    pause_s = columns.pauses[job, 0] + columns.start_s[job]
    time_s = most_time(stretches, pause_s, first_hold(columns, job), until_s)
    return bool(time_s + MARGIN_S >= columns.work[job] / columns.rates[job, 0])


@kernel
def fill_late(capacity: Capacity, columns: JobColumns, job: int, highest: int) -> None:
    """Plan a job that cannot be in time to end as early as it can on what is free, at a level up to `highest`."""
    times = np.zeros(MAX_SEGMENTS)
    shares = np.zeros(MAX_SEGMENTS, np.int64)
    best, chosen = inf, -1
    for cap in range(highest, -1, -1):
        reserve = columns.pauses[job, cap] * columns.rates[job, cap]
        until = walk(capacity, columns, job, cap, reserve, inf, times, shares)[1]
        if until < best:
            best, chosen = until, cap
    if chosen >= 0:
        reserve = columns.pauses[job, chosen] * columns.rates[job, chosen]
        finish, held, count, _ = walk(capacity, columns, job, chosen, reserve, inf, times, shares)
        store(columns, job, finish, held, count, times, shares)
        return
    # too many changes on the way: once all other plans have ended
    times[0], shares[0] = capacity.times[capacity.size[0] - 1], columns.shares[job, 0]
    finish = resume(columns, job, 0, 0, times[0], columns.ready[job]) + columns.work[job] / columns.rates[job, 0]
    store(columns, job, finish, finish + columns.pauses[job, 0] + GUARD_S, 1, times, shares)


@kernel
def replan_late(capacity: Capacity, columns: JobColumns, row: int) -> None:
    """Plan a job that cannot be in time again, at a level up to the highest of its plan."""
    occupy(capacity, columns, row, -1)
    fill_late(capacity, columns, row, planned_peak(columns, row))
    occupy(capacity, columns, row, 1)


@kernel
def mend(capacity: Capacity, columns: JobColumns, order: Ints, late: Ints) -> None:
    """Plan jobs again that do not get by with their plans, each in turn, on what all other plans leave.

    In time at the highest share of its plan or above, or else as early as can be; `late` says of which that is so.
    """
    for position in range(len(order)):
        row = order[position]
        peak = planned_peak(columns, row)
        late[position] = not fill(capacity, columns, row, peak)
        if late[position]:
            fill_late(capacity, columns, row, peak)
        occupy(capacity, columns, row, 1)
