from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.durations import parse_deadline, parse_instant, parse_span, show_instant, show_span
from springtide.errors import JobError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("45m", 2700), ("6h", 21600), ("2d", 172800), ("1h30m", 5400), ("0.5h", 1800), (" 1d12h ", 129600)],
)
def test_spans_are_read_as_written(text: str, seconds: float) -> None:
    assert parse_span(text, "deadline") == seconds


@pytest.mark.parametrize("text", ["", "90", "h", "30m1h", "-5s", "0s", "1w", "1e9d", "1 h", "nan", "٣s"])
def test_what_is_no_span_is_refused_with_examples(text: str) -> None:
    with pytest.raises(JobError, match="deadline"):
        parse_span(text, "deadline")


def test_a_time_without_a_zone_is_refused_and_shown_with_the_local_one() -> None:
    with pytest.raises(JobError, match="no time zone; if you mean the local one, write '2026-11-16T09:00:00"):
        parse_instant("2026-11-16T09:00:00", "deadline")


def test_a_deadline_is_a_span_from_now_or_an_instant_ahead() -> None:
    now_s = parse_instant("2026-11-16T09:00:00Z", "").timestamp()
    assert parse_deadline("1h30m", now_s) == now_s + 5400
    assert parse_deadline("2026-11-16T11:00:00+01:00", now_s) == now_s + 3600
    with pytest.raises(JobError, match="in the past; it is now 2026-11-16T09:00:00Z"):
        parse_deadline("2026-11-16T09:30:00+01:00", now_s)


@given(st.integers(min_value=1, max_value=10**8))
def test_a_span_of_whole_seconds_survives_writing_and_reading(seconds: int) -> None:
    assert parse_span(f"{seconds}s", "span") == seconds


def test_spans_are_shown_in_two_units_at_most() -> None:
    assert [show_span(s) for s in (0.25, 59, 60, 3661, 90000, inf, -61)] == [
        "0.2s",
        "59s",
        "1m",
        "1h1m",
        "1d1h",
        "never",
        "-1m1s",
    ]


def test_instants_are_shown_in_utc() -> None:
    assert show_instant(0) == "1970-01-01T00:00:00Z"
