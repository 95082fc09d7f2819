"""Ids of jobs: none that a job has, staged or stored, and none whose folder is here."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.submissions import Submission
from springtide.core.job_file import check_job


def test_an_id_that_is_taken_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = HandClockServer(tmp_path)
    stored = server.submit(name="stored")
    (server.state_dir.job_folder("0badf00d") / "checkpoints").mkdir(parents=True)
    drawn: Iterator[str] = iter([stored.id, "0badf00d", "11111111", "11111111", "22222222"])
    monkeypatch.setattr("springtide.control.scheduling.submissions.secrets.token_hex", lambda _: next(drawn))
    job = check_job({"run": "python train.py"}, "test")
    asked = [
        server.reconciler.call(lambda: server.operations.submit(Submission(job, server.code(), "ann"))) for _ in "12"
    ]
    server.reconciler.step()
    assert [one.result(timeout=0) for one in asked] == ["11111111", "22222222"]
    assert server.job(stored.id).name == "stored"


def test_an_id_of_a_job_that_is_over_and_left_no_folder_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HandClockServer(tmp_path)
    ended = server.submit(name="ended")
    server.reconciler.call(lambda: server.operations.cancel(ended.id, "ann"))
    server.reconciler.step()
    shutil.rmtree(server.state_dir.job_folder(ended.id), ignore_errors=True)
    drawn: Iterator[str] = iter([ended.id, "11111111"])
    monkeypatch.setattr("springtide.control.scheduling.submissions.secrets.token_hex", lambda _: next(drawn))
    assert server.submit(name="next").id == "11111111"
    assert (server.job(ended.id).name, str(server.job(ended.id).state)) == ("ended", "cancelled")
