"""The planner by hand, against a plain walk in Python, and compiled against not compiled."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.policies.planning import filling
from springtide.policies.planning.filling import Capacity, JobColumns
from springtide.policies.planning.plan_table import write_job

LINEAR = {1: 1.0, 2: 2.0, 4: 4.0}
STEEP = {1: 1.0, 2: 1.5, 4: 2.0}


@dataclass(frozen=True, slots=True)
class Want:
    """A job as the planner sees it: work left, deadline, speeds, and what it holds."""

    work: float
    deadline_s: float = inf
    speeds: tuple[tuple[int, float], ...] = tuple(LINEAR.items())
    overhead: Overhead = FREE
    share: int = 0
    ready_s: float = 0.0


def want(work: float, deadline_s: float = inf, speeds: Mapping[int, float] = LINEAR, **rest: Any) -> Want:
    """A `Want` with its speeds as a mapping."""
    return Want(work, deadline_s, tuple(speeds.items()), **rest)


def enrol(*wants: Want) -> JobColumns:
    """Columns with a row for each job, none planned."""
    columns = filling.empty_columns(len(wants), 4)
    for row, wanted in enumerate(wants):
        shares, rates = zip(*wanted.speeds, strict=True)
        curve = Curve(shares, rates)
        write_job(columns, row, Job(JobId(str(row)), row, 0.0, 1.0, curve, wanted.deadline_s, overhead=wanted.overhead))
        columns.work[row], columns.share[row], columns.ready[row] = wanted.work, wanted.share, wanted.ready_s
    return columns


def rows_of(columns: JobColumns) -> filling.Ints:
    return np.arange(len(columns.deadline))


def plan_of(columns: JobColumns, row: int) -> list[tuple[float, int]]:
    """The segments of a plan."""
    count = int(columns.segment_count[row])
    return list(
        zip(columns.segment_times[row, :count].tolist(), columns.segment_shares[row, :count].tolist(), strict=True)
    )


def hold(columns: JobColumns, row: int, until_s: float, *segments: tuple[float, int]) -> None:
    """Write a plan by hand."""
    times, shares = zip(*segments, strict=True)
    filling.store(columns, row, until_s, until_s, len(segments), np.array(times), np.array(shares))


def free_over_time(capacity: Capacity) -> list[tuple[float, int]]:
    """The steps of the free devices, equal neighbours joined."""
    steps: list[tuple[float, int]] = []
    for time_s, free in zip(
        capacity.times[: capacity.size[0]].tolist(), capacity.free[: capacity.size[0]].tolist(), strict=True
    ):
        if not steps or steps[-1][1] != free:
            steps.append((time_s, free))
    return steps


@pytest.mark.parametrize(
    ("wanted", "share", "finish_s"),
    [
        (want(40, 41), 1, 40.0),
        (want(40, 21), 2, 20.0),
        (want(40, 20), 2, 20.0),
        (want(40, 19.9), 4, 10.0),
        (want(30, 21, STEEP), 2, 20.0),
        (want(30, 16, STEEP), 4, 15.0),
    ],
)
def test_the_share_is_the_smallest_that_is_in_time(wanted: Want, share: int, finish_s: float) -> None:
    columns = enrol(wanted)
    assert filling.fill(filling.empty_capacity(1, 0.0, 8), columns, 0, 0)
    assert plan_of(columns, 0) == [(0.0, share)]
    assert columns.finish[0] == finish_s


def test_a_job_that_no_share_finishes_in_time_has_no_plan() -> None:
    columns = enrol(want(40, 9.9))
    assert not filling.fill(filling.empty_capacity(1, 0.0, 8), columns, 0, 0)
    assert plan_of(columns, 0) == []


@pytest.mark.parametrize(
    ("deadline_s", "share", "finish_s", "held_s"),
    [
        (50.0, 1, 45.0, 50.0),  # 5 s of pause, 40 s of work, and 5 s for a move
        (45.0, 1, 45.0, 45.0),  # no time for a reserve
        (44.9, 2, 25.0, 30.0),
        (16.0, 4, 15.0, 15.0),
    ],
)
def test_pauses_and_the_reserve_are_part_of_the_plan(
    deadline_s: float, share: int, finish_s: float, held_s: float
) -> None:
    columns = enrol(want(40, deadline_s, overhead=Overhead(base_s=5.0)))
    assert filling.fill(filling.empty_capacity(1, 0.0, 8), columns, 0, 0)
    assert plan_of(columns, 0) == [(0.0, share)]
    assert columns.finish[0] == finish_s
    assert columns.held[0] == held_s + filling.GUARD_S


def test_starting_costs_more_than_changing_and_a_share_that_stays_costs_nothing() -> None:
    overhead = Overhead(base_s=2.0, start_s=10.0)
    columns = enrol(
        want(40, 1000, overhead=overhead),
        want(40, 1000, overhead=overhead, share=2),
        want(40, 1000, overhead=overhead, share=1, ready_s=7.0),
    )
    for row in rows_of(columns):
        assert filling.fill(filling.empty_capacity(1, 5.0, 8), columns, row, 0)
    assert columns.finish.tolist() == [57.0, 47.0, 47.0]


@pytest.mark.parametrize(
    ("deadline_s", "plan", "finish_s"), [(21.0, [(0.0, 1), (10.0, 2)], 20.0), (17.5, [(0.0, 1), (10.0, 4)], 15.0)]
)
def test_a_plan_takes_what_others_leave(deadline_s: float, plan: list[tuple[float, int]], finish_s: float) -> None:
    capacity = filling.empty_capacity(2, 0.0, 4)
    columns = enrol(want(1), want(30, deadline_s))
    hold(columns, 0, 10.0, (0.0, 3))
    filling.occupy(capacity, columns, 0, 1)
    assert filling.fill(capacity, columns, 1, 0)
    assert plan_of(columns, 1) == plan
    assert columns.finish[1] == finish_s


def test_a_planned_growth_pays_its_pause() -> None:
    capacity = filling.empty_capacity(2, 0.0, 4)
    columns = enrol(want(1), want(30, 24, overhead=Overhead(base_s=2.0)))
    hold(columns, 0, 10.0, (0.0, 3))
    filling.occupy(capacity, columns, 0, 1)
    assert filling.fill(capacity, columns, 1, 0)
    assert plan_of(columns, 1) == [(0.0, 1), (10.0, 2)]
    assert columns.finish[1] == 23.0  # 8 steps by 10 s, a pause up to 12 s, the other 22 at 2 per second


def test_a_planned_growth_waits_for_the_end_of_the_start() -> None:
    capacity = filling.empty_capacity(2, 0.0, 4)
    columns = enrol(want(1), want(30, 60, overhead=Overhead(base_s=2.0, start_s=20.0)))
    hold(columns, 0, 10.0, (0.0, 3))
    filling.occupy(capacity, columns, 0, 1)
    assert filling.fill(capacity, columns, 1, 1)
    assert plan_of(columns, 1) == [(0.0, 1), (10.0, 2)]
    assert columns.finish[1] == 37.0  # it starts until 22 s, although it changes at 10 s


def test_filling_all_stops_at_the_first_without_room() -> None:
    capacity = filling.empty_capacity(3, 0.0, 4)
    columns = enrol(want(30, 10), want(20, 10), want(1, 10))
    assert filling.fill_all(capacity, columns, rows_of(columns)) == 1


def test_of_those_that_must_be_planned_two_without_room_end_the_search() -> None:
    columns = enrol(*[want(10, deadline_s, {1: 1.0}) for deadline_s in (10, 11, 12, 30)])
    fixed = np.array([1, 1, 0, 1])
    assert filling.select(filling.empty_capacity(4, 0.0, 1), columns, rows_of(columns), fixed, 0.0, 4).tolist() == [0]
    fixed[1] = 0  # whoever need not be planned is left out without more ado
    assert filling.select(filling.empty_capacity(4, 0.0, 1), columns, rows_of(columns), fixed, 0.0, 4).tolist() == [
        0,
        3,
    ]


def test_free_devices_are_a_step_function() -> None:
    capacity = filling.empty_capacity(2, 0.0, 8)
    columns = enrol(want(1), want(1))
    hold(columns, 0, 9.0, (0.0, 2), (5.0, 4))
    hold(columns, 1, 12.0, (5.0, 0), (7.0, 1))
    filling.occupy_each(capacity, columns, rows_of(columns))
    assert free_over_time(capacity) == [(0.0, 6), (5.0, 4), (7.0, 3), (9.0, 7), (12.0, 8)]


def grow(columns: JobColumns, devices: int, gain: float = 0.0) -> tuple[list[int], int]:
    """The shares after all are filled and the rest is handed out, and what is left."""
    capacity = filling.empty_capacity(len(columns.deadline), 0.0, devices)
    assert filling.fill_all(capacity, columns, rows_of(columns)) == len(columns.deadline)
    rest = filling.grow(capacity, columns, rows_of(columns), int(capacity.free[0]), gain, filling.empty_columns(1, 4))
    return filling.shares_now(columns, rows_of(columns), 0.0).tolist(), rest


def test_spare_devices_go_where_they_cost_least() -> None:
    # per extra device: 40 / 1.5 * 2 - 40 = 13.3 for the first, 0 for the second, 60 / 1.9 * 2 - 60 = 3.2 for the third
    def enrol_three() -> JobColumns:
        return enrol(want(40, 100, {1: 1.0, 2: 1.5}), want(500, 600, {1: 1.0, 2: 2.0}), want(60, 100, {1: 1.0, 2: 1.9}))

    assert grow(enrol_three(), 4) == ([1, 2, 1], 0)
    assert grow(enrol_three(), 5) == ([1, 2, 2], 0)
    assert grow(enrol_three(), 6) == ([2, 2, 2], 0)


def test_growth_stops_at_the_peak() -> None:
    assert grow(enrol(want(40, 100, {1: 1.0, 2: 1.5, 4: 1.2, 8: 1.4})), 16) == ([2], 14)


@pytest.mark.parametrize(("gain", "shares"), [(0.0, [2]), (1.0, [2]), (10.0, [1])])
def test_growth_must_be_worth_its_pauses(gain: float, shares: list[int]) -> None:
    columns = enrol(want(40, 100, {1: 1.0, 2: 2.0}, overhead=Overhead(base_s=3.0), share=1))
    assert grow(columns, 4, gain)[0] == shares  # 40 s as it is, 3 + 20 s on two


def test_a_share_that_is_held_is_restored_where_there_is_room() -> None:
    overhead = Overhead(base_s=5.0)
    columns = enrol(want(40, 100, overhead=overhead, share=4), want(40, 100, overhead=overhead, share=4))
    capacity = filling.empty_capacity(2, 0.0, 6)
    assert filling.fill_all(capacity, columns, rows_of(columns)) == 2
    assert filling.shares_now(columns, rows_of(columns), 0.0).tolist() == [1, 1]
    filling.restore(capacity, columns, rows_of(columns), filling.empty_columns(1, 4))
    assert filling.shares_now(columns, rows_of(columns), 0.0).tolist() == [4, 1]
    assert columns.finish.tolist() == [10.0, 45.0]  # the first needs no pause


def test_a_move_is_made_up_within_the_reserve() -> None:
    columns = enrol(want(40, 30, overhead=Overhead(base_s=5.0)))
    capacity = filling.empty_capacity(1, 0.0, 4)
    assert filling.fill(capacity, columns, 0, 0)
    filling.occupy(capacity, columns, 0, 1)
    assert (columns.finish[0], columns.held[0]) == (25.0, 30.0 + filling.GUARD_S)
    columns.share[0], columns.ready[0] = 2, 10.0  # moved at once after it had started
    assert filling.replan_paused(capacity, columns, 0)
    assert (columns.finish[0], columns.held[0]) == (30.0, 30.0 + filling.GUARD_S)


@pytest.mark.parametrize("overlap_s", [1e-13, filling.GUARD_S])
def test_plans_that_overlap_by_rounding_interrupt_no_other(overlap_s: float) -> None:
    columns = enrol(want(40, 200, overhead=Overhead(base_s=5.0), share=1), want(1), want(1))
    capacity = filling.empty_capacity(3, 0.0, 2)
    hold(columns, 0, 45.0, (0.0, 1))
    hold(columns, 1, 20.0 + overlap_s, (0.0, 1))
    hold(columns, 2, 100.0, (20.0, 1))  # three devices of two, for a moment
    filling.occupy_each(capacity, columns, rows_of(columns))
    columns.ready[0] = 5.0  # moved just now
    assert filling.replan_paused(capacity, columns, 0)
    assert plan_of(columns, 0) == [(0.0, 1)]
    assert columns.finish[0] == pytest.approx(45.0)


def test_a_plan_leaves_what_others_hold_for_longer_than_the_guard() -> None:
    columns = enrol(want(40, 200, overhead=Overhead(base_s=5.0), share=1), want(1))
    capacity = filling.empty_capacity(2, 0.0, 1)
    hold(columns, 1, 20.0 + 2 * filling.GUARD_S, (20.0, 1))
    filling.occupy(capacity, columns, 1, 1)
    assert filling.fill(capacity, columns, 0, 0)
    assert [share for _, share in plan_of(columns, 0)] == [1, 0, 1]


def test_what_could_be_promised_instead() -> None:
    capacity = filling.empty_capacity(2, 0.0, 4)
    columns = enrol(want(1), want(40, 12, overhead=Overhead(base_s=1.0)))
    hold(columns, 0, 8.0, (0.0, 4))
    filling.occupy(capacity, columns, 0, 1)
    assert not filling.fill(capacity, columns, 1, 0)
    assert filling.earliest_end(capacity, columns, 1) == pytest.approx(8 + 1 + 10 + 1)
    assert filling.largest_work(capacity, columns, 1) == pytest.approx((12 - 8 - 1 - 1) * 4, rel=1e-4)
    assert columns.work[1] == 40


SPEEDS = (LINEAR, STEEP, {1: 2.0, 2: 1.0, 4: 2.5}, {2: 1.0, 4: 1.5}, {1: 1.0})
OVERHEADS = (FREE, Overhead(2.0, 2.0), Overhead(base_s=7.0, start_s=11.0))


@st.composite
def draw_wants(draw: st.DrawFn) -> Want:
    """A job that may hold devices and be paused."""
    speeds = draw(st.sampled_from(SPEEDS))
    share = draw(st.sampled_from((0, *(s for s in Curve(tuple(speeds), tuple(speeds.values())).levels))))
    work = draw(st.floats(1.0, 500.0))
    return want(
        work,
        draw(st.floats(1.0, 6.0)) * work + 5.0,
        speeds,
        overhead=draw(st.sampled_from(OVERHEADS)),
        share=share,
        ready_s=draw(st.sampled_from((0.0, 4.0))),
    )


wants = st.lists(draw_wants(), min_size=1, max_size=8)


def walk_plainly(wanted: Want, plan: list[tuple[float, int]]) -> float:
    """When the work ends under a plan: every change pays its pause, nothing else is lost."""
    left, share, ready_s, now_s = wanted.work, wanted.share, wanted.ready_s, 0.0
    speeds = {0: 0.0, **dict(wanted.speeds)}
    for start_s, planned in [*plan, (inf, 0)]:
        ran_s = max(0.0, start_s - max(now_s, ready_s))
        if speeds[share] and left / speeds[share] <= ran_s:
            return max(now_s, ready_s) + left / speeds[share]
        left -= speeds[share] * ran_s if speeds[share] else 0.0
        if planned and planned != share:
            ready_s = wanted.overhead.resumes_s(start_s, planned, not share, ready_s)
        share, now_s = planned, start_s
    return inf


@settings(max_examples=200, deadline=None)
@given(wants, st.integers(1, 9), st.integers(0, 4))
def test_plans_share_the_devices_and_are_in_time(drawn: list[Want], devices: int, spare: int) -> None:
    columns, capacity = enrol(*drawn), filling.empty_capacity(len(drawn), 0.0, devices)
    planned = np.array([row for row in rows_of(columns) if plan_beside_others(capacity, columns, row)], np.int64)
    trial = filling.empty_columns(1, 4)
    filling.restore(capacity, columns, planned, trial)
    filling.grow(capacity, columns, planned, min(spare, int(capacity.free[0])), 0.0, trial)
    assert capacity.free[: capacity.size[0]].min() >= 0
    assert_full_are_counted(capacity)
    for row in planned:
        finish_s = walk_plainly(drawn[row], plan_of(columns, row))
        assert finish_s == pytest.approx(columns.finish[row])
        assert finish_s <= columns.held[row] + 1e-9
        assert columns.held[row] <= columns.deadline[row] + 1e-6
    for row in planned:
        filling.occupy(capacity, columns, row, -1)
        assert_full_are_counted(capacity)
    assert free_over_time(capacity) == [(0.0, devices)]


def assert_full_are_counted(capacity: Capacity) -> None:
    """What planning passes over is all there is at the start without a free device, and no more.

    Who needs more devices passes over nothing in which as many are free.
    """
    size, full, *little = capacity.size.tolist()
    assert (capacity.free[:full] <= 0).all()
    assert full == size or capacity.free[full] > 0
    for power, known in enumerate(little, start=1):
        assert (capacity.free[:known] < 2**power).all()


def plan_beside_others(capacity: Capacity, columns: JobColumns, row: int) -> bool:
    """Fill one job and take its devices."""
    fits = filling.fill(capacity, columns, row, 0)
    if fits:
        filling.occupy(capacity, columns, row, 1)
    return fits


@settings(max_examples=100, deadline=None)
@given(draw_wants(), st.integers(1, 8))
def test_no_smaller_level_would_have_done(drawn: Want, devices: int) -> None:
    columns, capacity = enrol(drawn), filling.empty_capacity(1, 0.0, devices)
    if filling.fill(capacity, columns, 0, 0):
        held = plan_of(columns, 0)[0][1]
        smaller = [share for share in columns.shares[0, : columns.level_count[0]].tolist() if share < held]
        assert all(walk_plainly(drawn, [(0.0, share)]) > drawn.deadline_s - 1e-6 for share in smaller)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(draw_wants(), min_size=3, max_size=12),
    st.integers(1, 6),
    st.sets(st.integers(0, 11)),
    st.sampled_from((0.0, 1.0, 3.0)),
)
def test_who_could_not_begin_now_would_gain_nothing_by_it(
    drawn: list[Want], devices: int, ended: set[int], gain: float
) -> None:
    """`grow` tries no plan for these; some of the jobs have ended before their plans did, and left devices free."""
    columns, capacity = enrol(*drawn), filling.empty_capacity(len(drawn), 0.0, devices)
    trial, stretches = filling.empty_columns(1, 4), np.empty(filling.MAX_SEGMENTS)
    columns.share[:] = 0
    planned = [row for row in rows_of(columns).tolist() if plan_beside_others(capacity, columns, row)]
    for row in ended.intersection(planned):
        filling.occupy(capacity, columns, row, -1)
    for row in planned:
        least = int(columns.shares[row, 0])
        if row in ended or filling.share_now(columns, row, 0.0) or least > capacity.free[0]:
            continue
        filling.write_stretches(capacity, least, stretches)
        gains = filling.try_growth(capacity, columns, row, 0, int(capacity.free[0]), gain, trial) < inf
        if not filling.could_start(columns, row, stretches, gain):
            event("passed over")
            assert not gains
        elif gains:
            event("begins earlier")


@pytest.mark.parametrize(
    ("pause_s", "from_s", "until_s", "most_s"),
    [
        (0.0, inf, 100.0, 15.0),
        (2.0, inf, 100.0, 11.0),  # in each of both stretches it pauses
        (6.0, inf, 100.0, 4.0),  # the second is too short
        (2.0, 50.0, 60.0, 8.0 + 3.0 + 8.0),
        (2.0, 10.0, 60.0, 58.0),  # the first leads on to its own devices
        (2.0, inf, 7.0, 5.0),
        (2.0, 50.0, 40.0, 11.0),
    ],
)
def test_time_for_steps_is_what_the_pauses_leave(pause_s: float, from_s: float, until_s: float, most_s: float) -> None:
    columns, capacity = enrol(want(1), want(1)), filling.empty_capacity(2, 0.0, 2)
    hold(columns, 0, 20.0, (10.0, 1))
    hold(columns, 1, 1e9, (25.0, 1))
    filling.occupy_each(capacity, columns, rows_of(columns))
    stretches = np.empty(filling.MAX_SEGMENTS)
    filling.write_stretches(capacity, 2, stretches)
    assert stretches[:5].tolist() == [0.0, 10.0, 20.0, 25.0, 1e9]
    assert filling.most_time(stretches, pause_s, from_s, until_s) == most_s


def test_infinite_patience_grows_no_one_even_where_changes_are_free() -> None:
    """Uncompiled this was an invalid product of infinity and no pause."""
    columns, capacity = enrol(want(40.0)), filling.empty_capacity(1, 0.0, 4)
    hold(columns, 0, 40.0, (0.0, 1))
    try_growth = getattr(filling.try_growth, "py_func", filling.try_growth)
    assert try_growth(capacity, columns, 0, 2, 4, inf, filling.empty_columns(1, 4)) == inf


def simulate_in_a_process(disable_jit: bool) -> list[dict[str, Any]]:
    """The report of a small simulation, without its times."""
    options = ["--synthetic", "jobs=40,gap=300,seed=1", "--cluster", "1x8:a100", "--json", "-"]
    policies = "elasticflow,springtide,springtide-flexible,edf-elastic"
    program = "from springtide.cli.app import main; main()"
    command = [sys.executable, "-c", program, "simulate", *options, "--policy", policies]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": str(int(disable_jit))}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return [{key: value for key, value in run.items() if key not in ("wall_s", "cpu_s")} for run in runs]


def test_without_compilation_the_floats_are_the_same() -> None:
    compiled, plain = simulate_in_a_process(False), simulate_in_a_process(True)
    assert len(compiled) == 4
    assert compiled == plain


def test_plans_that_are_tried_and_given_back_need_no_more_room() -> None:
    """Each leaves its cuts: compiled code does not see the end of an array, and wrote beyond it."""
    columns = enrol(want(40), want(40))
    capacity = filling.empty_capacity(2, 0.0, 8)
    hold(columns, 0, 90.5, (10.5, 3), (60.5, 2))
    filling.occupy(capacity, columns, 0, 1)
    for end_s in range(1, 200):
        hold(columns, 1, end_s + 0.25, (0.0, 1), (end_s / 2, 4))
        filling.occupy(capacity, columns, 1, 1)
        filling.occupy(capacity, columns, 1, -1)
    assert free_over_time(capacity) == [(0.0, 8), (10.5, 5), (60.5, 6), (90.5, 8)]
    assert filling.fill(capacity, columns, 1, 0)


def test_a_job_that_is_dropped_leaves_no_cuts() -> None:
    """Every second job is too many: all after the one that is dropped are planned again, at other times."""
    columns = enrol(*[want(10 + row / 7, 6 * (row + 2), {1: 1.0}) for row in range(60)])
    capacity = filling.empty_capacity(60, 0.0, 1)
    kept = filling.select(capacity, columns, rows_of(columns), np.zeros(60, np.int64), 0.0, 60)
    assert 20 < len(kept) < 40
    assert capacity.size[0] <= 1 + 2 * len(kept)


def test_nobody_is_dropped_for_a_job_that_has_no_room_even_then() -> None:
    columns = enrol(want(40, 60, {1: 1.0}), want(30, 60, {2: 2.0}), want(5, 60, {1: 1.0}))
    capacity = filling.empty_capacity(3, 0.0, 1)
    kept = filling.select(capacity, columns, rows_of(columns), np.zeros(3, np.int64), 0.0, 3)
    assert kept.tolist() == [0, 2]
    assert plan_of(columns, 1) == []
    assert plan_of(columns, 0) == [(0.0, 1)]
