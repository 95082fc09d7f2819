"""What the plans in force leave free, followed from decision to decision, not drawn up anew. Kernels of `filling`.

A ledger has an entry for each instant at which one of these plans takes devices or gives them back, and knows how
many do: so what it says is the same to the last entry, however many changes it has gone through.
"""

from springtide.policies.planning.columns import MAX_SEGMENTS, Capacity, DeviceLedger, Floats, Ints, JobColumns
from springtide.policies.planning.compilation import kernel
from springtide.policies.planning.free_devices import find, pass_full


@kernel
def begin_with(capacity: Capacity, ledger: DeviceLedger) -> None:
    """What a ledger says, into a capacity of nothing but free devices."""
    size = len(ledger.times)
    capacity.times[:size], capacity.free[:size] = ledger.times, ledger.free
    capacity.size[0] = size
    pass_full(capacity, 1, size)


@kernel
def write_differences(
    before: JobColumns, columns: JobColumns, absent: Ints, now_s: float, cuts: Floats, gains: Ints, uses: Ints
) -> int:
    """The cuts of plans that were in force before and of others that are now; returns how many.

    Rows that are `absent` count as without a plan.
    """
    count = 0
    for row in range(len(columns.segment_count)):
        old = before.old_shares[row, MAX_SEGMENTS] if row < len(before.segment_count) else 0
        new = 0 if absent[row] else columns.old_shares[row, MAX_SEGMENTS]
        if old == new and (new == 0 or is_same(before, columns, row)):
            continue
        if old > 0:
            count = write_cuts(before, row, -1, now_s, cuts, gains, uses, count)
        if new > 0:
            count = write_cuts(columns, row, 1, now_s, cuts, gains, uses, count)
    return count


@kernel
def is_same(before: JobColumns, columns: JobColumns, row: int) -> bool:
    """Whether the plan in force in a row holds the same devices at the same times as before."""
    for s in range(columns.old_shares[row, MAX_SEGMENTS]):
        if columns.old_shares[row, s] != before.old_shares[row, s]:
            return False
        if columns.old_times[row, s] != before.old_times[row, s]:
            return False
    return bool(columns.old_times[row, MAX_SEGMENTS + 1] == before.old_times[row, MAX_SEGMENTS + 1])


@kernel
def write_cuts(
    columns: JobColumns, row: int, sign: int, now_s: float, cuts: Floats, gains: Ints, uses: Ints, count: int
) -> int:
    """Append the instants from now on at which a plan in force takes devices or gives them back; sign -1: no longer."""
    segments = columns.old_shares[row, MAX_SEGMENTS]
    for s in range(segments):
        share = columns.old_shares[row, s]
        end_s = columns.old_times[row, s + 1 if s + 1 < segments else MAX_SEGMENTS + 1]
        start_s = max(columns.old_times[row, s], now_s)
        if share > 0 and end_s > start_s:
            cuts[count], gains[count], uses[count] = start_s, -sign * share, sign
            cuts[count + 1], gains[count + 1], uses[count + 1] = end_s, sign * share, sign
            count += 2
    return count


@kernel
def merge(
    ledger: DeviceLedger, now_s: float, cuts: Floats, gains: Ints, uses: Ints, order: Ints, merged: DeviceLedger
) -> int:
    """The ledger from now on with these cuts, taken in this order, into `merged`; returns how many entries it has."""
    size, count = len(ledger.times), len(order)
    k = find(ledger.times, size, now_s)
    level, gained, position, j = ledger.free[k], 0, 0, 0
    while j < count and cuts[order[j]] <= now_s:
        gained += gains[order[j]]
        j += 1
    merged.times[0], merged.free[0], merged.uses[0] = now_s, level + gained, 0
    k += 1
    while k < size or j < count:
        if j == count or (k < size and ledger.times[k] <= cuts[order[j]]):
            time_s, used = ledger.times[k], ledger.uses[k]
            level = ledger.free[k]
            k += 1
        else:
            time_s, used = cuts[order[j]], 0
        while j < count and cuts[order[j]] == time_s:
            gained += gains[order[j]]
            used += uses[order[j]]
            j += 1
        if used > 0:
            position += 1
            merged.times[position], merged.free[position], merged.uses[position] = time_s, level + gained, used
    return position + 1
