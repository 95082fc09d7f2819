"""Nobody waits for what somebody else's body, storage or folder takes: uploads, submissions, resumes of two users."""

import asyncio
import hashlib
import io
import os
import select
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.control.http_servers import connect, run_server, write_project

from springtide.client.client import Client
from springtide.client.job_folders import load_job
from springtide.control.api import api, change_routes
from springtide.control.api.entrance import guard
from springtide.control.api.entrance.refusals import Refused
from springtide.control.api.job_data import user_turns
from springtide.control.daemon_threads import DaemonThreads
from springtide.control.server import Server
from springtide.control.storage import archives, job_outputs
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder

TAR = {"Content-Type": "application/x-tar"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with run_server(tmp_path) as server:
        yield server


def add_user(server: Server, name: str) -> str:
    """The token of a new user."""
    with connect(server) as client:
        return str(client.put_user(name).document["token"])


def make_archive(name: str) -> tuple[str, bytes]:
    """The path of an archive with an empty file of this name, and its content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    return f"/api/v1/archives/{hashlib.sha256(buffer.getvalue()).hexdigest()}", buffer.getvalue()


@contextmanager
def trickle(server: Server, token: str, count: int) -> Iterator[list[socket.socket]]:
    """So many uploads of which a byte comes now and then."""
    with ExitStack() as opened:
        lines = []
        for number in range(count):
            line = opened.enter_context(socket.create_connection(server.socket.getsockname(), timeout=30))
            head = f"PUT /api/v1/archives/{number:064} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            line.sendall(f"{head}Content-Type: application/x-tar\r\nContent-Length: 100000\r\n\r\n".encode())
            lines.append(line)
        ended = threading.Event()

        def send() -> None:
            while not ended.wait(0.5):
                for line in lines:
                    try:
                        line.sendall(b"\0")
                    except OSError:  # refused meanwhile
                        continue

        thread = threading.Thread(target=send)
        thread.start()
        try:
            while len(list(server.settings.state_dir.code.glob(".upload-*"))) < min(count, 2):
                ended.wait(0.01)
            yield lines
        finally:
            ended.set()
            thread.join()


def list_answered(lines: list[socket.socket]) -> list[socket.socket]:
    return select.select(lines, [], [], 0)[0]


def test_whoever_uploads_slowly_keeps_nobody_else_waiting(server: Server) -> None:
    ann, bob = add_user(server, "ann"), add_user(server, "bob")
    path, content = make_archive("a.py")
    with trickle(server, ann, 8) as lines, connect(server, bob) as client:
        reply = client.send("PUT", path, content=content, headers=TAR)
        assert reply.status_code == 201
        assert not list_answered(lines), "no upload of the other user had to end for this one"


def test_more_uploads_of_one_user_than_may_be_wait_and_are_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_turns, "TURN_S", 0.2)
    ann = add_user(server, "ann")
    path, content = make_archive("a.py")
    with trickle(server, ann, 2), connect(server, ann) as client:
        reply = client.send("PUT", path, content=content, headers=TAR)
        assert (reply.status_code, reply.json()["error"]["reason"]) == (429, "limit") and reply.headers["Retry-After"]
        assert "user ann has 2 uploads under way" in reply.json()["error"]["sentence"]


def test_nobody_is_slow_while_they_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("springtide.control.api.entrance.guard.time", SimpleNamespace(monotonic=lambda: now_s[0]))

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"ab", "more_body": False}

    timed = guard.time_body(receive, {"content-length": "2"}, 10)
    now_s[0] += 10 * guard.BODY_S

    async def look() -> Any:
        return await timed()

    assert asyncio.run(look())["body"] == b"ab"
    now_s[0] += 2 * guard.BODY_S
    with pytest.raises(Refused, match="too slowly"):
        asyncio.run(look())


HUNG = """
import asyncio, sys, threading
from springtide.control.daemon_threads import DaemonThreads
from springtide.control.api.job_data.user_turns import UserThreads
from springtide.control.storage.records import UserRecord

async def ask():
    try:
        await UserThreads("looks", 2, 2).run(UserRecord("ann", "", id="@ann"), threading.Event().wait, 0.1)
    except TimeoutError:
        print("told", flush=True)

asyncio.run(ask())
"""


def test_storage_that_hangs_for_ever_keeps_no_server_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "told\n")


def submit(server: Server, token: str, told: dict[str, Any]) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.post(f"{server.url}/api/v1/jobs", json=told, headers=headers, timeout=60)


def make_body(client: Client, folder: Path, **keys: object) -> dict[str, Any]:
    job = load_job(write_project(folder, **keys))
    return {"job": job.job.model_dump(mode="json", exclude_defaults=True), "archive": client.upload(job.pack())}


def test_storage_that_does_not_answer_blocks_nobody_else(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = add_user(server, "ann"), add_user(server, "bob")
    go_on, asked = threading.Event(), threading.Semaphore(0)

    def check(location: str, *_: object) -> None:
        if "silent" in location:
            asked.release()
            go_on.wait(60)

    monkeypatch.setattr(change_routes, "check_job_storage", check)
    with connect(server) as client:
        silent = make_body(client, tmp_path / "silent", checkpoint={"dir": "s3://silent/a"})
        quick = make_body(client, tmp_path / "quick", checkpoint={"dir": "s3://quick/a"})
    many = min(32, (os.cpu_count() or 1) + 4)
    threads = [threading.Thread(target=submit, args=(server, ann, silent)) for _ in range(many)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        asked.acquire(timeout=60)
    try:
        path, content = make_archive("b.py")
        with connect(server, bob) as client:
            assert client.send("PUT", path, content=content, headers=TAR).status_code == 201
        assert submit(server, bob, quick).status_code == 201
        assert all(thread.is_alive() for thread in threads), "none of the others had to end for that"
    finally:
        go_on.set()
        for thread in threads:
            thread.join()


@contextmanager
def block_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Folders of checkpoints that do not answer before the second event; the first says that one was asked."""
    asked, go_on = threading.Event(), threading.Event()

    def find_newest(_folder: CheckpointFolder) -> None:
        asked.set()
        go_on.wait(60)

    monkeypatch.setattr(CheckpointFolder, "find_newest", find_newest)
    try:
        yield asked, go_on
    finally:
        go_on.set()


def make_idle(client: Client, folder: Path, kind: str, verb: str) -> str:
    """The address of a job or an array with which can be done what the verb says."""
    sweep = {"sweep": {"grid": {"lr": [1, 2]}}, "run": "python train.py {lr}"} if kind == "arrays" else {}
    path = write_project(folder, hold=True, **sweep)
    made = client.submit_array(path).id if sweep else client.submit(path, wait=False).id
    if verb == "resume":
        assert client.http.post(f"/api/v1/{kind}/{made}/cancel").status_code == 200
    return f"/api/v1/{kind}/{made}/{verb}"


@pytest.mark.parametrize("kind", ["jobs", "arrays"])
@pytest.mark.parametrize("verb", ["resume", "release"])
def test_a_folder_that_does_not_answer_blocks_nobody_else(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, verb: str
) -> None:
    replies: list[int] = []
    with connect(server) as client, connect(server) as other:
        path = make_idle(client, tmp_path / "idle", kind, verb)
        with block_folders(monkeypatch) as (asked, go_on):
            thread = threading.Thread(target=lambda: replies.append(client.http.post(path).status_code))
            thread.start()
            assert asked.wait(30)
            assert other.submit(write_project(tmp_path / "other"), wait=False).state != "declined"
            assert thread.is_alive()
            go_on.set()
            thread.join()
    assert replies == [200]


@pytest.mark.parametrize("kind", ["jobs", "arrays"])
def test_a_folder_that_never_answers_is_told_and_nothing_is_done(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(api, "FOLDERS_S", 0.2)
    with connect(server) as client:
        path = make_idle(client, tmp_path / "idle", kind, "resume")
        with block_folders(monkeypatch):
            reply = client.http.post(path)
        told = reply.json()
        assert (reply.status_code, told["unknown"]) == (503, False)
        assert "did not answer within 0.2 s" in told["error"]["sentence"]
        assert {str(record.state) for record in server.store.list_jobs()} == {"cancelled"}


def test_what_nobody_began_is_not_told_as_a_folder_that_did_not_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "FOLDERS_S", 0.5)
    with connect(server) as client:
        own = make_idle(client, tmp_path / "own", "jobs", "resume")
        path = write_project(tmp_path / "idle", hold=True, checkpoint={"dir": str(tmp_path / "named")})
        made = client.submit(path, wait=False).id
        assert client.http.post(f"/api/v1/jobs/{made}/cancel").status_code == 200
        go_on = threading.Event()
        real = user_turns.UserThreads.run

        async def run_in_full(threads: user_turns.UserThreads, *args: Any) -> Any:
            free = threads.free
            if "folders of users" in threads.turns.what and not go_on.is_set():
                threads.free = asyncio.Semaphore(0)  # as when all hang for others
            try:
                return await real(threads, *args)
            finally:
                threads.free = free

        monkeypatch.setattr(user_turns.UserThreads, "run", run_in_full)
        try:
            reply = client.http.post(f"/api/v1/jobs/{made}/resume")
            told = reply.json()["error"]["sentence"]
            assert reply.status_code == 503 and "nobody could look into the folder" in told
            assert "did not answer" not in told and "nothing was done" in told
            assert client.http.post(own).status_code == 200, "in folders of the platform it is looked elsewhere"
        finally:
            go_on.set()
        assert client.http.post(f"/api/v1/jobs/{made}/resume").status_code == 200


@pytest.mark.parametrize(("error", "status"), [(TimeoutError(0, "late"), 503), (PermissionError(13, "no"), 422)])
def test_a_folder_that_does_not_tell_lets_no_job_begin_anew(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, status: int
) -> None:
    def fail(_folder: CheckpointFolder) -> None:
        raise error

    with connect(server) as client:
        path = make_idle(client, tmp_path / "idle", "jobs", "resume")
        monkeypatch.setattr(CheckpointFolder, "find_newest", fail)
        reply = client.http.post(path)
        assert reply.status_code == status and "nothing was done" in reply.json()["error"]["sentence"]
        assert {str(record.state) for record in server.store.list_jobs()} == {"cancelled"}


def test_files_that_never_answer_leave_the_server_to_everybody_else(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to whoever asks whether it lives: one that is taken for dead is killed, with the answers to everybody."""
    go_on, asked = threading.Event(), threading.Semaphore(0)

    def hang(*_: object) -> job_outputs.KeptFiles:
        asked.release()
        go_on.wait(60)
        return job_outputs.KeptFiles((), more=False)

    monkeypatch.setattr(job_outputs, "list_kept", hang)
    token = server.settings.state_dir.token.read_text().strip()
    ask = partial(httpx.get, headers={"Authorization": f"Bearer {token}"})
    with connect(server) as client:
        job = f"{server.url}/api/v1/jobs/{client.submit(write_project(tmp_path / 'project'), wait=False).id}"
    threads = [threading.Thread(target=ask, args=(f"{job}/files",), kwargs={"timeout": 60}) for _ in range(50)]
    for thread in threads:
        thread.start()
    try:
        while asked.acquire(timeout=2):
            continue
        assert ask(f"{server.url}/healthz", timeout=20).status_code == 200
        assert ask(job, timeout=20).status_code == 200
    finally:
        go_on.set()
        for thread in threads:
            thread.join()


def test_a_disk_that_hangs_under_an_upload_keeps_no_server_from_ending(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python waits at its end for every thread that is not a daemon, however long its write takes."""
    ready, go_on = threading.Event(), threading.Event()

    def hang(upload: object, data: bytes) -> None:
        ready.set()
        go_on.wait(60)

    token = add_user(server, "ann")
    monkeypatch.setattr(archives.ArchiveUpload, "write", hang)
    with trickle(server, token, 1):
        assert ready.wait(30)
        writing = [thread for thread in threading.enumerate() if thread.name.startswith("uploads")]
        held = [thread for thread in writing if not thread.daemon]
        go_on.set()
    assert writing and not held


def test_work_that_nobody_waits_for_any_more_keeps_its_thread_and_others_get_one() -> None:
    go_on = threading.Event()

    async def ask() -> str:
        threads = DaemonThreads(2, "tried")
        hanging = asyncio.create_task(threads.run(lambda: go_on.wait(60)))
        await asyncio.sleep(0.05)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        async with asyncio.timeout(10):
            return await threads.run(lambda: "done")

    try:
        assert asyncio.run(ask()) == "done"
    finally:
        go_on.set()
