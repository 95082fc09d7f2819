"""Names of checkpoints: which is newer, and what is none."""

import pytest

from springtide.core.checkpoint_names import CheckpointName, parse_name


def test_a_name_can_be_read_again() -> None:
    for name in (CheckpointName(0, 7), CheckpointName(12, 400, "9f3c52d1")):
        assert parse_name(str(name)) == name
    assert str(CheckpointName(0, 7)) == "step-000000007"


def test_one_of_a_newer_start_counts_more_than_a_later_step_of_one_that_was_replaced() -> None:
    replaced, late, new = CheckpointName(3, 400, "a"), CheckpointName(3, 900, "a"), CheckpointName(4, 450, "b")
    assert sorted([new, late, replaced]) == [replaced, late, new]


@pytest.mark.parametrize("text", ["step-", "step-12x", "damaged-step-000000001", "step-1-g2", "step-1234567890123", ""])
def test_what_is_no_name(text: str) -> None:
    assert parse_name(text) is None
