"""Rosters: spreading, writing and reading them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.errors import JobError
from springtide.training.group.rosters import check_counts, make_roster, parse_roster, parse_size, spread


@given(st.integers(1, 200), st.data())
def test_spread_is_even_and_complete(workers: int, data: st.DataObject) -> None:
    processes = data.draw(st.integers(1, workers))
    counts = spread(workers, processes)
    assert sum(counts) == workers
    assert max(counts) - min(counts) <= 1
    roster = make_roster(counts)
    held = [worker for rank in range(processes) for worker in roster.workers_of(rank)]
    assert held == list(range(workers))
    assert parse_roster(str(roster)) == roster
    assert parse_size("+".join(map(str, counts)), workers) == (counts if processes > 1 else spread(workers, workers))


def test_sizes_as_users_write_them() -> None:
    assert parse_size("3", 4) == (2, 1, 1)
    assert parse_size("3+1", 4) == (3, 1)


@pytest.mark.parametrize(
    ("size", "reason"),
    [("2+1", "places 3 logical workers; it must place all 4"), ("5", "5 processes for 4"), ("x", "neither a number")],
)
def test_bad_sizes_are_refused(size: str, reason: str) -> None:
    with pytest.raises(JobError, match=reason):
        parse_size(size, 4)


@pytest.mark.parametrize("text", ["p0", "p0:0", "p0:2,p0:2", ":3"])
def test_bad_rosters_are_refused(text: str) -> None:
    with pytest.raises(JobError, match="roster"):
        parse_roster(text)


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(JobError, match="logical_workers is 0"):
        check_counts(0, 1)
    with pytest.raises(JobError, match="use at most 2 processes"):
        check_counts(2, 3)
