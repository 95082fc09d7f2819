"""Checkpoints: whole or not at all, checked, and of this job."""

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from springtide.errors import CheckpointError
from springtide.training.state import run_state
from springtide.training.state.checkpoints import MANIFEST, OLD_S, REST, WEIGHTS, Checkpoints, Facts

FACTS = Facts(
    logical_workers=4,
    seed=0,
    samples=64,
    batch_size=8,
    accumulate=1,
    shuffle=True,
    drop_last=True,
    level="D1",
    threads=1,
    code="abc",
)


def state_at(step: int) -> dict[str, Any]:
    """Some state."""
    return {
        "model": {"w": torch.full((3, 2), float(step)), "n": torch.tensor(step)},
        "optimizers": [{0: torch.ones(2)}],
    }


def fill(folder: Path, *steps: int, keep: int = 5) -> Checkpoints:
    """A folder with checkpoints of these steps."""
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(state_at(step), step, FACTS)
    checkpoints.wait()
    return checkpoints


def test_the_newest_comes_back(tmp_path: Path) -> None:
    saved = fill(tmp_path, 3, 12).load(FACTS, allow_code_change=False)
    assert saved is not None
    assert saved.step == 12
    assert torch.equal(saved.state["model"]["w"], torch.full((3, 2), 12.0))
    assert torch.equal(saved.state["optimizers"][0][0], torch.ones(2))


def test_weights_are_plain_safetensors(tmp_path: Path) -> None:
    path = fill(tmp_path, 3).list()[0]
    assert sorted(load_file(path / WEIGHTS)) == ["n", "w"]


def test_only_as_many_as_asked_for_are_kept(tmp_path: Path) -> None:
    assert [path.name for path in fill(tmp_path, 1, 2, 3, keep=2).list()] == ["step-000000003", "step-000000002"]


def test_what_changes_after_the_copy_is_not_in_the_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    state = state_at(1)
    checkpoints.save(state, 1, FACTS)
    state["model"]["w"].zero_()
    checkpoints.wait()
    saved = checkpoints.load(FACTS, False)
    assert saved is not None
    assert saved.state["model"]["w"].sum() == 6


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_said_so(tmp_path: Path, damage: str) -> None:
    checkpoints = fill(tmp_path, 3, 12)
    newest = checkpoints.list()[0]
    raw = bytearray((newest / REST).read_bytes())
    if damage == "truncate":
        (newest / REST).write_bytes(raw[:-5])
    elif damage == "flip":
        raw[-1] ^= 1
        (newest / REST).write_bytes(raw)
    elif damage == "remove":
        (newest / WEIGHTS).unlink()
    else:
        (newest / MANIFEST).write_text("{")
    saved = checkpoints.load(FACTS, False)
    assert saved is not None
    assert saved.step == 3
    assert "step-000000012" in saved.passed_over[0]


def test_a_damaged_checkpoint_is_kept_aside_and_not_in_place_of_a_good_one(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3, 12)
    (checkpoints.list()[0] / REST).write_bytes(b"")
    checkpoints.load(FACTS, False)
    again = fill(tmp_path, 4, keep=1)
    assert [path.name for path in again.list()] == ["step-000000004"]
    assert (tmp_path / "damaged-step-000000012").is_dir()


def test_without_its_manifest_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3)
    (checkpoints.list()[0] / MANIFEST).unlink()
    assert checkpoints.load(FACTS, False) is None


def test_when_all_are_damaged_nothing_is_started_over(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3)
    (checkpoints.list()[0] / REST).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is whole"):
        checkpoints.load(FACTS, False)


def test_other_jobs_are_refused(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3)
    with pytest.raises(CheckpointError, match="logical_workers 4, this run has 8"):
        checkpoints.load(replace(FACTS, logical_workers=8), False)
    with pytest.raises(CheckpointError, match="samples 64, this run has 65"):
        checkpoints.load(replace(FACTS, samples=65), False)
    with pytest.raises(CheckpointError, match="shuffle True, this run has False"):
        checkpoints.load(replace(FACTS, shuffle=False), False)
    with pytest.raises(CheckpointError, match="other code"):
        checkpoints.load(replace(FACTS, code="other"), False)
    assert checkpoints.load(replace(FACTS, code="other"), True) is not None


def test_facts_that_an_older_manifest_does_not_name_are_taken_to_agree(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3)
    file = checkpoints.list()[0] / MANIFEST
    file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "samples"}))
    assert checkpoints.load(FACTS, False) is not None


def test_leftovers_of_a_crash_are_cleaned(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3)
    (tmp_path / ".writing-4-1").mkdir()
    (tmp_path / ".writing-4-1" / WEIGHTS).write_bytes(b"half")
    (tmp_path / ".writing-0badcafe").write_text("half a receipt")
    (tmp_path / ".reading-abc" / "step-000000003").mkdir(parents=True)
    checkpoints.clean()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003"]


def test_a_writer_that_was_replaced_overwrites_and_removes_nothing_of_the_next_one(tmp_path: Path) -> None:
    fill(tmp_path, 1, 2)
    zombie, later = (Checkpoints(tmp_path, 2, generation) for generation in (6, 7))
    assert zombie.load(FACTS, False) is not None, "what was written before names had generations is read"
    later.save(state_at(5), 5, FACTS)
    later.wait()
    half = tmp_path / later.name_unfinished(8)
    half.mkdir()
    for step in (5, 9):
        zombie.save({**state_at(step), "model": {"w": torch.zeros(3, 2), "n": torch.tensor(0)}}, step, FACTS)
    zombie.wait()
    zombie.clean()
    assert half.is_dir(), "what the next start is writing"
    found = later.load(FACTS, False)
    assert found is not None and found.step == 5 and found.state["model"]["n"] == 5
    own = tmp_path / zombie.name_unfinished(10)
    own.mkdir()
    later.clean()
    assert not own.exists() and not half.exists(), "what earlier starts and its own processes left unfinished"


@pytest.mark.parametrize("generation", [0, 1], ids=["by hand", "another job"])
def test_who_goes_on_in_a_folder_of_a_later_generation_writes_what_is_newer(tmp_path: Path, generation: int) -> None:
    before = Checkpoints(tmp_path, 1, 12)
    before.save(state_at(3), 3, FACTS)
    before.wait()
    after = Checkpoints(tmp_path, 1, generation)
    after.catch_up()
    after.save(state_at(4), 4, FACTS)
    after.wait()
    found = Checkpoints(tmp_path, 1, generation).load(FACTS, False)
    assert found is not None and found.step == 4


def test_in_a_folder_of_a_later_generation_who_was_replaced_still_counts_less(tmp_path: Path) -> None:
    fill_as(tmp_path, 12, 3)
    first, second = Checkpoints(tmp_path, 9, 1), Checkpoints(tmp_path, 9, 2)
    first.catch_up()
    save_step(first, 4)
    second.catch_up()
    save_step(second, 4)
    save_step(first, 5)  # it was cut off and trains on
    again = Checkpoints(tmp_path, 9, 2)
    assert again.catch_up()[0].writer == second.token
    save_step(again, 4)
    assert Checkpoints(tmp_path, 9, 3).names()[0].writer == again.token, "another attempt of the same start"


def test_who_is_the_last_to_have_saved_in_a_folder_keeps_its_generation(tmp_path: Path) -> None:
    fill_as(tmp_path, 12, 3)
    after = Checkpoints(tmp_path, 9, 12)
    after.catch_up()
    assert after.generation == 12


def fill_as(folder: Path, generation: int, step: int) -> Checkpoints:
    writer = Checkpoints(folder, 9, generation)
    save_step(writer, step)
    return writer


def save_step(writer: Checkpoints, step: int) -> None:
    writer.save(state_at(step), step, FACTS)
    writer.wait()


def test_notes_of_a_later_start_stay_until_they_are_old(tmp_path: Path) -> None:
    notes = [tmp_path / name for name in (".writing-g7-0badcafe", ".reading-g7-abc", ".writing-step-000000008-g7-00aa")]
    notes[0].write_text("half a receipt")
    for folder in notes[1:]:
        folder.mkdir()
        (folder / WEIGHTS).write_bytes(b"half")
    earlier = Checkpoints(tmp_path, 2, 6)
    earlier.clean()
    assert all(note.exists() for note in notes), "what a later start reads and writes"
    long_ago_s = time.time() - 2 * OLD_S
    for path in (*notes, notes[1] / WEIGHTS):
        os.utime(path, (long_ago_s, long_ago_s))
    earlier.clean()
    assert [note.exists() for note in notes] == [False, False, True], "somebody still writes into it"


def test_a_disk_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "folder", 2)
    (tmp_path / "folder").rmdir()
    (tmp_path / "folder").write_text("a file")
    checkpoints.save(state_at(1), 1, FACTS)
    with pytest.raises(CheckpointError, match="could not be written"):
        checkpoints.wait()


@pytest.mark.parametrize(("free", "left"), [(3_000_000_000, [5, 4, 3]), (1_900_000_000, [5, 4])])
def test_on_a_disk_that_is_nearly_full_older_ones_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, left: list[int]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**10, free=free))
    checkpoints = fill(tmp_path, 1, 2, 3, 4, 5, keep=3)
    assert [int(path.name.removeprefix("step-")) for path in checkpoints.list()] == left


def test_the_newest_is_there_until_the_next_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = fill(tmp_path, 1, 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**10, free=0))
    monkeypatch.setattr("springtide.training.state.checkpoints.write_bytes", fail_to_write)
    checkpoints.save(state_at(3), 3, FACTS)
    with pytest.raises(CheckpointError, match="No space left"):
        checkpoints.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000002"]


def fail_to_write(path: Path, tensors: object) -> None:
    """What a full disk does: some of it is written."""
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_cannot_be_written_is_reported_whatever_the_reason(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save({"model": {"w": torch.zeros(1, dtype=torch.complex128)}}, 1, FACTS)
    with pytest.raises(CheckpointError, match=r"state at w is torch.complex128"):
        checkpoints.wait()
    assert list(tmp_path.iterdir()) == []
    assert checkpoints.wait() is None


def test_waiting_says_which_step_is_on_disk(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(state_at(7), 7, FACTS)
    assert checkpoints.wait() == 7
    assert checkpoints.wait() is None


def test_what_was_wrong_with_one_that_is_written_by_now_is_not_told_of_the_next(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path, 3)
    checkpoints.trouble = "checkpoint could not be written yet"  # it was tried again before anybody asked
    checkpoints.save(state_at(7), 7, FACTS)
    assert checkpoints.trouble == ""
    checkpoints.wait()


def test_the_manifest_names_every_file(tmp_path: Path) -> None:
    path = fill(tmp_path, 3).list()[0]
    manifest = json.loads((path / MANIFEST).read_text())
    assert sorted(manifest["files"]) == sorted(file.name for file in path.iterdir() if file.name != MANIFEST)


class Tied(torch.nn.Module):
    """A model with a weight of two names and a buffer that is not part of its state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(3, 3)
        self.decoder = torch.nn.Linear(3, 3)
        self.decoder.weight = self.encoder.weight
        self.register_buffer("mask", torch.ones(3), persistent=False)
        self.register_buffer("seen", torch.zeros(1))


def test_the_file_of_weights_is_what_load_state_dict_takes(tmp_path: Path) -> None:
    model = Tied()
    state = {"model": run_state.name_weights([model]), "weights_file": run_state.describe_weights([model])}
    saved = Checkpoints(tmp_path, keep=1)
    saved.save(state, 1, FACTS)
    saved.wait()
    weights = load_file(tmp_path / "step-000000001" / WEIGHTS)
    assert set(weights) == set(model.state_dict())
    Tied().load_state_dict(weights)
    read = saved.load(FACTS, allow_code_change=False)
    assert read is not None and set(read.state["model"]) == set(run_state.name_weights([model]))
