"""Whether a SQLite database is whole: asked before a server uses it, for what is damaged answers wrongly, not late."""

import sqlite3
from contextlib import closing
from pathlib import Path

from springtide.errors import StateError

REMEDY = "put a backup back with: springtide restore FILE (the damaged one is kept beside it)"

#: How long a lock that another program holds is waited for.
LOCK_S = 10.0
UNUSABLE_REMEDY = "free room on its disk, or end what holds it"


class UnusableDatabaseError(StateError):
    """A database that cannot be used now, damaged or not: its disk is full, or another program holds it."""


def find_damage(path: Path) -> str:
    """What is wrong with a database file; empty if nothing is, or if there is none yet.

    UnusableDatabaseError if that cannot be told now.
    """
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_S)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:  # told as damage, somebody would put an old backup over a good database
        raise UnusableDatabaseError(f"the database {path} cannot be used: {error}; {UNUSABLE_REMEDY}") from error
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if verdict == "ok" else str(verdict).replace("\n", " ")


def check_database(path: Path) -> None:
    """Refuse a damaged database."""
    damage = find_damage(path)
    if damage:
        raise StateError(f"the database {path} is damaged ({damage}); {REMEDY}")
