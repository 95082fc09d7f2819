"""What plans leave free, followed from change to change, is what is drawn up anew."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.decisions import Plan, Segment
from springtide.policies.planning import filling
from springtide.policies.planning.filling import DeviceLedger, JobColumns
from springtide.policies.planning.plan_table import copy_columns, write_plan

DEVICES = 64
JOBS = 6


@st.composite
def draw_plans(draw: st.DrawFn) -> Plan:
    """A plan of a few stretches; in some of them it holds nothing."""
    times_s = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=5)))
    shares = [draw(st.integers(0, 4)) for _ in times_s[1:]]
    held_s = float(times_s[-1])
    return Plan(
        tuple(Segment(float(start_s), share) for start_s, share in zip(times_s, shares, strict=False)), 0.0, held_s
    )


def enter(columns: JobColumns, plans: dict[int, Plan | None]) -> JobColumns:
    """Columns in which these plans are in force instead of those before, as a plan table is opened."""
    copy = copy_columns(columns)
    copy = copy._replace(old_times=np.empty(copy.old_times.shape), old_shares=np.empty(copy.old_shares.shape, np.int64))
    for row, plan in plans.items():
        copy.segment_count[row] = 0
        if plan is not None:
            write_plan(copy, row, plan)
    filling.keep_in_force(copy, np.flatnonzero(copy.segment_count))
    return copy


def read(ledger: DeviceLedger) -> list[list[float]]:
    return [column.tolist() for column in ledger]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 15),
            st.dictionaries(st.integers(0, JOBS - 1), st.none() | draw_plans(), max_size=4),
            st.sets(st.integers(0, JOBS - 1), max_size=1),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_ledger_that_is_followed_is_the_one_drawn_up_anew(
    steps: list[tuple[int, dict[int, Plan | None], set[int]]],
) -> None:
    nothing, now_s = filling.empty_columns(0, 1), 0.0
    columns = enter(filling.empty_columns(JOBS, 1), {})
    ledger, none = filling.empty_ledger(1, now_s, DEVICES), np.zeros(JOBS, np.int64)
    for passed_s, plans, left_out in steps:
        now_s += passed_s
        before, columns = columns, enter(columns, plans)
        absent = none.copy()
        absent[[*left_out]] = 1
        for missing in (absent, none):
            scratch = filling.empty_ledger(1, now_s, DEVICES)
            anew = filling.follow_plans(scratch, nothing, columns, missing, now_s)
            followed = filling.follow_plans(ledger, before, columns, missing, now_s)
            assert read(followed) == read(anew)
        assert np.diff(anew.times).min(initial=1.0) > 0.0 and anew.free[-1] == DEVICES
        ledger = followed


def test_a_ledger_says_what_is_free_between_the_plans() -> None:
    columns = enter(
        filling.empty_columns(3, 1),
        {
            0: Plan((Segment(0.0, 2), Segment(5.0, 4)), 9.0, 9.0),
            1: Plan((Segment(5.0, 0), Segment(7.0, 1)), 12.0, 12.0),
            2: Plan((Segment(9.0, 4),), 12.0, 12.0),
        },
    )
    scratch = filling.empty_ledger(1, 1.0, 8)
    ledger = filling.follow_plans(scratch, filling.empty_columns(0, 1), columns, np.zeros(3, np.int64), 1.0)
    assert read(ledger) == [[1.0, 5.0, 7.0, 9.0, 12.0], [6, 4, 3, 3, 8], [0, 2, 1, 2, 2]]
    capacity = filling.empty_capacity(3, 1.0, 8)
    filling.begin_with(capacity, ledger)
    assert capacity.free[: capacity.size[0]].tolist() == [6, 4, 3, 3, 8]
