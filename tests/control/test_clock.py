from hypothesis import given
from hypothesis import strategies as st
from tests.control.hand_clock import HandClocks

from springtide.control.clock import Clock, SystemClocks


@given(st.lists(st.tuples(st.sampled_from(["pass", "jump"]), st.floats(0, 1e5)), max_size=20))
def test_jumps_of_the_wall_clock_change_nothing(moves: list[tuple[str, float]]) -> None:
    source = HandClocks()
    clock = Clock(source)
    begin_s, passed_s = clock.now_s(), 0.0
    for kind, seconds in moves:
        if kind == "pass":
            source.pass_s(seconds)
            passed_s += seconds
        else:
            source.wall -= seconds * 2 - 3600
        assert abs(clock.now_s() - begin_s - passed_s) < 1e-3


def test_a_restarted_server_continues_the_same_time() -> None:
    source = HandClocks()
    first = Clock(source)
    source.pass_s(10)
    source.wall += 3600
    assert Clock(source, first.anchor).now_s() == first.now_s()


def test_after_a_reboot_time_starts_from_the_wall_but_never_before_what_was_stored() -> None:
    source = HandClocks()
    first = Clock(source)
    source.boot, source.steady, source.wall = "next", 0.0, source.wall - 500
    assert Clock(source, first.anchor, not_before_s=first.anchor.at_s + 7).now_s() == first.anchor.at_s + 7


def test_the_system_clock_runs_forward() -> None:
    clock = Clock(SystemClocks())
    assert clock.now_s() <= clock.now_s()
