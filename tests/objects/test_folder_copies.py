"""A folder in object storage: whole with its list, sent again only where it has changed, and never believed blindly."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.objects.s3_server import BUCKET, S3Server

from springtide.errors import InputError
from springtide.objects import folder_copies
from springtide.objects.folder_copies import LIST, copy_folder, find_hash, read_list
from springtide.objects.object_store import ObjectStore


@pytest.fixture
def store(s3: S3Server) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}/copies/{secrets.token_hex(4)}", s3.environ)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "link").symlink_to("/etc/passwd")
    return tmp_path


def test_only_what_has_changed_is_sent_again(store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_folder(folder, store)
    assert set(read_list(store)) == {"deep/a.txt", "b.txt"}, "links are not followed"
    (folder / "b.txt").write_text("c")
    sent, write = [], store.write

    def note(name: str, chunks: Iterable[bytes | memoryview]) -> int:
        sent.append(name)
        return write(name, chunks)

    monkeypatch.setattr(store, "write", note)
    copy_folder(folder, store)
    assert sent == ["files/b.txt", LIST]
    assert read_list(store)["b.txt"].sha256 == find_hash(folder / "b.txt") and store.read("files/b.txt") == b"c"


def test_a_start_that_was_replaced_leaves_alone_what_a_later_one_has_copied(
    store: ObjectStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_folder(folder, store)
    (folder / "b.txt").write_text("of start 7")
    copy_folder(folder, store, 7)
    (folder / "b.txt").write_text("of start 6, which was cut off")
    copy_folder(folder, store, 6)
    assert store.read("files/b.txt") == b"of start 7" and "start 7 of this job" in capsys.readouterr().out
    copy_folder(folder, store, 8)
    assert store.read("files/b.txt") == b"of start 6, which was cut off"


def test_it_is_a_program_that_fails_with_a_sentence(
    s3: S3Server, store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**os.environ, **s3.environ}
    command = [sys.executable, "-m", "springtide.objects.folder_copies"]
    subprocess.run([*command, str(folder), store.url, "3"], env=environ, check=True, timeout=60)
    assert set(read_list(store)) == {"deep/a.txt", "b.txt"}
    monkeypatch.setattr(folder_copies, "PAUSES_S", ())
    monkeypatch.setattr(sys, "argv", ["folder_copies", str(folder), "s3://nobody/x", "0"])
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        folder_copies.main()
    assert ended.value.code == 1


@pytest.mark.parametrize("name", ["../other", "a/../../b", "/etc/passwd", ""])
def test_a_list_that_names_what_is_outside_is_none(store: ObjectStore, name: str) -> None:
    entry = {"bytes": 1, "sha256": "0" * 64, "modified_s": 0.0}
    store.write(LIST, [json.dumps({"files": {name: entry}}).encode()])
    assert read_list(store) == {}


def test_a_folder_whose_list_could_not_be_read_is_refused(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_copies, "SMALL_BYTES", 100)
    with pytest.raises(InputError, match=r"has 2 files, whose list would take \d+ bytes; .*: write fewer files"):
        copy_folder(folder, store)


class MemoryStore(ObjectStore):
    """Objects in memory, for what needs no server."""

    def __init__(self) -> None:
        self.url, self.objects = "s3://here", dict[str, bytes]()

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        self.objects[name] = b"".join(chunks)
        return len(self.objects[name])

    def read(self, name: str) -> bytes:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]


def test_a_start_that_took_long_does_not_write_its_list_over_a_later_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    write = store.write

    def write_late(name: str, chunks: Iterable[bytes | memoryview]) -> int:
        size = write(name, chunks)
        if name == "files/deep/a.txt":
            monkeypatch.setattr(store, "write", write)
            copy_folder(folder, store, 7)  # by a later start, meanwhile
        return size

    monkeypatch.setattr(store, "write", write_late)
    copy_folder(folder, store, 6)
    assert json.loads(store.read(LIST))["generation"] == 7 and "start 7 of this job" in capsys.readouterr().out


@pytest.mark.parametrize("generation", ["Infinity", "NaN", "1e999", '"x"', "[]"])
def test_a_list_of_no_start_that_there_can_be_is_of_none(folder: Path, generation: str) -> None:
    store = MemoryStore()
    store.write(LIST, [f'{{"generation": {generation}, "files": {{}}}}'.encode()])
    copy_folder(folder, store, 1)
    assert json.loads(store.read(LIST))["generation"] == 1
