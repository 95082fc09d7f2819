"""Requests as Python itself sends them: to a server of the standard library that notes what it was asked."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from springtide.client.http_connections import Address, ConnectError, HttpCaller, TransportError, has_news, make_request


class Noting(BaseHTTPRequestHandler):
    """Answers by path: /short ends early, /chunks comes in pieces, /once hangs up afterwards; others are echoed."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[int, str, str]]  # the port it came from, its path, its host

    def do_GET(self) -> None:
        self.asked.append((self.client_address[1], self.path, self.headers["Host"]))
        if self.path == "/chunks":
            self.answer({"Transfer-Encoding": "chunked"}, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        elif self.path == "/short":
            self.answer({"Content-Length": "10"}, b"abc")
            self.close_connection = True
        else:
            said = f"{self.path} {self.headers['X']}".encode()
            self.answer({"Content-Length": str(len(said))}, said)
            self.close_connection = self.path == "/once"  # without having said so

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"Content-Length": str(len(said))}, said)

    def answer(self, headers: dict[str, str], body: bytes) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve() -> Iterator[tuple[str, list[tuple[int, str, str]]]]:
    """The address of a server, and what it was asked."""

    class Handler(Noting):
        asked: list[tuple[int, str, str]] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", Handler.asked
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def connect(url: str) -> Iterator[HttpCaller]:
    line = HttpCaller(Address(url), {"X": "mine"})
    try:
        yield line
    finally:
        line.close()


def test_one_connection_serves_until_the_server_hangs_up() -> None:
    with serve() as (url, asked), connect(url) as line:
        transport = line.transport
        assert isinstance(transport, Address)
        assert line.get("/a").text == "/a mine" and line.get("/b", headers={"X": "other"}).text == "/b other"
        assert line.get("/once").text == "/once mine"
        while not has_news(transport.idle[0]):  # until it is here that the server has hung up
            time.sleep(0.001)
        assert line.get("/after").text == "/after mine"
        ports = [port for port, *_ in asked]
        assert ports[0] == ports[1] == ports[2] != ports[3]


def test_several_threads_have_a_connection_each() -> None:
    with serve() as (url, _), connect(url) as line, ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda number: line.get(f"/{number}").text, range(100))
        assert list(texts) == [f"/{number} mine" for number in range(100)]


def test_bodies_come_whole_or_not_at_all() -> None:
    with serve() as (url, _), connect(url) as line:
        assert line.get("/chunks").content == b"abcde"
        assert line.post("/", json={"ä": [1, None]}).json() == {"ä": [1, None]}
        with pytest.raises(TransportError, match="7 bytes early"):
            line.get("/short")
        assert line.get("/a").text == "/a mine"


def test_a_body_that_is_left_unread_does_not_disturb_the_next() -> None:
    with serve() as (url, asked), connect(url) as line:
        with line.stream("GET", "/chunks") as response:
            assert next(response.iter_raw()) == b"abc"
        assert line.get("/a").text == "/a mine"
        assert asked[0][0] != asked[1][0]


def test_nobody_there_is_told_apart_from_an_answer_that_was_lost() -> None:
    with serve() as (url, _):
        pass
    with connect(url) as line, pytest.raises(ConnectError, match="refused"):
        line.get("/a")


def test_a_query_is_written_as_the_api_reads_it() -> None:
    request = make_request("GET", "/x", params={"state": ["a", "b c"], "all": True, "none": None, "n": 1})
    assert request.path == "/x?state=a&state=b+c&all=true&none=&n=1"


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with connect("http://far.example:81/below") as line:
            line.get("/a")
        with connect(proxy) as line:
            line.get("/b")
        assert [one[1:] for one in asked] == [
            ("http://far.example:81/below/a", "far.example:81"),
            ("/b", proxy.removeprefix("http://")),
        ]


def test_the_client_is_imported_without_what_takes_long() -> None:
    """Which is why there is a module of our own: httpx took a third of the time of `springtide logs`."""
    said = "import sys, springtide.client.client; print({'httpx', 'pydantic', 'yaml', 'rich'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", said], capture_output=True, text=True).stdout == "set()\n"
