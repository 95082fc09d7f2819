"""Requests over HTTP with what Python itself has: a command that asks a server is not to wait for a library to load.

An `Address` keeps the connections it has made and may be used by several threads. Nothing is sent again here, and no
redirect is followed. A proxy that the environment names is used.
"""

import json
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20
KEPT = 10  # idle connections of an address


class TransportError(Exception):
    """A request was not answered whole; it may have arrived."""


class ConnectError(TransportError):
    """Nobody was there: the request was not sent."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is asked: `path` with its query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class HttpResponse:
    """What is answered; its body is read whole by `content`, or piece by piece by `iter_raw`."""

    def __init__(
        self,
        status_code: int,
        headers: HTTPMessage,
        pieces: Iterable[bytes],
        hang_up: Callable[[bool], None] = lambda is_whole: None,
    ) -> None:
        self.status_code = status_code
        self.headers = headers
        self._pieces = pieces
        self._hang_up = hang_up
        self._content: bytes | None = None
        self._is_whole = False

    @property
    def content(self) -> bytes:
        """The whole body."""
        if self._content is None:
            self._content = b"".join(self.iter_raw())
        return self._content

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """The document in the body; a ValueError if there is none."""
        return json.loads(self.content)

    def iter_raw(self) -> Iterator[bytes]:
        """The body in pieces, as they come."""
        yield from self._pieces
        self._is_whole = True

    def close(self) -> None:
        """Let the connection go; one whose body was not read whole is of no more use."""
        self._hang_up(self._is_whole)


class Transport(Protocol):
    """What carries a request to a server."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """The answer; its body may still be on its way."""

    def close(self) -> None:
        """Hang up."""


class Address:
    """A transport to one address."""

    def __init__(self, url: str, connect_s: float = TIMEOUT_S) -> None:
        self.route = find_route(url.rstrip("/"))
        self.connect_s = connect_s
        self.idle: deque[HTTPConnection] = deque()

    def send(self, request: HttpRequest) -> HttpResponse:
        """The answer of the server at this address."""
        connection = self.find_idle() or self.connect()
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # a refusal may come before a body was read whole
                connection.request(
                    request.method, self.route.prefix + request.path, request.body, dict(request.headers)
                )
            answer = connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise TransportError(explain(error)) from error
        keep = partial(self.keep, connection, answer)
        return HttpResponse(answer.status, answer.headers, read_pieces(answer), keep)

    def keep(self, connection: HTTPConnection, answer: HTTPResponse, is_whole: bool) -> None:
        """Keep a connection for the next request, unless something of the last answer may still come."""
        answer.close()
        if is_whole and not answer.will_close and len(self.idle) < KEPT:
            self.idle.append(connection)
        else:
            connection.close()

    def find_idle(self) -> HTTPConnection | None:
        """A connection that is open and unused; servers close those that were idle for long."""
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:  # another thread was faster
                return None
            if not has_news(connection):
                return connection
            connection.close()
        return None

    def connect(self) -> HTTPConnection:
        """A new connection."""
        connection = self.route.open(self.connect_s)
        try:
            connection.connect()
        except (OSError, HTTPException) as error:
            connection.close()
            raise ConnectError(explain(error)) from error
        connection.sock.settimeout(TIMEOUT_S)
        return connection

    def close(self) -> None:
        """Hang up."""
        while self.idle:
            self.idle.pop().close()


class HttpCaller:
    """Requests with the headers of one caller, over a transport."""

    def __init__(self, transport: Transport, headers: Mapping[str, str]) -> None:
        self.transport = transport
        self.headers = headers

    @contextmanager
    def stream(self, method: str, path: str, **options: Any) -> Iterator[HttpResponse]:
        """An answer whose body is read while it comes; options as those of `make_request`."""
        request = make_request(method, path, **options)
        response = self.transport.send(replace(request, headers={**self.headers, **request.headers}))
        try:
            yield response
        finally:
            response.close()

    def request(self, method: str, path: str, **options: Any) -> HttpResponse:
        """An answer that has come whole; options as those of `make_request`."""
        with self.stream(method, path, **options) as response:
            _ = response.content
            return response

    def get(self, path: str, **options: Any) -> HttpResponse:
        """The answer to a GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> HttpResponse:
        """The answer to a POST."""
        return self.request("POST", path, **options)

    def close(self) -> None:
        """Hang up."""
        self.transport.close()


def make_request(
    method: str,
    path: str,
    params: Mapping[str, Any] | None = None,
    json: Any = None,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpRequest:
    """A request: `params` become its query, `json` or `content` its body."""
    query = urlencode({name: write_param(value) for name, value in (params or {}).items()}, doseq=True)
    told = dict(headers or {})
    if json is not None:
        content = write_json(json)
        told.setdefault("Content-Type", "application/json")
    return HttpRequest(method, f"{path}?{query}" if query else path, told, content)


def write_json(document: Any) -> bytes:
    """A document as bytes; what JSON cannot say (NaN) is a ValueError."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def write_param(value: Any) -> Any:
    """A value of a query as JSON writes it: true, and nothing for None."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def has_news(connection: HTTPConnection) -> bool:
    """Whether an idle connection has something to read: it can only be that its server has hung up."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def read_pieces(answer: HTTPResponse) -> Iterator[bytes]:
    """A body in pieces, as they come; one that ends early is an error."""
    try:
        while piece := answer.read1(CHUNK_BYTES):
            yield piece
    except (OSError, HTTPException) as error:
        raise TransportError(explain(error)) from error
    if answer.length:
        raise TransportError(f"the answer ended {answer.length} bytes early")


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """How a server is reached: at its own address or by a proxy, and what stands before the path of a request."""

    host: str
    port: int | None
    prefix: str
    is_secure: bool
    behind: tuple[str, int | None] | None = None  # what a proxy is to open a tunnel to

    def open(self, timeout_s: float) -> HTTPConnection:
        """A connection that is not yet made."""
        kind = HTTPSConnection if self.is_secure else HTTPConnection
        connection = kind(self.host, self.port, timeout=timeout_s)
        if self.behind is not None:
            connection.set_tunnel(*self.behind)
        return connection


def find_route(url: str) -> ServerRoute:
    """How the server of a URL is reached."""
    place = urlsplit(url)
    host, is_secure = place.hostname or "", place.scheme == "https"
    proxy = find_proxy(place.scheme, host)
    if proxy is None:
        return ServerRoute(host, place.port, place.path, is_secure)
    before = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    if is_secure:
        return ServerRoute(before.hostname or "", before.port, place.path, is_secure, (host, place.port))
    return ServerRoute(before.hostname or "", before.port, url, is_secure)


def find_proxy(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for a host."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    found = getproxies()
    return None if proxy_bypass(host) else found.get(scheme, found.get("all"))


def explain(error: Exception) -> str:
    """What went wrong, also where an exception says nothing."""
    return str(error) or type(error).__name__
