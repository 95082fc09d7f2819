"""Copies of a state in a host's memory: when they are made, where there is room, and which is resumed from."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.training.state.test_checkpoints import FACTS, fill, state_at

from springtide.errors import CheckpointError
from springtide.training.settings import Settings
from springtide.training.state import memory_copies
from springtide.training.state.checkpoints import WEIGHTS, Checkpoints
from springtide.training.state.memory_copies import EVERY_S, KEPT, MemoryCopies, check_room, load_newer, measure


def open_copies(folder: Path | None, every_s: float = 300.0) -> MemoryCopies:
    return MemoryCopies(Settings(memory_dir=folder, checkpoint_every_s=every_s))


def test_a_copy_is_made_every_so_often_and_costs_a_hundredth_at_most(tmp_path: Path) -> None:
    copies = open_copies(tmp_path)
    assert not copies.is_due(copies.began_s + EVERY_S / 2) and copies.is_due(copies.began_s + EVERY_S)
    copies.waited_s = 0.5
    assert not copies.is_due(copies.began_s + 49.0) and copies.is_due(copies.began_s + 50.0)
    copies.waited_s, copies.written_s = 0.0, 4.0
    assert not copies.is_due(copies.began_s + 79.0) and copies.is_due(copies.began_s + 80.0)


def test_no_copies_where_no_folder_was_given_or_no_checkpoints_are_wanted(tmp_path: Path) -> None:
    for copies in (open_copies(None), open_copies(tmp_path, every_s=0.0)):
        assert not copies.is_due(copies.began_s + 1e6)


def test_copies_take_a_quarter_of_what_is_free_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_copies, "read_available", lambda: 1200)
    check_room(75, tmp_path / "not" / "yet")
    with pytest.raises(CheckpointError, match=r"4 x 76 bytes are more than 25% of the 1,200 bytes"):
        check_room(76, tmp_path)
    assert measure(state_at(1)) == 3 * 2 * 4 + 8 + 2 * 4


def test_without_room_training_goes_on_without_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = open_copies(tmp_path / "own")
    copies.keeps = True
    copies.save(state_at(4), 4, FACTS)
    assert copies.copies is not None and copies.copies.wait() == 4
    monkeypatch.setattr(memory_copies, "read_available", lambda: 0)
    copies.save(state_at(5), 5, FACTS)
    assert not copies.is_due(copies.began_s + 1e6) and not (tmp_path / "own").exists()
    assert "no copy of the state is kept in this host's memory" in capsys.readouterr().err


def test_a_copy_of_a_step_of_which_nobody_heard_is_not_gone_on_from(tmp_path: Path) -> None:
    settings = Settings(memory_before=tmp_path / "before", memory_heard=11)
    fill(tmp_path / "before", 9, 12, keep=KEPT)
    found = load_newer(settings, 8, FACTS)
    assert found is not None and found.step == 9, "what was recorded for steps 10 to 12 was lost with its host"
    assert load_newer(settings, 9, FACTS) is None


def test_only_a_whole_copy_of_a_later_step_and_of_this_code_is_gone_on_from(tmp_path: Path) -> None:
    settings = Settings(memory_before=tmp_path / "before", memory_heard=12)
    assert load_newer(settings, 0, FACTS) is None, "there is none"
    kept: Checkpoints = fill(tmp_path / "before", 12, keep=1)
    found = load_newer(settings, 11, FACTS)
    assert found is not None and found.step == 12
    assert load_newer(settings, 12, FACTS) is None, "what is on disk counts first"
    assert load_newer(settings, 11, replace(FACTS, code="def")) is None
    (kept.list()[0] / WEIGHTS).write_bytes(b"half")
    assert load_newer(settings, 11, FACTS) is None
