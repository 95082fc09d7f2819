"""Jobs and free devices as plain arrays: what the compiled planner works on.

Only the shape of the data and how to make it empty; what is done with it is in `filling`.
"""

from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SIZES = 8  # powers of two, from one device on, for which is known where the first so many are free
MAX_SEGMENTS = 24  # a plan with more changes than this is no plan worth promising


class JobColumns(NamedTuple):
    """Jobs as columns: what is left to do, what they hold, the levels worth holding, and the plan of each."""

    deadline: Floats
    work: Floats  # left now
    ready: Floats  # when the current pause ends
    start_s: Floats  # extra pause when starting from no devices
    share: Ints  # held now
    level_count: Ints
    shares: Ints  # [job, level]
    rates: Floats  # [job, level]
    pauses: Floats  # [job, level]
    segment_count: Ints
    segment_times: Floats  # [job, segment]
    segment_shares: Ints  # [job, segment]
    finish: Floats
    held: Floats  # planned until: finish plus reserve
    touched: Ints  # whether the plan was written since the plan table was opened
    # the plan in force, for `store`: written when the table is opened and not after that, so that copies share it
    old_times: Floats  # [job, segment], then the finish, and until when it is held
    old_shares: Ints  # [job, segment], then the number of segments


class Capacity(NamedTuple):
    """Free devices over time: `free[k]` from `times[k]` to `times[k + 1]`, the last for ever.

    There are `size[0]` entries. In the first `size[1]` of them nothing is free, in the first `size[2]` fewer than two
    devices, in the first `size[3]` fewer than four, and so on: whoever needs as many need not look there.
    """

    times: Floats
    free: Ints
    size: Ints


class DeviceLedger(NamedTuple):
    """What the plans in force leave free: `free[k]` from `times[k]` on, where so many of them begin or end."""

    times: Floats
    free: Ints
    uses: Ints


def empty_columns(jobs: int, levels: int) -> JobColumns:
    """Columns with room for so many jobs of so many levels."""
    return JobColumns(
        np.full(jobs, inf),
        np.zeros(jobs),
        np.zeros(jobs),
        np.zeros(jobs),
        np.zeros(jobs, np.int64),
        np.zeros(jobs, np.int64),
        np.zeros((jobs, levels), np.int64),
        np.zeros((jobs, levels)),
        np.zeros((jobs, levels)),
        np.zeros(jobs, np.int64),
        np.zeros((jobs, MAX_SEGMENTS)),
        np.zeros((jobs, MAX_SEGMENTS), np.int64),
        np.full(jobs, inf),
        np.full(jobs, inf),
        np.zeros(jobs, np.int64),
        np.zeros((jobs, MAX_SEGMENTS + 2)),
        np.zeros((jobs, MAX_SEGMENTS + 1), np.int64),
    )


def empty_capacity(jobs: int, now_s: float, devices: int) -> Capacity:
    """All devices free from now on, with room for the plans of so many jobs."""
    room = 2 + jobs * (MAX_SEGMENTS + 1)
    capacity = Capacity(np.empty(room), np.empty(room, np.int64), np.zeros(1 + SIZES, np.int64))
    capacity.times[0], capacity.free[0], capacity.size[0] = now_s, devices, 1
    return capacity


def empty_ledger(entries: int, now_s: float, devices: int) -> DeviceLedger:
    """All devices free from now on, with room for so many entries."""
    ledger = DeviceLedger(np.empty(entries), np.empty(entries, np.int64), np.empty(entries, np.int64))
    ledger.times[0], ledger.free[0], ledger.uses[0] = now_s, devices, 0
    return ledger


def make_samples() -> dict[Any, Any]:
    """A value of each kind that the planner's functions take, by annotation."""
    return {
        Floats: np.zeros(MAX_SEGMENTS),
        Ints: np.zeros(MAX_SEGMENTS, np.int64),
        JobColumns: empty_columns(1, 1),
        Capacity: empty_capacity(1, 0.0, 1),
        DeviceLedger: empty_ledger(1, 0.0, 1),
        int: 0,
        float: 0.0,
    }
