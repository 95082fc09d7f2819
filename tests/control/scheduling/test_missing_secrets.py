"""A server with another home takes over: jobs whose secrets are not there wait for them, and do not fail."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling import transitions
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.loop import recovery
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord
from springtide.control.storage.staging import Staging
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import JobError
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Stopped

SECRETS = {"KEY": "value"}


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=1, scripts={"short": FakeJob(speeds={1: 1.0})})


def submit(server: HandClockServer, **keys: object) -> str:
    job = check_job({"run": "python train.py short", "secrets": list(SECRETS), **keys}, "test")
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


def require_paused(server: HandClockServer, job: str) -> None:
    record = server.job(job)
    assert (record.state, record.reason, record.devices) == (JobState.PAUSED, "no_secrets", ())
    assert not any(one.job == job for one in server.executor.running())


def test_a_job_that_waited_for_another_one_waits_for_its_secrets(server: HandClockServer) -> None:
    first = server.submit(run="python train.py short").id
    job = submit(server, after={first: "any"})
    take_over(server, job)
    assert server.job(job).state is JobState.WAITLISTED
    server.operations.cancel(first, "ann")
    server.pass_s(5)
    require_paused(server, job)
    server.operations.resume(job, 0, SECRETS)
    server.pass_s(5)
    assert server.job(job).state is JobState.RUNNING


def test_a_job_whose_offer_is_taken_waits_for_its_secrets(server: HandClockServer) -> None:
    known = server.submit(run="python train.py short", steps=20, deadline="10m").id
    server.pass_s(60)
    assert server.job(known).state is JobState.SUCCEEDED
    job = submit(server, steps=20, deadline="5s")
    assert server.job(job).state is JobState.OFFERED
    server.state_dir.secrets_file(job).unlink()
    server.restart()
    server.operations.accept(job, None)
    server.pass_s(5)
    require_paused(server, job)


def test_a_job_that_is_ended_on_a_drained_node_waits_for_its_secrets(server: HandClockServer) -> None:
    job = submit(server)
    server.pass_s(20)
    server.state_dir.secrets_file(job).unlink()
    context = server.reconciler.context
    transitions.start_again(context.staging, context.world, context.state_dir, job)
    server.pass_s(5)
    require_paused(server, job)


def test_a_job_that_gave_its_devices_away_waits_for_its_secrets(server: HandClockServer) -> None:
    """Its processes had them; the ones after them would fail it."""
    job, other = submit(server), server.submit(run="python train.py short").id
    server.pass_s(20)
    server.state_dir.secrets_file(job).unlink()
    server.restart()
    run = server.executor.runs.pop(job)
    reason = "the agent leaves"
    server.executor.emit(Stopped(job=job, generation=run.generation, step=int(run.step), reason=reason))
    server.pass_s(20)
    require_paused(server, job)
    assert server.job(other).state is JobState.RUNNING, "its devices are others'"
