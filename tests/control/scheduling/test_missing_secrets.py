"""A server with another home takes over: jobs whose secrets are not there wait for them, and do not fail."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.loop import recovery
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord
from springtide.control.storage.staging import Staging
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import JobError
from springtide.executors.fake import FakeJob

SECRETS = {"KEY": "value"}


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=1, scripts={"short": FakeJob(speeds={1: 1.0})})


def submit(server: HandClockServer) -> str:
    job = check_job({"run": "python train.py short", "secrets": list(SECRETS)}, "test")
    job_id = server.operations.submit(Submission(job, server.code(), "ann", SECRETS))
    server.pass_s(1)
    return job_id


def take_over(server: HandClockServer, *jobs: str) -> None:
    """The next server sees neither the secrets nor the agent of the one before."""
    for job in jobs:
        server.state_dir.secrets_file(job).unlink()
    server.executor.runs.clear()
    server.restart()
    server.pass_s(60)


def test_jobs_without_their_secrets_wait_and_go_on_with_them(server: HandClockServer) -> None:
    running, waiting = submit(server), submit(server)
    server.pass_s(20)
    assert server.job(running).devices and not server.job(waiting).devices
    take_over(server, running, waiting)
    for job in (running, waiting):
        record = server.job(job)
        assert (record.state, record.reason, record.devices) == (JobState.PAUSED, "no_secrets", ())
        assert f"springtide resume {job}" in record.sentence
        assert not any(one.job == job for one in server.executor.running())
    with pytest.raises(JobError, match="secret KEY has no value"):
        server.operations.resume(running, 0)
    server.operations.resume(running, 0, SECRETS)
    server.pass_s(60)
    assert server.job(running).state is JobState.RUNNING


def test_a_job_that_runs_with_its_secrets_goes_on_without_the_file(server: HandClockServer) -> None:
    job = submit(server)
    server.pass_s(20)
    server.state_dir.secrets_file(job).unlink()
    server.restart()
    server.pass_s(60)
    assert server.job(job).state is JobState.RUNNING


def test_a_job_that_can_neither_be_restored_nor_held_keeps_no_server_from_starting(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(server)
    waiting = submit(server)
    restore = recovery.restore_job

    def fail(staging: Staging, world: PlatformWorld, record: JobRecord) -> None:
        if record.id == waiting:
            raise ValueError("a record that nobody can read")
        restore(staging, world, record)

    monkeypatch.setattr(recovery, "restore_job", fail)
    server.state_dir.secrets_file(waiting).unlink()
    server.restart()
    assert server.store.count_quarantine() == 1
