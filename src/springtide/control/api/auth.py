"""Who may come in: bearer tokens, host names, origins, and how often.

A token is 256 random bits, so its plain SHA-256 is safe at rest. Comparison takes the same time wherever it fails.
"""

import getpass
import hashlib
import hmac
import os
import pwd
import secrets
import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from springtide.control.storage.records import UserRecord
from springtide.control.storage.state_dir import StateDir, write_private
from springtide.control.storage.store import Store
from springtide.errors import InputError

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")


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


def ensure_owner(store: Store, home: StateDir) -> UserRecord:
    """The owner of the state directory as an admin, with a token in a file that only they can read."""
    if not home.token.exists():
        write_private(home.token, make_token() + "\n")
    home.token.chmod(0o600)
    owner = find_user(store, home.token.read_text().strip())
    if owner is None:
        owner = UserRecord(find_login(), hash_token(home.token.read_text().strip()), admin=True)
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
