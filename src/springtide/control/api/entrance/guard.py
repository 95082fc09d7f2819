"""The guard before every route: host, origin, token, rate, kind, size and haste of the body. A plain ASGI wrapper.

Everything but a few open paths needs a token, on loopback too: a web page in a browser can reach this port as well.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from urllib.parse import quote, urlsplit

from springtide.control.api.entrance.refusals import (
    FAILED,
    App,
    Message,
    Receive,
    Refused,
    Scope,
    Send,
    answer,
    send_whole,
    tell_failure,
)
from springtide.control.api.entrance.tokens import find_user
from springtide.control.storage.leadership import LEASE_S, Leadership
from springtide.control.storage.records import UserRecord
from springtide.control.storage.store import Store

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = HEALTH_PATHS | {"/signin"}
OPEN_FOLDERS = ("/static/", "/signin/")
API = "/api/"
PART = "hx-request"  # the header of a request for a part of a page
ARCHIVES = "/api/v1/archives/"
MOST_JSON_BYTES = 1 << 20
WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ARCHIVE_KINDS = frozenset({"application/x-tar", "application/octet-stream"})
FORM_KINDS = frozenset({"application/x-www-form-urlencoded"})
PAUSE_S = 10.0  # between two pieces of a body
BODY_S = 30.0  # for a body, and
SLOWEST_BYTES_PER_S = 50_000.0  # so much more for a long one


def split_host(text: str) -> str:
    """The name in a Host header or an origin, without its port, in lower case; empty if it is malformed."""
    try:
        return (urlsplit(f"//{text}").hostname or "").lower()
    except ValueError:
        return ""


def is_own_host(header: str | None, names: frozenset[str]) -> bool:
    """Whether a Host header names this server: a page that rebinds its own name to this address does not."""
    return header is not None and split_host(header) in names


def is_own_origin(header: str | None, host: str, names: frozenset[str]) -> bool:
    """Whether a request comes from no page at all, or from one of this server's.

    Other ports of this machine serve other people's pages; a name given to this server may stand for a proxy before it.
    """
    if header is None:
        return True
    scheme, _, place = header.partition("://")
    given = names.difference(LOCAL_NAMES)
    return scheme in ("http", "https") and (place.lower() == host.lower() or split_host(place) in given)


@dataclass(slots=True)
class TokenBucket:
    """Tokens that refill at a steady rate, up to a limit."""

    level: float
    at_s: float


@dataclass(slots=True)
class Limiter:
    """At most `rate_per_s` requests per second and user, `burst` of them at once."""

    rate_per_s: float
    burst: int
    buckets: dict[str, TokenBucket] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_s(self, user: str, now_s: float) -> float:
        """0 and one request spent, or the seconds until the next one is allowed."""
        with self.lock:
            bucket = self.buckets.setdefault(user, TokenBucket(float(self.burst), now_s))
            bucket.level = min(float(self.burst), bucket.level + (now_s - bucket.at_s) * self.rate_per_s)
            bucket.at_s = now_s
            if bucket.level >= 1:
                bucket.level -= 1
                return 0.0
            return (1 - bucket.level) / self.rate_per_s


def spend(limiter: Limiter, what: str, user: UserRecord) -> None:
    """Count a request of a user; raises Refused if they ask too often."""
    wait_s = limiter.wait_s(user.id, time.monotonic())
    if wait_s > 0:
        rate, burst = limiter.rate_per_s, limiter.burst
        sentence = f"more than {rate:g} {what} per second ({burst} at once); try again in {wait_s:.1f} s"
        raise Refused(429, "rate_limited", sentence, wait_s)


@dataclass(frozen=True, slots=True)
class PageRules:
    """What the guard must know of the pages that stand behind it."""

    #: How large a form may be, by how its path begins; others as large as a document.
    most_form_bytes: Mapping[str, int] = field(default_factory=dict)
    #: A refusal as a page: its headers and its text.
    write_refusal: Callable[[str], tuple[Mapping[str, str], bytes]] | None = None

    def find_most(self, path: str) -> int:
        """How large a form for a path may be."""
        return next((most for start, most in self.most_form_bytes.items() if path.startswith(start)), MOST_JSON_BYTES)


@dataclass(slots=True)
class Guard:
    """Lets through what may pass, with the user in `scope["state"]["user"]`."""

    app: App
    store: Store
    hosts: frozenset[str]
    changes: Limiter
    reads: Limiter
    most_archive_bytes: int
    #: The user of a browser's session, by the headers `cookie` and `host`.
    find_session: Callable[[str, str], UserRecord | None] = lambda cookie, host: None
    rules: PageRules = field(default_factory=PageRules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on; or answer with the refusal."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        timed = TimedAnswer(send)
        try:
            await self.app(scope, await self.check(scope, receive), timed)
        except Refused as refused:
            await self.refuse(timed, scope, refused)
        except Exception as error:
            if not timed.status:
                await self.refuse(timed, scope, tell_failure(error))
            elif timed.status != FAILED:  # else it was told and logged
                raise

    async def refuse(self, send: Send, scope: Scope, refused: Refused) -> None:
        """Answer with a refusal; who asked for a whole page gets it as one."""
        write = self.rules.write_refusal
        if write is None or refused.place or not reads_page(scope["path"], read_headers(scope)):
            await answer(send, refused)
            return
        headers, body = write(refused.sentence)
        await send_whole(send, refused.status, {**headers, **refused.headers}, body)

    async def check(self, scope: Scope, receive: Receive) -> Receive:
        """The body to pass on; raises Refused."""
        headers = read_headers(scope)
        if not is_own_host(headers.get("host"), self.hosts):
            sentence = f"host {headers.get('host')!r} is not a name of this server; add it with --host-name"
            raise Refused(421, "unknown_host", sentence)
        if not is_own_origin(headers.get("origin"), headers["host"], self.hosts):
            raise Refused(403, "foreign_origin", f"pages of {headers['origin']!r} may not call this server")
        if self.store.leadership is not None and scope["path"] not in HEALTH_PATHS:
            check_lead(self.store.leadership)
        if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(OPEN_FOLDERS):
            self.check_user(scope, headers)
        if scope["method"] not in WRITING:
            return receive
        most = self.check_kind(scope["path"], headers)
        body = time_body(receive, headers, most)
        return body if scope["path"].startswith(ARCHIVES) else await read_body(body)

    def check_user(self, scope: Scope, headers: dict[str, str]) -> None:
        """Find the user by token, and see that they do not ask too often."""
        if not is_bearer(headers):
            check_own_page(scope["method"], headers)
        user = self.identify(headers)
        if user is None:
            sentence = "no valid token; send 'Authorization: Bearer TOKEN' with the token in $SPRINGTIDE_HOME/token"
            place, is_part = find_place(scope, headers), PART in headers
            raise Refused(401, "unauthorised", sentence, place=place, is_part=is_part)
        # What is sent for hours asks again who listens.
        scope.setdefault("state", {}).update(user=user, identify=partial(self.identify, headers))
        limiter, what = (self.changes, "changes") if scope["method"] in WRITING else (self.reads, "reads")
        spend(limiter, what, user)

    def identify(self, headers: dict[str, str]) -> UserRecord | None:
        """Who asks, by token or by session, as of now; None: nobody who may."""
        if is_bearer(headers):
            return find_user(self.store, headers["authorization"].partition(" ")[2].strip())
        return self.find_session(headers.get("cookie", ""), headers["host"])

    def check_kind(self, path: str, headers: dict[str, str]) -> int:
        """See that the body is of an accepted kind; returns how large it may be."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if path.startswith(ARCHIVES):
            accepted, most = ARCHIVE_KINDS, self.most_archive_bytes
        elif not path.startswith(API):
            accepted, most = FORM_KINDS, self.rules.find_most(path)
        else:
            accepted, most = frozenset({"application/json"}), MOST_JSON_BYTES
        empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        if kind not in accepted and not (empty and not kind):
            sentence = (
                f"a body of kind {kind or 'unknown'!r} is not accepted here; send {' or '.join(sorted(accepted))}"
            )
            raise Refused(415, "unsupported_media_type", sentence)
        return most


def read_headers(scope: Scope) -> dict[str, str]:
    """The headers of a request by their names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def reads_page(path: str, headers: dict[str, str]) -> bool:
    """Whether a whole page is asked for, and neither a document nor a part of a page."""
    return not path.startswith(API) and PART not in headers and "text/html" in headers.get("accept", "")


def is_bearer(headers: dict[str, str]) -> bool:
    """Whether a request brings a token, and not a browser's cookie."""
    return headers.get("authorization", "").partition(" ")[0].lower() == "bearer"


def check_lead(leadership: Leadership) -> None:
    """Refuse to answer for a database that another server may serve by now: what is remembered here may be old."""
    if not leadership.is_current:
        why = leadership.lost or f"this server could not renew its lease of the database within {LEASE_S:g} s"
        raise Refused(503, "standby", f"{why}; ask the active server", wait_s=1.0)


def check_own_page(method: str, headers: dict[str, str]) -> None:
    """See that what changes something by a browser's cookie was sent by a page of ours: browsers say so, always."""
    if method in WRITING and "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise Refused(403, "foreign_origin", "a change by cookie must come from a page of this server; use a token")


def find_place(scope: Scope, headers: dict[str, str]) -> str:
    """Where who must sign in first is sent: only readers of pages are."""
    if PART in headers:  # of a page that htmx fills in: its reader goes on where that page is
        return f"/signin?next={quote(find_part_page(headers), safe='')}"
    if not reads_page(scope["path"], headers):
        return ""
    asked = scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope.get("query_string") else "")
    return f"/signin?next={quote(asked if scope['method'] == 'GET' else find_page(headers), safe='')}"


def find_part_page(headers: dict[str, str]) -> str:
    """The page of which a part is asked for, as its script says; else the board."""
    try:
        page = urlsplit(headers.get("hx-current-url", "/"))
    except ValueError:
        return "/"
    return page.path + (f"?{page.query}" if page.query else "")


def find_page(headers: dict[str, str]) -> str:
    """The page of this server that a form was sent from, as its reader's browser says; else the board."""
    try:
        page = urlsplit(headers.get("referer", ""))
    except ValueError:
        return "/"
    if page.netloc.lower() != headers["host"].lower() or not page.path.startswith("/"):
        return "/"
    return page.path + (f"?{page.query}" if page.query else "")


class TimedAnswer:
    """`send`, telling in the header `Server-Timing` how many milliseconds the answer took; and the status it had."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.started_s = time.perf_counter()
        self.status = 0

    async def __call__(self, message: Message) -> None:
        """Send on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            spent = f"answer;dur={1000 * (time.perf_counter() - self.started_s):.2f}".encode()
            message["headers"] = [*message["headers"], (b"server-timing", spent)]
        await self.send(message)


def time_body(receive: Receive, headers: dict[str, str], most: int) -> Receive:
    """`receive` for a body that is neither larger nor slower than it may be; else it raises Refused.

    The clock runs from the first look at it: nobody is slow while they wait for their turn.
    """
    told = headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or len(told) > 18 or int(told) > most:
        raise Refused(413, "too_large", f"the body is larger than {most} bytes")
    started_s, size = inf, 0

    async def receive_timed() -> Message:
        nonlocal started_s, size
        started_s = min(started_s, time.monotonic())
        left_s = started_s + BODY_S + size / SLOWEST_BYTES_PER_S - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(PAUSE_S, left_s))):
                message = await receive()
        except TimeoutError:
            raise Refused(408, "too_slow", f"the body comes too slowly; {size} bytes of it have come") from None
        if message["type"] != "http.request":
            raise Refused(400, "incomplete", "the body ended early")
        size += len(message.get("body", b""))
        if size > most:
            raise Refused(413, "too_large", f"the body is larger than {most} bytes")
        return message

    return receive_timed


async def read_body(receive: Receive) -> Receive:
    """The whole body as a receive function that gives it once, and then that nobody listens any more."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else {"type": "http.disconnect"}

    return replay
