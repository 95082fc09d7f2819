"""Plans as step functions, and what they leave free, by hand and against sums at every instant."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from springtide.core.decisions import Plan, Segment
from springtide.core.timelines import Stretch, leave_free, list_stretches

PLAN = Plan((Segment(0.0, 2), Segment(10.0, 0), Segment(15.0, 4)), 20.0, 25.0)


def test_a_plan_in_stretches_from_an_instant_on() -> None:
    assert list(list_stretches(PLAN)) == [Stretch(0.0, 10.0, 2), Stretch(10.0, 15.0, 0), Stretch(15.0, 25.0, 4)]
    assert list(list_stretches(PLAN, 12.0)) == [Stretch(12.0, 15.0, 0), Stretch(15.0, 25.0, 4)]
    assert list(list_stretches(PLAN, 25.0)) == []


def test_what_plans_leave_free() -> None:
    left = list(leave_free([PLAN, PLAN], 5, 5.0).walk())
    assert left == [Stretch(5.0, 10.0, 1), Stretch(10.0, 15.0, 5), Stretch(15.0, 25.0, -3), Stretch(25.0, inf, 5)]


@st.composite
def draw_plan(draw: st.DrawFn) -> Plan:
    lengths = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=4))
    at_s, segments = float(draw(st.integers(0, 9))), []
    for length, share in lengths:
        segments.append(Segment(at_s, share))
        at_s += length
    return Plan(tuple(segments), at_s, at_s)


@given(st.lists(draw_plan(), max_size=4), st.integers(0, 12))
def test_free_and_held_make_up_the_cluster_at_every_instant(plans: list[Plan], now: int) -> None:
    for start_s, end_s, free in leave_free(plans, 9, float(now)).walk():
        for at_s in {start_s, min(end_s, start_s + 100.0) - 0.5}:
            assert free + sum(plan.share_at(at_s) for plan in plans) == 9
