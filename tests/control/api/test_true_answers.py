"""Answers are true: an error has no effect, a repeated submission makes one job, a standstill is said with its age."""

import errno
import http.client
import json
import socket
import sqlite3
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError
from tests.control.http_servers import connect, run_server, write_project

from springtide.client import server_connection
from springtide.client.client import Client
from springtide.client.http_connections import HttpResponse
from springtide.client.job_folders import load_job
from springtide.control.api import api, change_routes
from springtide.control.api.job_data.archive_routes import UploadDesk
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.sentences import tell_policy_failure
from springtide.control.server import Server
from springtide.control.storage import archives
from springtide.control.storage.archives import ArchiveUpload
from springtide.control.storage.records import UserRecord
from springtide.errors import InputError, ServerError, StateError, UnavailableError

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with run_server(tmp_path) as server:
        yield server


def post(server: Server, path: Path, key: str | None, **body: Any) -> HttpResponse:
    with connect(server) as client:
        job = load_job(path)
        told = {"job": job.job.model_dump(mode="json", exclude_defaults=True), "archive": client.upload(job.pack())}
        headers = {} if key is None else {"Idempotency-Key": key}
        return client.http.post("/api/v1/jobs", json=told | body, headers=headers)


@contextmanager
def lose_answers(server: Server, lost: int) -> Iterator[str]:
    """A line to the server that passes on what is asked, and hangs up before the first so many answers to submits."""
    target = urlsplit(server.url)
    listener = socket.create_server(("127.0.0.1", 0))
    left = [lost]

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with line:
                pass_on(line)

    def pass_on(line: socket.socket) -> None:
        file = line.makefile("rb")
        method, path, _ = file.readline().decode().split()
        headers = {}
        while text := file.readline().decode().strip():
            name, _, value = text.partition(": ")
            headers[name] = value
        body = file.read(int(headers.get("Content-Length", headers.get("content-length", "0"))))
        upstream = http.client.HTTPConnection(target.netloc)
        upstream.request(method, path, body, {name: value for name, value in headers.items() if name.lower() != "host"})
        reply = upstream.getresponse()
        data = reply.read()
        upstream.close()
        file.close()
        if method == "POST" and path == "/api/v1/jobs" and left[0] > 0:
            left[0] -= 1
            return
        head = f"HTTP/1.1 {reply.status} x\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        line.sendall(head.encode() + data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_submission_sent_twice_under_one_key_is_one_job(server: Server, tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    first, second = post(server, path, "key-12345"), post(server, path, "key-12345")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"]
    assert len(server.store.list_jobs()) == 1


def test_a_key_with_other_content_is_refused(server: Server, tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    first = post(server, path, "key-12345").json()["id"]
    other = post(server, path, "key-12345", accept_offer=True)
    assert other.status_code == 409 and first in other.json()["error"]["sentence"]
    assert len(server.store.list_jobs()) == 1


def test_without_keys_or_with_different_ones_each_is_a_job(server: Server, tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    found = {post(server, path, key).json()["id"] for key in (None, None, "key-12345", "key-12346")}
    assert len(found) == len(server.store.list_jobs()) == 4
    assert post(server, path, "short").status_code == 422


def test_keys_are_a_user_s_own(server: Server, tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    mine = post(server, path, "key-12345").json()["id"]
    with connect(server) as client:
        token = client.put_user("bob").document["token"]
    with connect(server, token) as bob:
        assert bob.submit(path, key="key-12345").id != mine


def test_the_client_asks_again_for_an_answer_that_was_lost(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "PAUSES_S", (0.01, 0.02, 0.03))
    path = write_project(tmp_path / "project")
    with lose_answers(server, 2) as url, Client(url, home=server.settings.state_dir.root) as client:
        job = client.submit(path)
    assert [record.id for record in server.store.list_jobs()] == [job.id]


def test_the_client_gives_up_in_the_end_and_at_once_where_nobody_listens(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "PAUSES_S", (0.01, 0.02))
    path = write_project(tmp_path / "project")
    home = server.settings.state_dir.root
    with (
        lose_answers(server, 99) as url,
        Client(url, home=home) as client,
        pytest.raises(ServerError, match="no server answers"),
    ):
        client.submit(path)
    assert len(server.store.list_jobs()) == 1


def test_what_takes_too_long_is_answered_and_undone_if_it_was_not_begun(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_project(tmp_path / "project")
    with connect(server) as client:
        client.upload(load_job(path).pack())
    monkeypatch.setattr(api, "ANSWER_S", 0.2)
    go_on, begun = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go_on.wait(30)

    blocked = server.reconciler.call(block)
    begun.wait(30)
    late = post(server, path, "key-12345")
    assert late.status_code == 503 and late.headers["Retry-After"]
    told = late.json()
    assert "nothing was done" in told["error"]["sentence"] and not told["unknown"] and len(told["job"]) == 8
    go_on.set()
    blocked.result(timeout=30)
    monkeypatch.undo()
    assert server.reconciler.call(lambda: None).result(timeout=30) is None
    assert server.store.list_jobs() == []
    assert post(server, path, "key-12345").json()["id"] == told["job"]


def test_readiness_says_what_stands_still_and_liveness_stays(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_project(tmp_path / "project")
    with connect(server) as client:
        job = client.submit(path)
        ready = httpx.get(f"{server.url}/readyz")
        checks = {"step", "executor", "outage", "store", "disk", "load", "notices"}
        assert ready.status_code == 200 and {*ready.json()["checks"]} == checks
        health = server.reconciler.health
        monkeypatch.setattr(health.__class__, "step_age_s", property(lambda self: 61.0))
        monkeypatch.setattr(health.__class__, "note_step", lambda self: None)
        health.failing = "database is locked"
        still = httpx.get(f"{server.url}/readyz")
        step = still.json()["checks"]["step"]
        assert (still.status_code, step["ok"], step["age_s"]) == (503, False, 61.0) and "locked" in step["sentence"]
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        sentence = "the platform stands still: no step has succeeded for 1m1s (database is locked)"
        assert client.why(job).facts[0] == sentence
        assert client.server().document["standstill"] == sentence
        page = client.http.get("/metrics").text
        assert "springtide_step_age_seconds 61.0" in page and "springtide_quarantined 0.0" in page


def test_an_executor_that_does_not_answer_is_said_with_its_age(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(after: int) -> None:
        raise OSError("no line")

    monkeypatch.setattr(server.reconciler.executor, "events", fail)
    while not server.reconciler.health.executor_lost:
        server.reconciler.call(lambda: None).result(timeout=30)
    answer = httpx.get(f"{server.url}/readyz")
    assert answer.status_code == 503 and answer.json()["checks"]["executor"]["sentence"] == "no line"
    assert "executor has not answered" in server.reconciler.health.tell()
    monkeypatch.undo()
    while server.reconciler.health.executor_lost:
        server.reconciler.call(lambda: None).result(timeout=30)


def test_only_admins_see_what_was_put_aside(server: Server) -> None:
    def put_aside() -> None:
        server.reconciler.context.staging.put_aside("event:warned", "job", {"text": "\ud800"}, ValueError("\udcff"))

    server.reconciler.call(put_aside).result(timeout=30)
    with connect(server) as client:
        token = client.put_user("bob").document["token"]
        (kept,) = client.ask("GET", "/api/v1/quarantine")["quarantine"]
        assert json.dumps(kept).isascii() and kept["kind"] == "event:warned" and "ud800" in kept["body"]
        assert client.server().document["quarantined"] == 1
    with connect(server, token) as bob, pytest.raises((InputError, ServerError), match="not an admin"):
        bob.ask("GET", "/api/v1/quarantine")


def fail_with(error: Exception) -> Callable[..., Any]:
    """A function that raises."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


LOCKED = OperationalError("INSERT INTO users", {}, sqlite3.OperationalError("database is locked"))
TORN = OperationalError(None, None, sqlite3.OperationalError("disk I/O error"))  # as SQLAlchemy tells of a commit


@pytest.mark.parametrize("path", ["/api/v1/users/bob", "/api/v1/projects/physics"])
@pytest.mark.parametrize(("error", "unknown"), [(LOCKED, False), (TORN, True)], ids=["locked", "torn"])
def test_a_change_that_the_database_does_not_take_is_answered_truly(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, error: Exception, unknown: bool
) -> None:
    monkeypatch.setattr(server.store, "put_user", fail_with(error))
    monkeypatch.setattr(server.store, "put_project", fail_with(error))
    with connect(server) as client:
        reply = client.http.request("PUT", path, json={})
    told = reply.json()
    assert (reply.status_code, told["unknown"], reply.headers["Retry-After"]) == (503, unknown, "1")
    assert ("not known" if unknown else "nothing was done") in told["error"]["sentence"]
    assert "Idempotency-Key" not in told["error"]["sentence"], "none is taken here"


def test_reads_and_tokens_of_a_database_that_fails_are_answered_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(server) as client:
        monkeypatch.setattr(server.store, "projects", fail_with(TORN))
        reply = client.http.get("/api/v1/projects")
        assert (reply.status_code, reply.json()["unknown"]) == (503, False)
        monkeypatch.setattr(server.store, "users", fail_with(TORN))
        reply = client.http.get("/api/v1/jobs")
        assert (reply.status_code, reply.json()["error"]["reason"]) == (503, "unavailable")


def test_an_upload_beside_a_full_disk_is_answered_truly(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(ArchiveUpload, "write", fail_with(full))
    archive = load_job(write_project(tmp_path / "project")).pack()
    with connect(server) as client:
        headers = {"Content-Type": "application/x-tar"}
        where = f"/api/v1/archives/{archive.code_hash}"
        reply = client.http.request("PUT", where, content=archive.data, headers=headers)
    assert (reply.status_code, reply.json()["unknown"]) == (503, False)
    assert "No space left" in reply.json()["error"]["sentence"]


def test_an_upload_leaves_room_for_the_database_and_for_jobs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = load_job(write_project(tmp_path / "project")).pack()
    where, headers = f"/api/v1/archives/{archive.code_hash}", {"Content-Type": "application/x-tar"}
    free = [(40 << 30, 900 << 20), (10 << 30, 500 << 20), (10 << 30, 520 << 20)]
    with connect(server) as client:
        for total, left in free:
            usage = DiskUsage(total, total - left, left)
            monkeypatch.setattr(archives.shutil, "disk_usage", lambda _, usage=usage: usage)  # type: ignore[attr-defined]
            reply = client.http.request("PUT", where, content=archive.data, headers=headers)
            if left == 520 << 20:
                assert reply.status_code == 201
                return
            told = reply.json()["error"]["sentence"]
            assert reply.status_code == 503 and f"{left >> 20} MiB are free" in told and "springtide gc" in told
            assert not [*server.settings.state_dir.code.glob(".upload-*")]


def test_an_upload_that_does_not_say_how_long_it_is_counts_as_the_longest(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = load_job(write_project(tmp_path / "project")).pack()
    where, headers = f"/api/v1/archives/{archive.code_hash}", {"Content-Type": "application/x-tar"}
    with connect(server) as client:
        for left, status in ((700 << 20, 503), (900 << 20, 201)):  # 286 MiB at most, and 512 stay free
            usage = DiskUsage(10 << 30, (10 << 30) - left, left)
            monkeypatch.setattr(archives.shutil, "disk_usage", lambda _, usage=usage: usage)  # type: ignore[attr-defined]
            reply = client.http.request("PUT", where, content=iter([archive.data]), headers=headers)
            assert reply.status_code == status, reply.text


def test_uploads_at_one_time_leave_room_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 800 << 20
    usage = DiskUsage(10 << 30, (10 << 30) - left, left)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: usage)  # type: ignore[attr-defined]
    desk = UploadDesk()
    with desk.reserve(tmp_path, 200 << 20):
        with pytest.raises(StateError, match="200 MiB of it for other uploads"), desk.reserve(tmp_path, 200 << 20):
            pass
        with desk.reserve(tmp_path, 80 << 20):
            assert desk.reserved == 280 << 20
    with desk.reserve(tmp_path, 200 << 20):
        assert desk.reserved == 200 << 20


def test_what_was_stored_is_not_called_a_failure_because_it_cannot_be_read(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_project(tmp_path / "project")
    with monkeypatch.context() as patch:
        patch.setattr(api.Api, "reload", fail_with(TORN))
        reply = post(server, path, "key-12345")
        (stored,) = server.store.list_jobs()
        told = reply.json()
        assert (reply.status_code, told["unknown"], told["job"]) == (503, True, stored.id)
        assert f"it was done and job {stored.id} is stored" in told["error"]["sentence"]
        with connect(server) as client:
            ended = client.http.post(f"/api/v1/jobs/{stored.id}/cancel")
        assert (ended.status_code, ended.json()["job"]) == (503, stored.id)
    assert post(server, path, "key-12345").json()["id"] == stored.id


def test_who_changes_a_job_is_told_of_which_nothing_is_known(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = post(server, write_project(tmp_path / "project"), None).json()["id"]
    swept = load_job(write_project(tmp_path / "swept", sweep={"grid": {"lr": [1, 2]}}, run="python train.py {lr}"))
    with connect(server) as client:
        archive = client.upload(swept.pack())
        told = {"job": swept.job.model_dump(mode="json", exclude_defaults=True), "archive": archive}
        array_id = client.http.post("/api/v1/arrays", json=told, headers={"Idempotency-Key": "key-1234567"}).json()[
            "id"
        ]
        error = UnavailableError("the disk is torn; whether it was done is not known", unknown=True)
        monkeypatch.setattr(api.Api, "call", fail_with(error))
        for verb in ("cancel", "hold", "resume", "release"):
            reply = client.http.post(f"/api/v1/jobs/{job_id}/{verb}").json()
            assert (reply["job"], reply["unknown"]) == (job_id, True) and job_id in reply["error"]["sentence"]
            assert "Idempotency-Key" not in reply["error"]["sentence"]
        reply = client.http.post("/api/v1/arrays", json=told, headers={"Idempotency-Key": "key-1234567"}).json()
        assert reply["array"] == array_id and "same Idempotency-Key" in reply["error"]["sentence"]
        reply = client.http.post("/api/v1/arrays", json=told).json()
        assert reply["array"] is None and "Idempotency-Key" not in reply["error"]["sentence"]
        reply = client.http.post(f"/api/v1/arrays/{array_id}/cancel").json()
        assert (reply["array"], reply["unknown"]) == (array_id, True)


def test_errors_of_the_database_are_shown_without_its_statements(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = OperationalError("UPDATE jobs SET spec=?", {"spec": "hush"}, sqlite3.OperationalError("database is locked"))
    health = server.reconciler.health
    monkeypatch.setattr(health.__class__, "step_age_s", property(lambda self: 61.0))
    monkeypatch.setattr(server.store, "write", fail_with(said))
    shown = [post(server, write_project(tmp_path / "project"), None).text, httpx.get(f"{server.url}/readyz").text]
    monkeypatch.setattr(server.store, "fact", fail_with(said))
    shown += [httpx.get(f"{server.url}/readyz").text, health.tell(), tell_policy_failure("fifo", said)]
    for one in shown:
        assert "database is locked" in one and "UPDATE" not in one and "hush" not in one, one


def test_the_log_of_a_database_holds_no_values(server: Server) -> None:
    hush = UserRecord("hush", "hash", project=["no", "text"])  # type: ignore[arg-type]
    with pytest.raises(DBAPIError) as raised:
        server.store.put_user(hush)
    assert "INSERT INTO users" in str(raised.value) and "hush" not in str(raised.value)


def fail_reads_after(
    server: Server, monkeypatch: pytest.MonkeyPatch, operation: str, failing: tuple[object, str]
) -> None:
    """Let a read fail, once, as soon as what an operation does was stored; only for the threads that answer."""
    act, real = getattr(Operations, operation), getattr(*failing)
    done, left = threading.Event(), [True]

    def operate(*words: Any, **named: Any) -> Any:
        value = act(*words, **named)
        done.set()
        return value

    def read(*words: Any, **named: Any) -> Any:
        is_ours = threading.current_thread() is server.thread
        if done.is_set() and left and not is_ours:
            left.clear()
            raise LOCKED
        return real(*words, **named)

    monkeypatch.setattr(Operations, operation, operate)
    monkeypatch.setattr(*failing, read)


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_a_node_that_was_drained_is_not_told_that_nothing_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    with run_server(tmp_path, nodes=2) as server, connect(server) as client:
        node = client.ask("GET", "/api/v1/nodes")["devices"][0]["node"]
        if verb == "undrain":
            assert client.http.post(f"/api/v1/nodes/{node}/drain", json={"grace": "1s"}).status_code == 200
        fail_reads_after(server, monkeypatch, verb, (server.store, "fact"))
        reply = client.http.post(f"/api/v1/nodes/{node}/{verb}", json={"grace": "1s"})
        told = reply.json()
        assert (reply.status_code, told.get("unknown")) == (503, True), reply.text
        assert "it was done and" in told["error"]["sentence"]
        assert client.ask("GET", "/api/v1/nodes")["devices"][0]["state"] != ("ready" if verb == "drain" else "drained")


def test_a_job_that_measures_is_told_although_the_rest_cannot_be_read(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(server) as client:
        job = load_job(write_project(tmp_path / "project", deadline="1h"))
        told = {"job": job.job.model_dump(mode="json", exclude_defaults=True), "archive": client.upload(job.pack())}
        monkeypatch.setattr(change_routes, "write_differences", fail_with(LOCKED))
        nothing = client.http.post("/api/v1/plan", json=told | {"compare": True})
        assert (nothing.status_code, nothing.json()["unknown"]) == (503, False)
        reply = client.http.post("/api/v1/plan", json=told | {"compare": True, "probe": True})
        (measuring,) = server.store.list_jobs()
        assert (reply.status_code, reply.json()["unknown"], reply.json()["job"]) == (503, True, measuring.id)
