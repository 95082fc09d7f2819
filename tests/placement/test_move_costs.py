"""What a move costs a promised job."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.small_clusters import build_job, promise_until, reserve_for

from springtide.core.decisions import JobView, Plan, Progress, Promise, Segment
from springtide.core.jobs import Overhead
from springtide.placement.migration import MoveCost
from springtide.placement.move_costs import chart

PAUSE_S = 10.0


def view_of(work: float, share: int, paused_until_s: float = 0.0) -> JobView:
    job = build_job(0, work=work, overhead=Overhead(base_s=PAUSE_S))
    return JobView(job, Progress(work, float(share), 0.0, paused_until_s), share=share)


def price(view: JobView, promise: Promise, at_s: float = 0.0) -> MoveCost:
    return chart(0.0, view, promise).price(at_s, view.share)


@pytest.mark.parametrize(
    ("slack_s", "reserve_s", "late_s", "unreserved"),
    [(100.0, 10.0, 0.0, 0), (10.0, 10.0, 0.0, 0), (100.0, 5.0, 0.0, 1), (4.0, 4.0, 6.0, 1), (0.0, 0.0, 10.0, 1)],
)
def test_a_job_on_one_share_to_the_end_loses_its_pause(
    slack_s: float, reserve_s: float, late_s: float, unreserved: int
) -> None:
    cost = price(view_of(500.0, 1), promise_until(500.0 + slack_s, 500.0, reserve_s))
    assert cost.late_s == pytest.approx(late_s, abs=1e-5)
    assert cost.unreserved == unreserved
    assert cost.moves == 1


def test_a_move_breaks_no_promise_that_the_plan_breaks_already() -> None:
    assert not price(view_of(500.0, 1), promise_until(495.0, 500.0)).harms
    assert price(view_of(500.0, 1), promise_until(495.0, 500.0)) > price(
        view_of(500.0, 1), promise_until(900.0, 500.0, 10.0)
    )


def test_steps_lost_on_many_devices_take_longer_on_few() -> None:
    # 100 s on 4 devices, then a 10 s pause and 50 s on 1; a move costs 40 steps, that is 40 s at the end
    plan = Plan((Segment(0.0, 4), Segment(100.0, 1)), 160.0, 170.0)
    cost = price(view_of(450.0, 4), Promise(180.0, plan), at_s=50.0)
    assert cost.late_s == pytest.approx(20.0)
    # on the way up they take less: 10 steps at 4 per second
    plan = Plan((Segment(0.0, 1), Segment(100.0, 4)), 160.0, 162.5)
    cost = price(view_of(300.0, 1), Promise(162.5, plan), at_s=50.0)
    assert (cost.late_s, cost.unreserved) == (0.0, 0)


def test_a_move_just_before_a_planned_change_loses_only_the_time_between() -> None:
    plan = Plan((Segment(0.0, 4), Segment(100.0, 1)), 160.0, 164.0)
    cost = price(view_of(450.0, 4), Promise(164.0, plan), at_s=99.0)
    assert (cost.late_s, cost.unreserved) == (0.0, 0)


def test_a_move_during_a_pause_loses_only_what_it_adds() -> None:
    promise = promise_until(516.0, 510.0, reserve_s=6.0)
    view = view_of(500.0, 1, paused_until_s=10.0)
    assert price(view, promise, at_s=5.0).unreserved == 0
    assert price(view, promise, at_s=9.0).unreserved == 1


def test_a_move_after_the_plan_was_made_has_spent_its_reserve() -> None:
    promise = promise_until(1000.0, 500.0, reserve_s=10.0)
    assert price(view_of(500.0, 1), promise, at_s=20.0).unreserved == 0
    assert price(view_of(500.0, 1, paused_until_s=10.0), promise, at_s=20.0).unreserved == 1


def test_a_planned_gap_holds_no_devices_and_moves_cost_nothing_in_it() -> None:
    plan = Plan((Segment(0.0, 2), Segment(50.0, 0), Segment(100.0, 2)), 160.0, 160.0)
    cost = price(view_of(200.0, 2), Promise(160.0, plan), at_s=60.0)
    assert (cost.late_s, cost.unreserved) == (0.0, 0)


def test_more_slack_is_less_strain() -> None:
    strains = [
        price(view_of(500.0, 1), promise_until(500.0 + slack_s, 500.0)).strain for slack_s in (20.0, 50.0, 900.0)
    ]
    assert strains == sorted(strains, reverse=True)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 4, 8]), st.integers(1, 9)), min_size=1, max_size=5), st.floats(0, 1)
)
def test_a_reserve_covers_one_move_at_any_time(legs: list[tuple[int, int]], when: float) -> None:
    overhead = Overhead(base_s=2.0, per_doubling_s=2.0)
    segments, at_s, work, before = [], 0.0, 0.0, 0
    for share, ticks in [*legs, (2, 3)]:
        segments.append(Segment(at_s, share))
        pause_s = overhead.pause_s(share, starting=not before) if share and share != before else 0.0
        work += share * (20.0 * ticks - pause_s)
        at_s, before = at_s + 20.0 * ticks, share
    job = build_job(0, work=work, overhead=overhead)
    held_until_s = at_s + reserve_for(job, [segment.share for segment in segments])
    promise = Promise(held_until_s, Plan(tuple(segments), at_s, held_until_s))
    share = promise.plan.share_at(when * at_s)
    if share:
        view = JobView(job, Progress(work))
        cost = chart(0.0, view, promise, segments[0].share).price(when * at_s, share)
        assert not cost.harms
