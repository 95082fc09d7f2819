"""What was stored stays done, and what was refused leaves nothing: on both sides of the commit of a step."""

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from tests.control.hand_clock import HandClockServer
from tests.control.scheduling.test_quarantine import RUN, SCRIPTS, run_two

from springtide.control.scheduling.submissions import Submission, name_keyed
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import JobRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import UnavailableError
from springtide.executors.protocol import Finished


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, scripts=SCRIPTS)


def submit(server: HandClockServer, secrets: Mapping[str, str] | None = None) -> str:
    """Submit a job of another user, within the reconciler."""
    job = check_job({"run": RUN, "secrets": list(secrets or ())}, "test")
    return server.operations.submit(Submission(job, server.code(), "bob", secrets or {}))


def finish(server: HandClockServer, job_id: str) -> None:
    """Let the executor say that a job has finished."""
    server.executor.runs.pop(job_id)
    server.executor.emit(Finished(job=job_id, generation=9, step=4000, reason=None))


def test_a_folder_in_the_place_of_secrets_goes_with_its_job(server: HandClockServer) -> None:
    ended, _ = run_two(server)
    (server.state_dir.secrets_file(ended) / "inside").mkdir(parents=True)
    finish(server, ended)
    future = server.reconciler.call(lambda: submit(server))
    server.reconciler.step()
    assert server.job(future.result(timeout=0)).state is JobState.ADMITTED, "another's submission in the same step"
    server.pass_s(9.0)
    assert ended not in server.executor.runs and server.job(ended).state is JobState.SUCCEEDED
    assert not server.state_dir.secrets_file(ended).exists() and server.store.count_quarantine() == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_secrets_that_cannot_be_removed_fail_nobody(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    ended, _ = run_two(server)
    path = server.state_dir.secrets_file(ended)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    unlink = os.unlink

    def refuse(name: str | Path, **given: int | None) -> None:
        if Path(name).name == path.name:
            raise OSError(number, os.strerror(number), str(name))
        unlink(name, **given)

    monkeypatch.setattr(os, "unlink", refuse)
    finish(server, ended)
    future = server.reconciler.call(lambda: submit(server))
    server.reconciler.step()
    assert server.job(future.result(timeout=0)).state is JobState.ADMITTED
    assert server.job(ended).state is JobState.SUCCEEDED and str(path) in caplog.text


def test_a_listener_that_fails_fails_nobody(server: HandClockServer, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Mapping[str, JobRecord]) -> None:
        raise KeyError("poison")

    server.store.listeners.append(fail)
    heard: list[str] = []
    server.store.listeners.append(lambda jobs: heard.extend(jobs))
    future = server.reconciler.call(lambda: submit(server))
    server.reconciler.step()
    assert server.job(future.result(timeout=0)).state is JobState.ADMITTED and heard
    assert "a listener failed" in caplog.text


SECRET = {"KEY": "hunter2"}


def find_secrets(server: HandClockServer) -> list[str]:
    """Every file of a server, its database too, in which the secret can be read."""
    files = [path for path in server.state_dir.root.rglob("*") if path.is_file()]
    return [str(path.relative_to(server.state_dir.root)) for path in files if b"hunter" in path.read_bytes()]


@pytest.mark.parametrize("error", [OperationalError, IntegrityError], ids=["unavailable", "unstorable"])
def test_a_submission_that_is_not_stored_leaves_no_secret(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, error: type[OperationalError | IntegrityError]
) -> None:
    def fail(_: Batch) -> None:
        assert find_secrets(server), "they are on the disk before the job is stored"
        raise error("COMMIT", {}, Exception("database or disk is full"))

    future = server.reconciler.call(lambda: submit(server, SECRET))
    with monkeypatch.context() as patch, suppress(OperationalError, IntegrityError):
        patch.setattr(server.store, "write", fail)
        server.reconciler.step()
    assert future.exception(timeout=0) is not None
    assert find_secrets(server) == [] and list(server.state_dir.jobs.iterdir()) == []


@pytest.mark.parametrize("is_stored", [False, True])
def test_where_nobody_knew_the_next_beginning_finds_out(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    real = server.store.write

    def fail(batch: Batch) -> None:
        if is_stored:
            real(batch)
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

    future = server.reconciler.call(lambda: submit(server, SECRET))
    with monkeypatch.context() as patch, pytest.raises(OperationalError):
        patch.setattr(server.store, "write", fail)
        patch.setattr(server.reconciler, "was_stored", lambda: None)
        server.reconciler.step()
    assert isinstance(future.exception(timeout=0), UnavailableError)
    server.restart()
    assert find_secrets(server) == [f"jobs/{one.id}/secrets.json" for one in server.store.list_jobs()]
    assert len(server.store.list_jobs()) == is_stored


def test_a_resume_that_is_not_stored_leaves_the_secrets_as_they_were(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Batch) -> None:
        raise OperationalError("COMMIT", {}, Exception("database or disk is full"))

    future = server.reconciler.call(lambda: submit(server, SECRET))
    server.reconciler.step()
    job_id = future.result(timeout=0)
    server.reconciler.call(lambda: server.operations.hold(job_id, "bob"))
    server.reconciler.step()
    server.reconciler.call(lambda: server.operations.resume(job_id, server.find_step(job_id), {"KEY": "hunter3"}))
    with monkeypatch.context() as patch, pytest.raises(OperationalError):
        patch.setattr(server.store, "write", fail)
        server.reconciler.step()
    server.restart()
    assert server.state_dir.secrets_file(job_id).read_text() == '{"KEY": "hunter2"}'
    assert find_secrets(server) == [f"jobs/{job_id}/secrets.json"]


def test_secrets_that_cannot_be_put_in_place_are_at_the_next_start(
    server: HandClockServer, caplog: pytest.LogCaptureFixture
) -> None:
    job = check_job({"run": RUN, "secrets": ["KEY"], "hold": True}, "test")
    submission = Submission(job, server.code(), "bob", SECRET, key="key-12345")
    job_id = name_keyed("bob", "key-12345")
    server.state_dir.job_folder(job_id).write_text("in the way")
    server.reconciler.call(lambda: server.operations.submit(submission))
    server.reconciler.step()
    assert server.job(job_id).state is JobState.PAUSED and "cannot be put in their place" in caplog.text
    server.state_dir.job_folder(job_id).unlink()
    server.restart()
    assert find_secrets(server) == [f"jobs/{job_id}/secrets.json"]
