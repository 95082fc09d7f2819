"""The guard before every route: host, origin, kind and size of the body, token, rate. A plain ASGI wrapper.

Everything but `/healthz` needs a token, on loopback too: a web page open in a browser can reach this port as well. A
token is 256 random bits, so its plain SHA-256 is safe at rest. Comparison takes the same time wherever it fails.
"""

import getpass
import hashlib
import hmac
import json
import os
import pwd
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from springtide.control.storage.records import UserRecord
from springtide.control.storage.state_dir import StateDir, write_private
from springtide.control.storage.store import Store
from springtide.errors import InputError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
ARCHIVES = "/api/v1/archives/"
MOST_JSON_BYTES = 1 << 20
WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ARCHIVE_KINDS = frozenset({"application/x-tar", "application/octet-stream"})


def make_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def find_user(store: Store, token: str) -> UserRecord | None:
    """The user a token belongs to."""
    wanted = hash_token(token)
    found = None
    for user in store.users():
        if hmac.compare_digest(user.token_hash, wanted):
            found = user
    return found


def ensure_owner(store: Store, state_dir: StateDir) -> UserRecord:
    """The owner of the state directory as an admin, with a token in a file that only they can read."""
    if not state_dir.token.exists():
        write_private(state_dir.token, make_token() + "\n")
    state_dir.token.chmod(0o600)
    owner = find_user(store, state_dir.token.read_text().strip())
    if owner is None:
        owner = UserRecord(find_login(), hash_token(state_dir.token.read_text().strip()), admin=True)
        store.put_user(owner)
    return owner


def check_run_as(name: str | None) -> None:
    """Refuse a system user that jobs cannot run as: there is none of that name, or this server is not root."""
    if name is None:
        return
    if os.geteuid() != 0:
        raise InputError(f"run_as {name!r} needs a server that runs as root; start it as root, or leave run_as out")
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise InputError(f"run_as {name!r} is no user of this system; add it, or name another") from None


def find_login() -> str:
    """The name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"


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


class Refused(Exception):
    """A request that does not pass: status, reason code, sentence."""

    def __init__(self, status: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.reason = reason
        self.sentence = sentence


@dataclass(slots=True)
class Guard:
    """Lets through what may pass, with the user in `scope["state"]["user"]`."""

    app: App
    store: Store
    hosts: frozenset[str]
    limiter: Limiter
    most_archive_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on; or answer with the refusal."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        timed = time_answer(send)
        try:
            body = await self.check(scope, receive)
        except Refused as refused:
            await answer(timed, refused)
            return
        await self.app(scope, body, timed)

    async def check(self, scope: Scope, receive: Receive) -> Receive:
        """The body to pass on; raises Refused."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not is_own_host(headers.get("host"), self.hosts):
            sentence = f"host {headers.get('host')!r} is not a name of this server; add it with --host-name"
            raise Refused(421, "unknown_host", sentence)
        if not is_own_origin(headers.get("origin"), headers["host"], self.hosts):
            raise Refused(403, "foreign_origin", f"pages of {headers['origin']!r} may not call this server")
        if scope["path"] in OPEN_PATHS:
            return receive
        self.check_user(scope, headers)
        if scope["method"] not in WRITING:
            return receive
        most = self.check_kind(scope["path"], headers)
        return await read_body(receive, headers, most)

    def check_user(self, scope: Scope, headers: dict[str, str]) -> None:
        """Find the user by token, and see that they do not ask too often."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        user = find_user(self.store, token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            sentence = "no valid token; send 'Authorization: Bearer TOKEN' with the token in $SPRINGTIDE_HOME/token"
            raise Refused(401, "unauthorised", sentence)
        scope.setdefault("state", {})["user"] = user
        if scope["method"] in WRITING:
            wait_s = self.limiter.wait_s(user.name, time.monotonic())
            if wait_s > 0:
                rate, burst = self.limiter.rate_per_s, self.limiter.burst
                sentence = f"more than {rate:g} changes per second ({burst} at once); try again in {wait_s:.1f} s"
                raise Refused(429, "rate_limited", sentence)

    def check_kind(self, path: str, headers: dict[str, str]) -> int:
        """See that the body is of an accepted kind; returns how large it may be."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if path.startswith(ARCHIVES):
            accepted, most = ARCHIVE_KINDS, self.most_archive_bytes
        else:
            accepted, most = frozenset({"application/json"}), MOST_JSON_BYTES
        empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        if kind not in accepted and not (empty and not kind):
            sentence = (
                f"a body of kind {kind or 'unknown'!r} is not accepted here; send {' or '.join(sorted(accepted))}"
            )
            raise Refused(415, "unsupported_media_type", sentence)
        return most


def time_answer(send: Send) -> Send:
    """`send`, telling in the header `Server-Timing` how many milliseconds the answer took from here."""
    started_s = time.perf_counter()

    async def send_timed(message: Message) -> None:
        if message["type"] == "http.response.start":
            spent = f"answer;dur={1000 * (time.perf_counter() - started_s):.2f}".encode()
            message["headers"] = [*message["headers"], (b"server-timing", spent)]
        await send(message)

    return send_timed


async def read_body(receive: Receive, headers: dict[str, str], most: int) -> Receive:
    """The whole body, if it is not too large, as a receive function that gives it once."""
    told = headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or int(told) > most:
        raise Refused(413, "too_large", f"the body is larger than {most} bytes")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "incomplete", "the body ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refused(413, "too_large", f"the body is larger than {most} bytes")
        if not message.get("more_body", False):
            break
    whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay


async def answer(send: Send, refused: Refused) -> None:
    """Send a refusal as an error document."""
    body = json.dumps(write_error(refused.reason, refused.sentence)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def write_error(reason: str, sentence: str) -> dict[str, Any]:
    """The document of an error."""
    return {"schema": 1, "error": {"reason": reason, "sentence": sentence}}
