"""Code in object storage: kept before anybody believes it is there, and missed by its own jobs only."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.client.packing import pack
from springtide.control.storage.archives import take_upload
from springtide.control.storage.places import stored_code
from springtide.control.storage.places.stored_code import keep_code, name_archive, restore_code
from springtide.control.storage.state_dir import StateDir
from springtide.core.archive_format import LIMIT_BYTES
from springtide.errors import StateError


class Bucket:
    """Object storage that is a folder."""

    def __init__(self, url: str) -> None:
        self.folder = Path(url.removeprefix("s3://bucket"))

    def list(self, prefix: str) -> list[str]:
        return [prefix] if (self.folder / prefix).exists() else []

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        (self.folder / name).write_bytes(b"".join(chunks))

    def open(self, name: str) -> BinaryIO:
        return (self.folder / name).open("rb")


@pytest.fixture(autouse=True)
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stored_code, "ObjectStore", Bucket)
    (tmp_path / "bucket" / "code").mkdir(parents=True)
    return tmp_path / "bucket"


@pytest.fixture
def home(tmp_path: Path, bucket: Path) -> StateDir:
    return StateDir(tmp_path / "home", storage=f"s3://bucket{bucket}").make()


def upload(home: StateDir, data: bytes, code_hash: str) -> None:
    """Take in an archive as the route does."""
    with take_upload(home.code) as taken:
        taken.write(data)
        taken.unpack(home.code / code_hash, LIMIT_BYTES, partial(keep_code, home, code_hash, taken.path))


def test_code_that_could_not_be_kept_is_not_found_and_so_sent_again(
    home: StateDir, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("print('hello')\n")
    archive = pack(tmp_path / "work")

    def refuse(_path: Path) -> None:
        raise OSError("the bucket takes nothing")

    with monkeypatch.context() as patch:
        patch.setattr(stored_code, "read_chunks", refuse)
        with pytest.raises(StateError, match="the code was not taken in"):
            upload(home, archive.data, archive.code_hash)
    assert list(home.code.iterdir()) == [], "who asks for it is told that it is not here"
    upload(home, archive.data, archive.code_hash)
    assert (bucket / name_archive(archive.code_hash)).is_file()
    (bucket / name_archive(archive.code_hash)).unlink()
    upload(home, archive.data, archive.code_hash)
    assert (bucket / name_archive(archive.code_hash)).is_file(), "also where the files are here already"


@pytest.mark.parametrize("found", ["nothing", "something else"])
def test_code_that_cannot_be_had_costs_its_own_jobs_only(tmp_path: Path, bucket: Path, found: str) -> None:
    server = HandClockServer(tmp_path, devices=1)
    runs, waits = server.submit(name="runs"), server.submit(name="waits", priority=-1)
    server.state_dir = replace(server.state_dir, storage=f"s3://bucket{bucket}")
    lost = "0" * 64
    server.reconciler.context.staging.change(waits.id, archive=lost)
    server.reconciler.step()
    if found != "nothing":
        (bucket / name_archive(lost)).write_bytes(b"x" * 1024)
    restore_code(server.state_dir, server.store.active_jobs(), LIMIT_BYTES)
    server.restart()
    server.reconciler.step()
    assert (str(server.job(waits.id).state), server.job(waits.id).reason) == ("paused", "no_code")
    assert server.job(runs.id).active and server.job(runs.id).reason != "no_code"


def test_storage_that_cannot_be_reached_is_no_code_that_is_lost(
    home: StateDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HandClockServer(tmp_path / "server")
    record = server.submit()
    shutil.rmtree(server.state_dir.code)

    def refuse(*_: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(Bucket, "open", refuse)
    with pytest.raises(StateError, match="cannot be had: no answer"):
        restore_code(home, [record], LIMIT_BYTES)
