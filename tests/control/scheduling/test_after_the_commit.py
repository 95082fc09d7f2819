"""What was stored stays done, and what was refused leaves nothing: on both sides of the commit of a step."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer
from tests.control.scheduling.test_quarantine import RUN, SCRIPTS, run_two

from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
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
