"""Connections to a real server: bounded in number, and in how long they may take to ask and to take an answer."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.http_servers import OPTIONS, connect, run_server

from springtide.control.api.entrance import bounded_connections, guard
from springtide.control.server import Server

MOST = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = replace(OPTIONS, most_connections=MOST, reads_per_s=0.001, read_burst=20)
    with run_server(tmp_path_factory.mktemp("server"), options) as server:
        yield server


def open_connection(server: Server) -> socket.socket:
    return socket.create_connection(server.socket.getsockname(), timeout=30)


def read_reply(line: socket.socket) -> tuple[int, dict[str, Any]]:
    """The status and the document of what is said before the server hangs up."""
    said = b""
    while piece := line.recv(65536):
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def begin_post(server: Server, line: socket.socket) -> None:
    """Ask with a body of which only a part comes."""
    token = server.settings.state_dir.token.read_text().strip()
    head = f"POST /api/v1/plan HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())


def list_connections(server: Server) -> list[bounded_connections.BoundedConnection]:
    return [
        one
        for one in server.http.server_state.connections.copy()
        if isinstance(one, bounded_connections.BoundedConnection)
    ]


def wait_for_lines(server: Server, count: int) -> None:
    """Wait until so many requests are being answered."""
    while sum(not one.is_silent for one in list_connections(server)) < count:
        time.sleep(0.01)


def fill_seats(server: Server, lines: ExitStack, waiting: int) -> list[socket.socket]:
    """Have as many questions under way as there are seats, and so many lines wait behind them; those that wait."""
    while list_connections(server):  # of the test before
        time.sleep(0.01)
    for _ in range(MOST):
        begin_post(server, lines.enter_context(open_connection(server)))
    wait_for_lines(server, MOST)
    behind = [lines.enter_context(open_connection(server)) for _ in range(waiting)]
    while len(list_connections(server)) < MOST + waiting:
        time.sleep(0.01)
    return behind


def test_who_opens_many_lines_and_is_silent_crowds_out_only_themselves(server: Server) -> None:
    with ExitStack() as lines:
        for _ in range(5 * MOST):
            lines.enter_context(open_connection(server))
        with connect(server) as client:
            assert client.send("GET", "/healthz").status_code == 200
        assert len(server.http.server_state.connections) <= 2 * MOST


def test_who_has_just_called_is_heard_and_not_crowded_out(server: Server) -> None:
    with ExitStack() as lines:
        many = [lines.enter_context(open_connection(server)) for _ in range(2 * MOST)]
        for line in many:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert [read_reply(line)[0] for line in many] == [200] * 2 * MOST


def test_when_every_line_stays_in_use_a_new_one_is_told_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connections, "WAIT_S", 0.2)
    with ExitStack() as lines:
        fill_seats(server, lines, 0)
        late = lines.enter_context(open_connection(server))
        late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")  # unread, it must not take the reply back
        status, told = read_reply(late)
        assert (status, told["error"]["reason"]) == (503, "busy")


def test_when_too_many_wait_who_has_asked_nothing_for_longest_makes_way(server: Server) -> None:
    with ExitStack() as lines:
        waiting = fill_seats(server, lines, MOST)
        late = lines.enter_context(open_connection(server))
        assert waiting[0].recv(1) == b""
        late.settimeout(0.2)
        with pytest.raises(TimeoutError):
            late.recv(1)  # it waits


def test_who_has_gone_while_waiting_makes_way_first(server: Server) -> None:
    with ExitStack() as lines:
        waiting = fill_seats(server, lines, MOST)
        waiting[-1].close()
        lines.enter_context(open_connection(server))
        waiting[0].settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting[0].recv(1)


def test_lines_that_are_turned_away_are_bounded_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connections, "LINGER_S", 30.0)
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as lines:
        for line in fill_seats(server, lines, MOST):
            line.sendall(ask)
        refused = [lines.enter_context(open_connection(server)) for _ in range(bounded_connections.MOST_LEAVING + 5)]
        assert [read_reply(line)[0] for line in refused] == [503] * len(refused)
        while len(list_connections(server)) > 2 * MOST + bounded_connections.MOST_LEAVING:
            time.sleep(0.01)


def test_a_request_that_turns_out_to_be_no_http_is_answered_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with open_connection(server) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n")
        assert read_reply(line)[0] == 400
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_when_all_that_wait_have_asked_the_last_is_told_so(server: Server) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with ExitStack() as lines, ExitStack() as posts:
        fill_seats(server, posts, 0)
        waiting = [lines.enter_context(open_connection(server)) for _ in range(MOST)]
        for line in waiting:
            line.sendall(ask)
        while len(list_connections(server)) < 2 * MOST:
            time.sleep(0.01)
        status, told = read_reply(lines.enter_context(open_connection(server)))
        assert (status, told["error"]["reason"]) == (503, "busy")
        posts.close()
        assert [read_reply(line)[0] for line in waiting] == [200] * MOST


@pytest.mark.parametrize("head", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_a_head_that_does_not_come_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(bounded_connections, "HEAD_S", 0.2)
    with open_connection(server) as line:
        line.sendall(head)
        status, told = read_reply(line)
        assert (status, told["error"]["reason"]) == (408, "too_slow")


def test_a_body_that_does_not_come_is_not_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PAUSE_S", 0.2)
    with open_connection(server) as line:
        begin_post(server, line)
        status, told = read_reply(line)
        assert (status, told["error"]["reason"]) == (408, "too_slow")


def test_what_is_no_http_is_answered_in_a_sentence(server: Server) -> None:
    with open_connection(server) as line:
        line.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        status, told = read_reply(line)
        assert (status, told["error"]["reason"]) == (400, "no_http")


def test_an_answer_that_nobody_takes_is_not_kept_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connections, "WRITE_S", 0.2)
    with open_connection(server) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        token = server.settings.state_dir.token.read_text().strip()
        request = f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        ours = line.getsockname()
        sent = 0
        while any(one.client == ours for one in list_connections(server)) or not sent:
            try:
                sent += line.send(request)
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break


def test_reads_of_one_user_are_limited_and_changes_are_not_touched_by_that(tmp_path: Path) -> None:
    options = replace(OPTIONS, reads_per_s=0.001, read_burst=3)
    with run_server(tmp_path, options) as server, connect(server) as client:
        replies = [client.send("GET", "/api/v1/jobs") for _ in range(5)]
        assert [one.status_code for one in replies] == [200, 200, 200, 429, 429]
        assert int(replies[-1].headers["retry-after"]) > 0
        assert client.send("POST", "/api/v1/jobs/x/cancel", json={}).status_code == 404
        with connect(server, client.put_user("bob").token) as bob:
            assert bob.send("GET", "/api/v1/jobs").status_code == 200
