"""Free devices over time as arrays: cut where plans begin and end, taken and given back. Kernels of `filling`."""

from springtide.policies.planning.columns import SIZES, Capacity, Floats, Ints, JobColumns
from springtide.policies.planning.compilation import kernel


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
    for known in range(1, SIZES + 1):
        if position < capacity.size[known]:
            capacity.size[known] += 1
    return position + 1


@kernel
def pass_full(capacity: Capacity, devices: int, stop: int) -> int:
    """How many of the first entries, up to `stop`, have too little for so many devices, as far as need be looked.

    What is seen is kept: until devices are given back there is no more to be found in these entries.
    """
    known, least = 1, 1
    while known < SIZES and 2 * least <= devices:
        known, least = known + 1, 2 * least
    full = capacity.size[known]
    while full < stop and capacity.free[full] < least:
        full += 1
    capacity.size[known] = max(full, capacity.size[known])
    return int(min(full, stop))


@kernel
def join_equals(capacity: Capacity) -> None:
    """Leave out cuts between entries with as many free devices: plans that were given back have left theirs.

    There is room for the cuts of a plan in each row, not for those of all that were tried. Only where it has run out,
    and where `select` drops a job: a sum over other entries has other last digits.
    """
    last = 0
    for k in range(1, capacity.size[0]):
        if capacity.free[k] != capacity.free[last]:
            last += 1
            capacity.times[last], capacity.free[last] = capacity.times[k], capacity.free[k]
    capacity.size[:] = 0
    capacity.size[0] = last + 1


@kernel
def occupy(capacity: Capacity, columns: JobColumns, job: int, sign: int) -> None:
    """Take the plan of a job out of the free devices (sign 1), or give it back (sign -1), from now on."""
    now_s = capacity.times[0]
    count = columns.segment_count[job]
    if capacity.size[0] + count >= len(capacity.times):
        join_equals(capacity)
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
        if sign < 0:
            for known in range(1, SIZES + 1):
                capacity.size[known] = min(capacity.size[known], first)
    pass_full(capacity, 1, capacity.size[0])


@kernel
def occupy_each(capacity: Capacity, columns: JobColumns, rows: Ints) -> None:
    """Take the plans of these rows out of the free devices, one by one."""
    for row in rows:
        occupy(capacity, columns, row, 1)
