"""Notes beside points: written, read, absent and broken."""

from pathlib import Path

import pytest

from springtide.errors import ProfileError
from springtide.throughput.tables.profile_notes import Notes, find_notes_file, read_notes, write_notes


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    points = tmp_path / "net.points.csv"
    assert write_notes(points, {"worker_batch": 32, "script_logical_workers": 8, "noise": 0.02}) == find_notes_file(
        points
    )
    assert read_notes(points) == Notes(32, 8)


def test_points_without_notes_have_empty_ones(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "imported.csv") == Notes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no notes"),
        ('{"worker_batch": 0}', "worker_batch 0 must be a whole number"),
        ('{"script_logical_workers": "8"}', "script_logical_workers '8' must be"),
    ],
)
def test_broken_notes_are_named(tmp_path: Path, text: str, message: str) -> None:
    points = tmp_path / "net.points.csv"
    find_notes_file(points).write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=message):
        read_notes(points)
