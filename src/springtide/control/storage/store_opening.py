"""Opening the store of a server: never one that is damaged or lost its jobs, and patiently one that cannot be used yet.

A disk that is full and a database that another program holds are no damage and pass: who starts again after a crash in
the middle of one waits for a while, and says so, instead of ending with a traceback.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from springtide.control.storage.database.database_checks import UNUSABLE_REMEDY, UnusableDatabaseError, check_database
from springtide.control.storage.database.databases import is_file, is_unavailable
from springtide.control.storage.leadership import Leadership, LostLeadError
from springtide.control.storage.orphans import check_not_lost
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store

RETRY_S = 1.0
#: How often an unusable database is tried again: a minute, and whatever it waits for a lock by itself.
RETRIES = 60
#: A database with a server of its own has no disk that we can see, and no file that somebody holds.
SERVER_REMEDY = "see that its server runs, takes connections from here and has room on its disk"
logger = logging.getLogger("springtide.server")
T = TypeVar("T")


@dataclass(frozen=True)
class DatabasePlace:
    """Where a database is, in words for whoever runs the server, and what to do when it cannot be used."""

    name: str
    remedy: str = UNUSABLE_REMEDY


def find_place(state_dir: StateDir, url: str | None) -> DatabasePlace:
    """The place of the database at an address, or of a state directory's file; an address may hold a password."""
    if url is None:
        return DatabasePlace(str(state_dir.database))
    return DatabasePlace("of this server", UNUSABLE_REMEDY if is_file(url) else SERVER_REMEDY)


def open_store(
    state_dir: StateDir, url: str | None = None, leadership: Leadership | None = None, keep_orphans: bool = False
) -> Store:
    """The store at an address, or the file of a state directory.

    One that knows none of the jobs whose folders are here is refused, unless told to keep them as orphans.
    """
    if url is None:
        check_database(state_dir.database)
    store = Store(url or f"sqlite:///{state_dir.database}", leadership)
    try:
        if not keep_orphans:
            check_not_lost(state_dir, store)
    except BaseException:
        store.close()
        raise
    return store


def insist(attempt: Callable[[], T], place: DatabasePlace, sleep: Callable[[float], None] = time.sleep) -> T:
    """What an attempt with the database gives; made again while that cannot be used for a reason that may pass."""
    for left in range(RETRIES, -1, -1):
        try:
            return attempt()
        except Exception as error:
            if not may_pass(error):
                raise
            said = f"the database {place.name} cannot be used: {getattr(error, 'orig', error)}; {place.remedy}"
            if isinstance(error, UnusableDatabaseError):
                said = str(error)
            if not left:
                raise UnusableDatabaseError(said) from error
            if left == RETRIES:
                logger.warning("%s. It is tried again for %d s", said, RETRIES * RETRY_S)
        sleep(RETRY_S)
    raise AssertionError("unreachable: the last try returns or raises")


def may_pass(error: Exception) -> bool:
    """Whether an error says only that the database cannot be used now; who has lost the lead will not get it back."""
    if isinstance(error, LostLeadError):
        return False
    return isinstance(error, UnusableDatabaseError) or is_unavailable(error)
