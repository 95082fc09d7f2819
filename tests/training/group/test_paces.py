"""Who holds the others up is found among its like, told once when it lasts, and once when it is over."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from springtide.training.group.control_channel import Channel
from springtide.training.group.paces import SLOW, Pace, PaceWatch, find_laggard
from springtide.training.workers.turns import Turns

NAMES = ("p0", "p1", "p2")
EVEN = [Pace(0.1, 1)] * 3
SECOND_SLOW = [Pace(0.1, 1), Pace(0.3, 1), Pace(0.12, 1)]


@pytest.mark.parametrize(
    ("seconds", "kinds", "rank"),
    [
        pytest.param([0.1, 0.3], [1, 1], 1, id="one of two"),
        pytest.param([0.1, 0.1, 0.5, 0.2], [1, 1, 1, 1], 2, id="the slowest of several"),
        pytest.param([0.1, 0.14], [1, 1], None, id="a little slower"),
        pytest.param([0.1, 0.3], [1, 2], None, id="another kind of device"),
        pytest.param([0.1, 0.1, 0.9, 2.0], [1, 1, 2, 2], 3, id="within its kind"),
        pytest.param([0.0, 0.3], [1, 1], None, id="one without a turn yet"),
    ],
)
def test_a_process_is_compared_with_its_like(seconds: list[float], kinds: list[int], rank: int | None) -> None:
    found = find_laggard([Pace(*one) for one in zip(seconds, kinds, strict=True)])
    assert (None if found is None else found.rank) == rank


@given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8), st.floats(SLOW * 1.01, 50.0))
def test_whoever_is_found_is_that_much_slower_than_half_of_the_others(seconds: list[float], factor: float) -> None:
    found = find_laggard([Pace(one, 0) for one in seconds])
    if found is not None:
        beside = sorted(one for rank, one in enumerate(seconds) if rank != found.rank)
        assert seconds[found.rank] > SLOW * beside[(len(beside) - 1) // 2]
    even = [Pace(0.1, 0)] * len(seconds)
    assert find_laggard(even) is None
    slow = find_laggard([*even, Pace(0.1 * factor, 0)])
    assert slow is not None and slow.rank == len(even) and slow.factor == pytest.approx(factor)


def test_it_is_told_when_it_lasts_and_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []
    channel = Channel(None, "p0")
    monkeypatch.setattr(channel, "tell_lagging", lambda name, factor: told.append((name, round(factor, 1))))
    now: dict[str, Any] = {"s": 100.0}
    monkeypatch.setattr("springtide.training.group.paces.time.monotonic", lambda: now["s"])
    watch = PaceWatch()
    for seen, expected in (
        ([EVEN] * 9, []),
        ([SECOND_SLOW] * 4, []),  # not for long
        ([EVEN, SECOND_SLOW, SECOND_SLOW], []),  # and not all the time
        ([SECOND_SLOW] * 20, [("p1", 2.7)]),
        ([EVEN] * 4, [("p1", 2.7)]),
        ([EVEN] * 20, [("p1", 2.7), ("", 1.0)]),
    ):
        for one in seen:
            watch.judge(channel, NAMES, one)
            now["s"] += 2.0
        assert told == expected


class LateRoot:
    """A group whose rank 0 comes some seconds after this process, by a clock of the test's."""

    def __init__(self, clock: dict[str, float]) -> None:
        self.clock = clock

    def broadcast(self, tensor: torch.Tensor, root: int) -> "LateRoot":
        return self

    def wait(self) -> None:
        self.clock["s"] += 5.0


def test_who_waits_for_the_buffers_of_rank_0_is_not_slow_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"s": 100.0}
    monkeypatch.setattr("springtide.training.group.paces.time.monotonic", lambda: now["s"])
    watch, turns = PaceWatch(), Turns([torch.nn.BatchNorm1d(2)], find_unused=False, broadcast_buffers=True)
    group: Any = LateRoot(now)
    for _ in range(2):
        turns.buffers[0].begin_walk([1])
        watch.begin()
        turns.buffers[0].begin_turn(1, is_first=True)
        for _ in range(3):  # DDP broadcasts before each further one
            turns.buffers[0].before_forward(is_first=True, group=group)
            turns.buffers[0].after_forward(holding=False)
            now["s"] += 1.0
        watch.end(1, turns.waited_s)
    assert (watch.spent_s, watch.turns) == (6.0, 2), "and 20 s were waited"
