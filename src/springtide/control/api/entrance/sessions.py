"""Who is signed in with a browser: sessions that a cookie names, and links that sign in once.

Only hashes are stored, so that nobody signs in with a copy of the database; sessions outlive the server, links do not.
A cookie's name holds the port: browsers share cookies between the ports of one host. What begins or ends a session is
written in threads of its own, so many of each user: a database that is locked must not hold up who asks for a page.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeVar

from springtide.control.api.entrance.guard import Limiter, spend
from springtide.control.api.entrance.refusals import Refused
from springtide.control.api.entrance.tokens import hash_token
from springtide.control.api.job_data.user_turns import NotBegunError, UserThreads
from springtide.control.scheduling.loop.calls import UNDONE
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.storage.database.databases import is_unavailable, is_undone
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import UserRecord
from springtide.control.storage.store import Store

T = TypeVar("T")
FACT = "sessions"
SESSION_S = 12 * 3600.0
LINK_S = 600.0
MOST_SESSIONS = 20  # of one user; the oldest make way
WRITE_S = 15.0  # for a session to be stored
MOST_THREADS, THREADS_OF_EACH = 32, 2
NOT_IN = "whether the session was stored is not known; sign in again; for a new link: springtide ui"
NOT_OUT = "whether the session has ended is not known; sign out again"


@dataclass(slots=True)
class Sessions:
    """Sessions and links of one server; times are platform time."""

    store: Store
    now_s: Callable[[], float]
    links: dict[str, tuple[str, float, str]] = field(default_factory=dict)
    #: Held while sessions are written, for seconds where the database is locked: only by threads of `threads`.
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Held for links, over no write: whoever answers everybody may wait for it.
    links_lock: threading.Lock = field(default_factory=threading.Lock)
    known: dict[str, list[Any]] | None = None
    #: What counts a sign-in as a change of its user's; None: nothing does.
    changes: Limiter | None = None
    threads: UserThreads = field(default_factory=lambda: UserThreads("sign-ins", MOST_THREADS, THREADS_OF_EACH))

    async def let_in(self, user: UserRecord) -> str:
        """A new session of a user who does not ask for too many; returns what its cookie holds."""
        return await self._let_in(user, lambda: self.begin(user))

    async def let_in_once(self, user: UserRecord, link: str) -> str:
        """A new session by a link, which is then used up; empty if it was used meanwhile."""
        return await self._let_in(user, lambda: self.begin_once(user, link))

    async def let_out(self, user: UserRecord, secret: str) -> None:
        """End a session of a user."""
        await self._store_for(user, lambda: self.end(secret), NOT_OUT)

    async def _let_in(self, user: UserRecord, work: Callable[[], str]) -> str:
        if self.changes is not None:
            spend(self.changes, "changes", user)
        return await self._store_for(user, work, NOT_IN)

    async def _store_for(self, user: UserRecord, work: Callable[[], T], unknown: str) -> T:
        """Have a thread write something; what is told where nobody knows whether it did so says how to go on."""
        try:
            return await self.threads.run(user, work, WRITE_S)
        except NotBegunError as error:
            sentence = f"{error}; {UNDONE}"
        except TimeoutError:
            sentence = f"the database did not answer within {WRITE_S:g} s; {unknown}"
        except Exception as error:
            if not is_unavailable(error):
                raise
            sentence = f"{show_safely(error)}; {UNDONE if is_undone(error) else unknown}"
        raise Refused(503, "unavailable", sentence, wait_s=1.0)

    def begin(self, user: UserRecord) -> str:
        """A new session; returns what its cookie holds."""
        secret = secrets.token_urlsafe(32)
        with self.lock:
            now_s = self.now_s()
            kept = {key: one for key, one in self._read().items() if one[1] > now_s}
            own = [key for key, one in kept.items() if one[0] == user.name]
            for key in own[: max(0, len(own) + 1 - MOST_SESSIONS)]:
                del kept[key]
            self._write({**kept, hash_token(secret): [user.name, now_s + SESSION_S, user.token_hash]})
        return secret

    def find(self, secret: str) -> UserRecord | None:
        """The user of a session that has not ended; a user whose token was replaced has none."""
        session = self._read().get(hash_token(secret))
        if session is None or session[1] <= self.now_s():
            return None
        return self._find_user(session[0], session[2])

    def end(self, secret: str) -> None:
        """End a session."""
        with self.lock:
            self._write({key: one for key, one in self._read().items() if key != hash_token(secret)})

    def begin_once(self, user: UserRecord, link: str) -> str:
        """A new session by a link, which is good again if no session can be stored; empty if it is good no more."""
        key = hash_token(link)
        with self.links_lock:
            taken = self.links.pop(key, None)
        if taken is None:
            return ""
        try:
            return self.begin(user)
        except BaseException:
            with self.links_lock:
                self.links[key] = taken
            raise

    def make_link(self, user: UserRecord) -> str:
        """The path that signs a user in, once and soon."""
        secret = secrets.token_urlsafe(32)
        with self.links_lock:
            now_s = self.now_s()
            self.links = {key: one for key, one in self.links.items() if one[1] > now_s}
            self.links[hash_token(secret)] = (user.name, now_s + LINK_S, user.token_hash)
        return f"/signin/{secret}"

    def find_linked(self, link: str) -> UserRecord | None:
        """The user whom a link signs in: nobody once it was used or is old, or after their token was replaced."""
        with self.links_lock:
            name, until_s, token_hash = self.links.get(hash_token(link), ("", 0.0, ""))
        return self._find_user(name, token_hash) if until_s > self.now_s() else None

    def _find_user(self, name: str, token_hash: str) -> UserRecord | None:
        """The user of a name, if it is still the one who had that token."""
        user = self.store.find_user(name)
        return user if user is not None and user.token_hash == token_hash else None

    def _read(self) -> dict[str, list[Any]]:
        if self.known is None:
            self.known = dict(self.store.fact(FACT) or {})
        return self.known

    def _write(self, sessions: dict[str, list[Any]]) -> None:
        self.store.write(Batch(facts={FACT: sessions}))
        self.known = sessions


@dataclass(slots=True)
class Pulse:
    """When to look again: counts of what was written and of what happened, and whether the server is about to end."""

    store: Store
    is_ending: Callable[[], bool] = lambda: False
    #: How many pages may be kept up to date at a time, of all users.
    most_readers: int = 256

    def read(self) -> tuple[int, int]:
        """What was written, and what happened, since the server was started."""
        return self.store.version, self.store.happened


def name_cookie(host: str) -> str:
    """The name of the cookie of a server, by its Host header."""
    port = host.rpartition(":")[2]
    return f"springtide_{port if port.isascii() and port.isdigit() else 'session'}"


def read_cookie(header: str, host: str) -> str:
    """What a Cookie header holds for this server; empty if it holds nothing."""
    try:
        jar = SimpleCookie(header)
    except CookieError:
        return ""
    morsel = jar.get(name_cookie(host))
    return morsel.value if morsel is not None else ""
