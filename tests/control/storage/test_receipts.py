"""Receipts at the server: made of what a job left, sealed, and known again."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from springtide.control.storage import receipts
from springtide.control.storage.receipts import make_receipt, was_sealed_here
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir, write_private
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.core.receipt_format import hash_line, read_receipt
from springtide.errors import InputError

RECORD = JobRecord("one-1", "one", "ann", JobState.SUCCEEDED, JobFile(run="python train.py"), 0.0, weights="ab" * 32)
HEAD: dict[str, Any] = {"facts": {"seed": 0}, "environment": {}, "data": None}


@pytest.fixture
def home(tmp_path: Path) -> StateDir:
    home = StateDir(tmp_path / "home").make()
    home.output(RECORD.id).mkdir(parents=True)
    (home.output(RECORD.id) / "chain.jsonl").write_text(json.dumps({**HEAD, "chain": hash_line("", HEAD)}) + "\n")
    return home


def test_a_receipt_is_sealed_and_a_changed_one_is_not_known(home: StateDir, tmp_path: Path) -> None:
    receipt = make_receipt(home, RECORD)
    assert read_receipt(json.dumps(receipt), "r")["final"]["weights_sha256"] == "ab" * 32
    assert was_sealed_here(home, receipt)
    assert not was_sealed_here(home, {**receipt, "final": {"step": 9}})
    assert not was_sealed_here(StateDir(tmp_path / "other").make(), receipt)
    assert not was_sealed_here(home, {"seal": {"mac": 5}})


def test_the_key_is_for_the_owners_eyes_only(home: StateDir) -> None:
    make_receipt(home, RECORD)
    assert (home.root / "receipt.key").stat().st_mode & 0o077 == 0


def test_the_first_receipts_at_once_are_sealed_with_one_key(home: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    write, ready = write_private, threading.Event()

    def write_late(path: Path, text: str) -> None:
        ready.wait(0.2)  # until the others have looked, too
        write(path, text)

    monkeypatch.setattr(receipts, "write_private", write_late)
    with ThreadPoolExecutor(8) as threads:
        keys = list(threads.map(lambda _: receipts.load_key(home), range(8)))
    assert len(set(keys)) == 1 and keys[0] == receipts.load_key(home)


def test_files_of_one_name_can_be_written_at_once(home: StateDir) -> None:
    texts = [str(number) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda text: write_private(home.root / "x", text), texts * 10))
    assert (home.root / "x").read_text() in texts
    assert not list(home.root.glob("*.part"))


def test_without_an_end_or_a_chain_there_is_none(home: StateDir) -> None:
    with pytest.raises(InputError, match="one is running; there is a receipt once"):
        make_receipt(home, replace(RECORD, state=JobState.RUNNING))
    file = home.output(RECORD.id) / "chain.jsonl"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(InputError, match="chain does not follow"):
        make_receipt(home, RECORD)
    file.unlink()
    file.symlink_to(home.token)
    with pytest.raises(InputError, match="left no chain"):
        make_receipt(home, RECORD)
