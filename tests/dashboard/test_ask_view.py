"""What another job would become, in words and colour."""

import pytest

from springtide.client.board_replies import ChangeInfo, StandingInfo
from springtide.dashboard.ask_view import find_change_tone, tell_change, tell_effect


def make_change(before_s: float, after_s: float | None, deadline_s: float | None = 300.0) -> ChangeInfo:
    before, after = StandingInfo({}, 2, ((0.0, 2),), before_s), StandingInfo({}, 1, ((0.0, 1),), after_s)
    return ChangeInfo({}, "j", "other", deadline_s, before, after)


@pytest.mark.parametrize(
    ("change", "told", "tone"),
    [
        (make_change(100.0, 240.0), "still 1m before its deadline", "safe"),
        (make_change(100.0, 500.0), ", 3m20s after its deadline", "risk"),
        (make_change(400.0, 500.0), "still 3m20s after its deadline", "risk"),
        (make_change(100.0, None), "without a planned end", "tight"),
        (make_change(100.0, 500.0, None), "planned end 6m40s later", "plain"),
    ],
)
def test_a_job_that_would_be_late_is_told_as_late(change: ChangeInfo, told: str, tone: str) -> None:
    assert told in tell_change(change)
    assert find_change_tone(change) == tone
    assert ("after its deadline would end: other" in tell_effect([change])) == (tone == "risk")


def test_a_promise_without_a_planned_end_is_not_told_as_kept() -> None:
    told = tell_effect([make_change(100.0, 240.0), make_change(100.0, None)])
    assert told == "2 other jobs change; without a planned end would be: other."
