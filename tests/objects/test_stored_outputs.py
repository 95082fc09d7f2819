"""What jobs have left in object storage, as the server lists and reads it: one tree with what is on its own disk."""

from pathlib import Path, PurePosixPath

import pytest
from tests.objects.s3_server import BUCKET, S3Server

from springtide.control.storage.job_outputs import list_kept, open_kept
from springtide.control.storage.state_dir import StateDir
from springtide.errors import StateError
from springtide.objects.folder_copies import copy_folder
from springtide.objects.object_store import ObjectStore

JOB = "cnn-1"


@pytest.fixture
def state_dir(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """A server's home, and a job of which one file is here and two are in the storage."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    home = StateDir(tmp_path / "home", f"s3://{BUCKET}/{tmp_path.name}").make()
    home.output(JOB).mkdir(parents=True)
    (home.output(JOB) / "both.txt").write_text("here")
    there = tmp_path / "there"
    (there / "deep").mkdir(parents=True)
    (there / "both.txt").write_text("there")
    (there / "deep" / "report.txt").write_text("only there")
    copy_folder(there, ObjectStore(home.job_url(JOB, "output") or ""))
    return home


def read(state_dir: StateDir, path: str) -> bytes:
    with open_kept(state_dir, JOB, PurePosixPath(path)).file as file:
        return file.read()


def test_what_is_here_and_what_is_there_are_one_tree(state_dir: StateDir) -> None:
    found = {one.path: one for one in list_kept(state_dir, JOB, with_checkpoints=True).files}
    assert sorted(found) == ["output/both.txt", "output/deep/report.txt"]
    assert found["output/deep/report.txt"].size == len("only there") and found["output/deep/report.txt"].sha256
    assert read(state_dir, "output/both.txt") == b"here", "this disk comes first"
    assert read(state_dir, "output/deep/report.txt") == b"only there"
    opened = open_kept(state_dir, JOB, PurePosixPath("output/deep/report.txt"))
    opened.file.close()
    assert opened.version == found["output/deep/report.txt"].version
    with pytest.raises(FileNotFoundError):
        open_kept(state_dir, JOB, PurePosixPath("output/none.txt"))
    with pytest.raises(FileNotFoundError):
        open_kept(state_dir, JOB, PurePosixPath("checkpoints/step-000000001/model.safetensors"))


def test_a_storage_that_fails_is_no_empty_one(state_dir: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StateError, match=r"cannot be listed: .*; try again"):
        list_kept(state_dir, JOB, with_checkpoints=True)
