"""A folder for every run: what is copied, what is linked, and what is found out."""

import os
from pathlib import Path

import pytest

from springtide.errors import TrainingError
from springtide.verification import scratch_folders
from springtide.verification.scratch_folders import make_scratch


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A project with code, a snapshot, hidden folders and links."""
    root = tmp_path / "project"
    for folder in ("data", ".git", "__pycache__", "venv"):
        (root / folder).mkdir(parents=True)
    (root / "train.py").write_text("print(1)")
    (root / "data" / "small.csv").write_text("1,2")
    (root / "data" / "again.csv").symlink_to("small.csv")
    (root / "outside").symlink_to(tmp_path)
    (root / "venv" / "pyvenv.cfg").write_text("")
    return root


def test_files_are_copied_and_a_run_changes_nothing_of_the_source(source: Path, tmp_path: Path) -> None:
    scratch = make_scratch(tmp_path / "scratch", (source,), {})
    copy = scratch.place(source / "train.py")
    assert copy == scratch.folder / "train.py" and copy.read_text() == "print(1)"
    copy.write_text("print(2)")
    (scratch.folder / "data" / "again.csv").write_text("3")
    (scratch.folder / "data" / "snapshot.pt").write_text("new")
    assert (source / "train.py").read_text() == "print(1)"
    assert (source / "data" / "small.csv").read_text() == "1,2"
    assert not (source / "data" / "snapshot.pt").exists()
    scratch.check()


def test_hidden_folders_environments_and_links_to_elsewhere_are_linked(source: Path, tmp_path: Path) -> None:
    scratch = make_scratch(tmp_path / "scratch", (source,), {})
    links = {path.name for path in scratch.folder.iterdir() if path.is_symlink()}
    assert links == {".git", "venv", "outside"}
    assert not (scratch.folder / "__pycache__").exists()


def test_a_large_file_that_a_run_writes_to_is_found(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_folders, "LARGE_BYTES", 10)
    (source / "weights.bin").write_bytes(b"0" * 11)
    os.utime(source / "weights.bin", (1, 1))
    scratch = make_scratch(tmp_path / "scratch", (source,), {})
    scratch.check()
    (scratch.folder / "weights.bin").write_bytes(b"1" * 11)
    with pytest.raises(TrainingError, match=r"written to .*weights\.bin, which its runs share"):
        scratch.check()


def test_beyond_the_budget_folders_are_linked_as_a_whole_and_watched(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_folders, "MOST_FILES", 1)
    (source / "data" / "deep").mkdir()
    os.utime(source / "data" / "deep", (1, 1))
    scratch = make_scratch(tmp_path / "scratch", (source,), {})
    assert not (scratch.folder / "train.py").is_symlink()
    assert [one.path.name for one in scratch.shared] == ["deep", "small.csv"]
    (scratch.folder / "data" / "deep" / "snapshot.pt").write_text("leaks")
    with pytest.raises(TrainingError, match="deep"):
        scratch.check()


def test_home_has_the_entries_of_the_real_one_and_new_files_stay_there(source: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    scratch = make_scratch(tmp_path / "scratch", (source,), {"HOME": str(home)})
    assert (scratch.home / ".cache").resolve() == home / ".cache"
    (scratch.home / "snapshot.pt").write_text("mine")
    assert not (home / "snapshot.pt").exists()
    assert scratch.variables()["TMPDIR"] == str(scratch.temporary)


def test_a_scratch_inside_the_source_does_not_hold_itself(source: Path) -> None:
    scratch = make_scratch(source / "tmp" / "scratch", (source,), {})
    assert not (scratch.folder / "tmp").exists()


def test_the_folder_of_a_script_elsewhere_is_copied_too(source: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    scratch = make_scratch(tmp_path / "scratch", (here, source, source / "data"), {})
    assert scratch.place(source / "train.py").read_text() == "print(1)"
    assert scratch.place(source / "train.py").is_relative_to(tmp_path / "scratch")
    assert list(scratch.folder.iterdir()) == []
    assert len(scratch.copies) == 2
