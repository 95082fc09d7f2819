"""The axis of time, and what is drawn on it."""

from springtide.dashboard.board_view import read_query
from springtide.dashboard.drawings.axis import Axis, make_axis
from springtide.dashboard.drawings.shapes import clip_steps, draw_steps


def test_instants_have_their_places_and_stay_on_the_axis() -> None:
    axis = Axis(0.0, 50.0, 200.0)
    assert (axis.x(0), axis.x(50), axis.x(200), axis.x(999), axis.x(-9)) == (0.0, 25.0, 100.0, 100.0, 0.0)
    assert all(0 <= tick.x <= 100 for tick in axis.ticks) and 2 <= len(axis.ticks) <= 10


def test_one_far_deadline_does_not_press_all_others_into_a_line() -> None:
    near = [1000.0 + hour * 3600 for hour in range(1, 10)]
    axis = make_axis(1000.0, [*near, 1000.0 + 300 * 86400], None, 0.0)
    assert axis.end_s < 1000.0 + 86400 and axis.is_beyond(1000.0 + 300 * 86400)


def test_bars_are_as_high_as_their_shares() -> None:
    bars = draw_steps([(0.0, 2), (50.0, 4), (60.0, 0)], 100.0, Axis(0.0, 0.0, 100.0), 40.0, 4)
    assert [(bar.x, bar.width, bar.height, bar.share) for bar in bars] == [(0.0, 50.0, 20.0, 2), (50.0, 10.0, 40.0, 4)]
    assert clip_steps([(0.0, 2), (50.0, 4)], 30.0) == [(30.0, 2), (50.0, 4)]


def test_what_makes_no_sense_in_an_address_is_left_out() -> None:
    query = read_query({"group": "nobody", "past": "1000y", "page": "-3", "find": "a" * 500})
    assert (query.group, query.past, query.page, len(query.find)) == ("", "", 0, 100)
    assert query.address(group="ended", find="") == "/?group=ended"
