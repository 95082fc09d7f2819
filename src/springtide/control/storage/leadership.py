"""Who serves the jobs of a PostgreSQL database: one server at a time, the others stand by.

Three things keep two apart. An advisory lock of the database, held by a session: whoever is killed lets go of it at
once. A lease that its holder renews: one that is stopped or cut off keeps its session and so the lock, until another
sees that the lease ran out and ends its sessions. And an epoch, raised by whoever takes over and checked inside every
transaction: one that wakes up later can read, but commit nothing. A server that has lost the lead ends.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, ProgrammingError

from springtide.control.storage.database.connections import SHORT_SILENCE, choose_arguments
from springtide.errors import StateError

LEASE_S = 5.0  # without a sign of life; then another may take over
RENEW_S = 1.0
POLL_S = 0.25  # between the looks of a standby
CONNECT_S = 5  # whole seconds, as the driver wants it
logger = logging.getLogger("springtide.server")

WALL = "extract(epoch FROM clock_timestamp())::float8 AS wall_s"  # the one clock that all servers of a database have
LOCK = "hashtext('springtide'), hashtext(current_schema())"
TRY_LOCK = text(f"SELECT pg_try_advisory_lock({LOCK})")
CREATE = text(
    "CREATE TABLE IF NOT EXISTS springtide_leader "
    "(epoch BIGINT PRIMARY KEY, holder TEXT NOT NULL, url TEXT NOT NULL, renewed TIMESTAMPTZ NOT NULL)"
)
FIRST_ROW = text(
    "INSERT INTO springtide_leader SELECT 0, '', '', to_timestamp(0) WHERE NOT EXISTS (SELECT FROM springtide_leader)"
)
LOOK = text(
    "SELECT epoch, holder, url, extract(epoch FROM clock_timestamp() - renewed)::float8 AS age_s FROM springtide_leader"
)
END_SESSIONS = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = :holder AND datname = current_database() AND pid <> pg_backend_pid()"
)
# One statement, because it then stands in the queue for the lock before the session that had it is gone: a standby,
# which only tries, gets no lock for which somebody waits. It waits for a second at most.
TAKE_BACK = text(
    f"SELECT pg_advisory_lock({LOCK}) FROM ("
    "SELECT count(pg_terminate_backend(pid)) AS ended, set_config('lock_timeout', '1s', true) FROM pg_stat_activity "
    "WHERE application_name = :holder AND datname = current_database() AND pid <> pg_backend_pid() "
    "AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
    ") AS broken WHERE ended > 0"
)
# A changed primary key locks the row against the share locks of CHECK; a renewal, which changes no key, does not.
TAKE = text(
    "UPDATE springtide_leader SET epoch = epoch + 1, holder = :holder, url = :url, renewed = clock_timestamp() "
    f"RETURNING epoch, {WALL}"
)
RENEW = text(f"UPDATE springtide_leader SET renewed = clock_timestamp() WHERE epoch = :epoch RETURNING {WALL}")
CHECK = text("SELECT epoch FROM springtide_leader WHERE epoch = :epoch FOR KEY SHARE")


class LostLeadError(StateError):
    """Another server has taken over the database."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds the lead, as the database says, and how long ago it gave a sign of life."""

    epoch: int
    holder: str
    url: str
    age_s: float


class Leadership:
    """The lead of one database: sought, held and checked by one server."""

    def __init__(self, address: URL, url: str) -> None:
        self.holder = f"springtide-{secrets.token_hex(8)}"  # all sessions of this server bear this name
        self.url = url
        options = choose_arguments(address, self.holder, {**SHORT_SILENCE, "connect_timeout": CONNECT_S})
        self.engine: Engine = create_engine(address, connect_args=options, isolation_level="AUTOCOMMIT")
        self.session: Connection | None = None
        #: Whether that session has the lock.
        self.has_lock = False
        self.epoch = 0
        self.renewed_s = read_steady_s()
        #: What the database's clock showed, and this machine's counter then.
        self.wall = (time.time(), read_steady_s())
        self.lost = ""
        self.on_lost: Callable[[str], None] = lambda why: None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.keep, name="leadership", daemon=True)

    def try_take(self) -> bool:
        """Take the lead if nobody holds it, or if who does has given no sign of life for the length of a lease."""
        session = self.connect()
        if not session.execute(TRY_LOCK).scalar_one():
            leader = self.look()
            if leader is not None and leader.age_s > LEASE_S:
                logger.warning("the server at %s has not been heard for %.1f s; ending it", leader.url, leader.age_s)
                session.execute(END_SESSIONS, {"holder": leader.holder})
            return False
        self.has_lock = True
        session.execute(CREATE)
        session.execute(FIRST_ROW)
        former = self.look()
        assert former is not None, "it was just written"
        session.execute(END_SESSIONS, {"holder": former.holder})  # a half-done commit of it would hold the row
        self.renewed_s = read_steady_s()
        taken = session.execute(TAKE, {"holder": self.holder, "url": self.url}).one()
        self.epoch = int(taken.epoch)
        self.note_wall(taken.wall_s)
        self.thread.start()
        return True

    def wait(self, seconds: float | None = None) -> bool:
        """Seek the lead until it is had, or for so many seconds."""
        until_s = None if seconds is None else time.monotonic() + seconds
        while not self.seek():
            if until_s is not None and time.monotonic() >= until_s:
                return False
            time.sleep(POLL_S)
        return True

    def seek(self) -> bool:
        """Whether the lead was had now; a database that has been reached before may be away for a while."""
        reached = self.session is not None
        try:
            return self.try_take()
        except DBAPIError as error:
            self.hang_up()
            if not reached:
                raise StateError(f"the database cannot be used ({tell_cause(error)}); see --database") from None
            logger.warning("the database does not answer a standby: %s", tell_cause(error))
            return False

    def look(self) -> Leader | None:
        """Who holds the lead; None if nobody ever did."""
        try:
            row = self.connect().execute(LOOK).one_or_none()
        except ProgrammingError:  # the table is not there yet
            return None
        return None if row is None else Leader(int(row.epoch), row.holder, row.url, float(row.age_s))

    def connect(self) -> Connection:
        """The session that holds the lock, or would."""
        if self.session is None:
            self.session = self.engine.connect()
        return self.session

    def tell(self, on_lost: Callable[[str], None]) -> None:
        """Have `on_lost` hear that another has taken over, which may have happened already."""
        self.on_lost = on_lost
        if self.lost:
            on_lost(self.lost)

    def keep(self) -> None:
        """Renew the lease until the end."""
        while not self.ended.wait(RENEW_S if self.has_lock else POLL_S) and not self.lost:
            try:
                self.renew()
            except DBAPIError as error:
                logger.warning("the lease could not be renewed: %s", tell_cause(error))
                self.hang_up()

    def renew(self) -> None:
        """Say that this server lives; after its session broke it has the lead still if the lock and the row are its.

        The database may not know yet that a session broke, and keep the lock for it: as long as the row says that
        nobody has taken over, that session is ended, and the lock is had before a standby can have it.
        """
        now_s, session = read_steady_s(), self.connect()
        self.has_lock = self.has_lock or bool(session.execute(TRY_LOCK).scalar_one()) or self.take_back(session)
        if not self.has_lock:
            return
        wall_s = session.execute(RENEW, {"epoch": self.epoch}).scalar_one_or_none()
        if wall_s is None:
            self.lose()
        else:
            self.renewed_s = now_s
            self.note_wall(wall_s)

    def take_back(self, session: Connection) -> bool:
        """Take the lock from a session of ours that broke, unless another leads; returns whether it was had."""
        leader = self.look()
        if leader is None or leader.epoch != self.epoch:
            self.lose()
            return False
        if not session.execute(TAKE_BACK, {"holder": self.holder}).all():
            return False
        logger.warning("the database kept the lock for a session of ours that broke; that one is ended")
        return True

    def lose(self) -> None:
        """Note that another holds the lead."""
        if not self.lost:
            self.lost = "another server has taken over the database; this one ends"
            self.on_lost(self.lost)

    def check(self, connection: Connection) -> None:
        """Refuse a transaction of a server that no longer holds the lead; who takes over waits for one that passed."""
        if connection.execute(CHECK, {"epoch": self.epoch}).one_or_none() is None:
            self.lose()
            raise LostLeadError(self.lost)

    @property
    def is_current(self) -> bool:
        """Whether nobody else can hold the lead yet: reads of this server are of now."""
        return not self.lost and self.age_s <= LEASE_S

    @property
    def age_s(self) -> float:
        """Seconds since the lease was renewed."""
        return read_steady_s() - self.renewed_s

    def note_wall(self, wall_s: float) -> None:
        """Note what the database's clock has just shown."""
        self.wall = (wall_s, read_steady_s())

    def read_wall_s(self) -> float:
        """Seconds since 1970 by the database's clock, which all servers share: their own may be an hour apart."""
        wall_s, steady_s = self.wall
        return wall_s + read_steady_s() - steady_s

    def hang_up(self) -> None:
        """Let go of the session, and with it of the lock."""
        session, self.session, self.has_lock = self.session, None, False
        if session is not None:
            session.invalidate()
            session.close()

    def close(self) -> None:
        """Let go of the lead."""
        self.ended.set()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join()
        self.hang_up()
        self.engine.dispose()


def read_steady_s() -> float:
    """Seconds on a clock that goes on while this process is stopped and, where there is such, this machine asleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def tell_cause(error: DBAPIError) -> str:
    """What a driver says, in one line."""
    return " ".join(str(error.orig).split())[:300]
