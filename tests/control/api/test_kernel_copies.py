"""Files that the kernel copies to clients: whole, on lines that stay good, and never waited for without end."""

import errno
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.control.http_servers import connect, run_server, write_project

from springtide.client.client import Client
from springtide.control.api.entrance import bounded_connections
from springtide.control.api.job_data import byte_ranges, kernel_copies, log_routes
from springtide.control.server import Server
from springtide.control.storage.job_logs import RankLog
from springtide.errors import ServerError
from springtide.executors.log_files import name_log

SIZE = 30_000_000


@pytest.fixture(autouse=True)
def only_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent piece by piece."""

    def refuse(file: BinaryIO, part: range) -> Iterator[bytes]:
        raise AssertionError("the kernel was to copy this")
        yield b""

    monkeypatch.setattr(byte_ranges, "read_chunks", refuse)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with run_server(tmp_path / "server") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server) as client:
        yield client


@pytest.fixture
def path(server: Server, client: Client, tmp_path: Path) -> str:
    """The path of a job's output that no buffer of a line holds."""
    job = client.wait(client.submit(write_project(tmp_path / "project")))
    output = server.settings.state_dir.output(job.id)
    output.mkdir(exist_ok=True)
    (output / "big").write_bytes(os.urandom(SIZE))
    return f"/api/v1/jobs/{job.id}/files/output/big"


def find_source(server: Server, path: str) -> Path:
    return server.settings.state_dir.output(path.split("/")[4]) / "big"


def dial(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)))


def ask(server: Server, line: socket.socket, path: str) -> None:
    token = server.settings.state_dir.token.read_text().strip()
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())


def test_a_large_file_comes_whole_and_its_line_serves_again(server: Server, client: Client, path: str) -> None:
    wanted = find_source(server, path).read_bytes()
    with dial(server) as line:
        for _ in range(2):
            ask(server, line, path)
            response = http.client.HTTPResponse(line)
            response.begin()
            assert response.read() == wanted
    part = client.send("GET", path, headers={"Range": f"bytes=5-{SIZE // 2}"})
    assert (part.status_code, part.content) == (206, wanted[5 : SIZE // 2 + 1])
    assert client.send("GET", path, headers={"Range": f"bytes={SIZE}-"}).content == b""


def test_where_the_kernel_cannot_copy_it_is_done_by_hand(
    server: Server, client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: int) -> int:
        raise OSError(errno.EINVAL, "not from such a file")

    monkeypatch.setattr(os, "sendfile", refuse)
    assert client.send("GET", path).content == find_source(server, path).read_bytes()


def test_a_file_that_has_become_shorter_ends_the_answer_early(
    client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_ranges, "measure", lambda file: SIZE + 1000)
    with pytest.raises(ServerError, match=r"1000 bytes early|reset"):
        client.send("GET", path)
    assert client.jobs(all=True)


def test_a_disk_that_hangs_under_a_download_keeps_no_server_from_ending(
    server: Server, client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python waits at its end for every thread that is not a daemon, however long its read takes."""
    reading: dict[str, bool] = {}
    copy, read = kernel_copies.copy_some, log_routes.read_pieces

    def note_copy(*given: int) -> int:
        reading["file"] = threading.current_thread().daemon
        return copy(*given)

    def note_read(log: RankLog, begin: int, end: int) -> Iterator[bytes]:
        reading["log"] = threading.current_thread().daemon
        yield from read(log, begin, end)

    monkeypatch.setattr(kernel_copies, "copy_some", note_copy)
    monkeypatch.setattr(log_routes, "read_pieces", note_read)
    assert len(client.send("GET", path).content) == SIZE
    logs = server.settings.state_dir.logs(path.split("/")[4])
    logs.mkdir(parents=True, exist_ok=True)
    (logs / name_log(0)).write_text("hello\n")
    assert client.send("GET", f"{path.partition('/files')[0]}/logs/text").content == b"hello\n"
    assert reading == {"file": True, "log": True}


def test_who_hangs_up_or_takes_nothing_leaves_nothing_open(
    server: Server, client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_connections, "WRITE_S", 0.2)
    with dial(server) as gone:
        begin(server, gone, path)
    with dial(server) as idle:
        begin(server, idle, path)
        wait_until_closed(find_source(server, path))
        taken = 0
        with suppress(ConnectionResetError):
            while piece := idle.recv(1 << 20):
                taken += len(piece)
    assert taken < SIZE
    assert client.jobs(all=True)


def begin(server: Server, line: socket.socket, path: str) -> None:
    """Ask for a file, and take the first bytes of the answer."""
    ask(server, line, path)
    assert line.recv(10) == b"HTTP/1.1 2"


def wait_until_closed(file: Path) -> None:
    """Wait until this process, which the server runs in, holds a file open no more; the test's own limit ends it."""
    place = str(file)
    while place in [os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]:
        time.sleep(0.02)
