"""A request of a user who is removed before it is worked in makes no job, least of all one of the server's own user."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.control.hand_clock import HandClockServer
from tests.control.http_servers import connect, run_server, write_project

from springtide.client.job_folders import load_job
from springtide.control.api import change_routes
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import RemovedUserError, UnknownOwnerError
from springtide.executors.fake import FakeJob

RUN = "python train.py long"


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    server = HandClockServer(tmp_path, scripts={"long": FakeJob(total_steps=10**6, speeds={1: 10.0, 2: 18.0})})
    server.store.put_user(UserRecord("ann", "hash-of-ann", admin=True))
    return server


def add_bob(server: HandClockServer) -> UserRecord:
    return server.store.put_user(UserRecord("bob", "hash-of-bob", run_as="nobody"))


def make_submission(server: HandClockServer, owner: str, key: str | None = None, **keys: Any) -> Submission:
    return Submission(check_job({"run": RUN, **keys}, "test"), server.code(), "bob", key=key, owner=owner)


@pytest.mark.parametrize("again", [False, True], ids=["removed", "another-of-that-name"])
@pytest.mark.parametrize("key", [None, "key-12345"])
def test_a_submission_of_a_removed_user_is_refused(server: HandClockServer, again: bool, key: str | None) -> None:
    bob = add_bob(server)
    submission, swept = make_submission(server, bob.id, key), make_submission(server, bob.id, key, sweep=SWEEP)
    server.store.drop_user("bob")
    if again:
        server.store.put_user(UserRecord("bob", "hash-of-another"))
    calls: list[Callable[[], object]] = [
        lambda: server.operations.submit(submission),
        lambda: server.operations.submit_array(swept),
        lambda: server.operations.plan(submission),
        lambda: server.operations.measure(submission),
    ]
    for call in calls:
        future = server.reconciler.call(call)
        server.reconciler.step()
        with pytest.raises(RemovedUserError, match="user bob was removed"):
            future.result(timeout=0)
    assert server.store.list_jobs() == [] and server.executor.running() == ()


SWEEP = {"grid": {"seed": [1, 2]}}


def test_who_is_unknown_by_name_is_nobody_where_there_are_users(server: HandClockServer) -> None:
    future = server.reconciler.call(lambda: server.operations.submit(make_submission(server, "")))
    server.reconciler.step()
    with pytest.raises(RemovedUserError):
        future.result(timeout=0)


def lose_owner(server: HandClockServer) -> JobRecord:
    """A job of somebody of whom the store knows nothing."""
    record = server.submit(run=RUN, user="ann")
    lost = JobRecord(**{name: getattr(record, name) for name in record.__dataclass_fields__} | {"owner": "bob"})
    server.store.write(Batch(jobs={record.id: lost}))
    return lost


def test_a_job_of_nobody_is_held_at_the_next_start_and_starts_as_no_one(server: HandClockServer) -> None:
    record = lose_owner(server)
    server.executor.runs.clear()
    server.restart()
    server.pass_s(10)
    found = server.job(record.id)
    assert (found.state, found.reason, found.devices) == (JobState.PAUSED, "quarantined", ())
    assert "is no user here" in found.sentence and server.executor.running() == ()
    other = server.submit(run=RUN, user="ann")
    assert server.job(other.id).state in (JobState.ADMITTED, JobState.RUNNING, JobState.PROBING)


def test_as_whom_jobs_of_nobody_run_is_not_guessed(server: HandClockServer) -> None:
    bob = add_bob(server)
    with pytest.raises(UnknownOwnerError, match="'bob' is no user here"):
        server.store.find_run_as("bob")
    server.store.drop_user("bob")
    assert server.store.find_run_as(bob.id) == "nobody"


def test_without_any_user_jobs_run_as_the_servers_own(tmp_path: Path) -> None:
    assert HandClockServer(tmp_path).store.find_run_as("ann") is None


def test_over_http_a_user_who_is_removed_meanwhile_submits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = load_job(write_project(tmp_path / "project"))
    with run_server(tmp_path) as server, connect(server) as client:
        token = client.put_user("bob").document["token"]
        told = {"job": job.job.model_dump(mode="json", exclude_defaults=True), "archive": client.upload(job.pack())}

        async def try_storage(*_: object) -> None:
            await asyncio.to_thread(server.store.drop_user, "bob")

        monkeypatch.setattr(change_routes, "try_storage", try_storage)
        headers = {"Authorization": f"Bearer {token}"}
        reply = httpx.post(f"{server.url}/api/v1/jobs", json=told, headers=headers)
        assert reply.status_code == 401, reply.text
        assert "user bob was removed" in reply.json()["error"]["sentence"]
        assert server.store.list_jobs() == []
