"""What plans in columns say: shares, changes, ends, and what jobs cost at least. Kernels of `filling`."""

from math import inf

from springtide.policies.planning.columns import MAX_SEGMENTS, Floats, Ints, JobColumns
from springtide.policies.planning.compilation import kernel


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
def first_hold(columns: JobColumns, job: int) -> float:
    """When the plan of a job first holds devices; infinite if it never does."""
    for s in range(columns.segment_count[job]):
        if columns.segment_shares[job, s] > 0:
            return float(columns.segment_times[job, s])
    return inf


@kernel
def is_in_force(columns: JobColumns, job: int, now_s: float, rounding_s: float) -> bool:
    """Whether the plan of a job holds from now on what its plan in force does, up to a rounding of its end.

    What begins later begins when other plans end, and must do so to the last digit.
    """
    times_s, shares = columns.old_times[job], columns.old_shares[job]
    count, old_count = columns.segment_count[job], shares[MAX_SEGMENTS]
    if old_count == 0 or abs(columns.finish[job] - times_s[MAX_SEGMENTS]) > rounding_s:
        return False
    if abs(columns.held[job] - times_s[MAX_SEGMENTS + 1]) > rounding_s:
        return False
    first = old_first = 0  # to begin after now
    while first < count and columns.segment_times[job, first] <= now_s:
        first += 1
    while old_first < old_count and times_s[old_first] <= now_s:
        old_first += 1
    held = columns.segment_shares[job, first - 1] if first else 0
    if count - first != old_count - old_first or held != (shares[old_first - 1] if old_first else 0):
        return False
    for s in range(count - first):
        if columns.segment_shares[job, first + s] != shares[old_first + s]:
            return False
        if columns.segment_times[job, first + s] != times_s[old_first + s]:
            return False
    return True


@kernel
def find_below_peak(columns: JobColumns, rows: Ints, now_s: float) -> int:
    """The place of the last of these jobs whose plan is not to hold its highest share from now on; -1 if all are."""
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        last = columns.segment_count[row] - 1
        if last < 0 or columns.segment_times[row, last] > now_s:
            return i
        if columns.segment_shares[row, last] != columns.shares[row, columns.level_count[row] - 1]:
            return i
    return -1


@kernel
def level_above(columns: JobColumns, job: int, share: int) -> int:
    """The lowest level above a share; -1 at the peak."""
    for level in range(columns.level_count[job]):
        if columns.shares[job, level] > share:
            return level
    return -1


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
def write_growths(columns: JobColumns, rows: Ints, now_s: float, growths: Floats) -> int:
    """The instants after now at which one of these plans starts or grows, into `growths`; returns how many."""
    found = 0
    for row in rows:
        share = 0
        for s in range(columns.segment_count[row]):
            if columns.segment_times[row, s] > now_s and columns.segment_shares[row, s] > share:
                growths[found] = columns.segment_times[row, s]
                found += 1
            share = columns.segment_shares[row, s]
    return found


@kernel
def write_changing(columns: JobColumns, rows: Ints, now_s: float, until_s: float, changing: Ints) -> None:
    """Which of these jobs do not hold what is planned now, or change that up to an instant, into `changing`."""
    for i in range(len(rows)):
        row = rows[i]
        changing[i] = columns.held[row] <= until_s or share_now(columns, row, now_s) != columns.share[row]
        for s in range(columns.segment_count[row]):
            if now_s < columns.segment_times[row, s] <= until_s:
                changing[i] = 1


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
def shortly_before_end(columns: JobColumns, row: int, least_s: float) -> float:
    """A pause before a job's planned end, or `least_s` if that is longer; infinite without a plan."""
    if columns.segment_count[row] == 0:
        return inf
    return float(columns.finish[row] - max(columns.pauses[row, 0], least_s))


@kernel
def write_outlooks(
    columns: JobColumns, rows: Ints, now_s: float, least_s: float, costs: Floats, shares: Ints, chances: Floats
) -> None:
    """For each of these jobs `least_cost`, `share_now` and `shortly_before_end`, into the last three."""
    for i in range(len(rows)):
        costs[i] = least_cost(columns, rows[i], now_s)
        shares[i] = share_now(columns, rows[i], now_s)
        chances[i] = shortly_before_end(columns, rows[i], least_s)


@kernel
def next_end(columns: JobColumns, rows: Ints, now_s: float, least_s: float) -> float:
    """The next instant after now that is shortly before the end of one that runs now, but not before halfway to it."""
    soonest = inf
    for row in rows:
        if share_now(columns, row, now_s) > 0:
            halfway_s = (now_s + columns.finish[row]) / 2
            again_s = max(shortly_before_end(columns, row, least_s), halfway_s)
            if again_s > now_s:  # else it ends now, up to rounding
                soonest = min(soonest, again_s)
    return soonest


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
def planned_peak(columns: JobColumns, row: int) -> int:
    """The level of the highest share of a plan."""
    peak = 0
    for s in range(columns.segment_count[row]):
        peak = max(peak, columns.segment_shares[row, s])
    level = 0
    while level + 1 < columns.level_count[row] and columns.shares[row, level] < peak:
        level += 1
    return level


@kernel
def level_within(columns: JobColumns, job: int, share: int) -> int:
    """The highest level within a share; the lowest of all if none is."""
    level = columns.level_count[job] - 1
    while level > 0 and columns.shares[job, level] > share:
        level -= 1
    return int(level)


@kernel
def projected_end(columns: JobColumns, job: int, now_s: float) -> float:
    """When the work of a job ends if its plan is followed from now on, pauses included, however long that takes."""
    share, ready, work = columns.share[job], columns.ready[job], columns.work[job]
    count = columns.segment_count[job]
    for s in range(count):
        end_s = columns.segment_times[job, s + 1] if s + 1 < count else inf
        if end_s <= now_s:
            continue
        start_s = max(columns.segment_times[job, s], now_s)
        held = columns.segment_shares[job, s]
        level = level_within(columns, job, held)
        if held != share and held > 0:
            ready = resume(columns, job, level, share, start_s, ready)
        share = held
        begin = max(start_s, ready)
        if held == 0 or begin >= end_s:
            continue
        rate = columns.rates[job, level]
        if begin + work / rate <= end_s:
            return float(begin + work / rate)
        work -= rate * (end_s - begin)
    return inf


@kernel
def write_overruns(
    columns: JobColumns, rows: Ints, now_s: float, guard_s: float, overruns: Ints, doubts_s: Floats
) -> int:
    """The jobs that their plans make late, or that need their devices longer than planned, into `overruns`; how many.

    A job that was planned late may be in time by now. `doubts_s` says until when each of the others follows its plan
    for sure: as long as nothing else is seen of a job, no other end is to be expected.
    """
    found = 0
    for row in rows:
        is_late = columns.finish[row] > columns.deadline[row] + guard_s
        if is_late or projected_end(columns, row, now_s) > columns.held[row] + guard_s:
            overruns[found] = row
            found += 1
        elif share_now(columns, row, now_s) == columns.share[row]:
            doubts_s[row] = columns.held[row]
            for s in range(columns.segment_count[row] - 1, -1, -1):
                if columns.segment_times[row, s] > now_s:
                    doubts_s[row] = columns.segment_times[row, s]
    return found


@kernel
def can_be_in_time(columns: JobColumns, row: int, now_s: float) -> bool:
    """Whether a job would meet its deadline if all devices were its own."""
    for level in range(columns.level_count[row]):
        ready = max(now_s, columns.ready[row])
        if columns.shares[row, level] != columns.share[row]:
            ready = resume(columns, row, level, columns.share[row], now_s, ready)
        if ready + columns.work[row] / columns.rates[row, level] <= columns.deadline[row]:
            return True
    return False
