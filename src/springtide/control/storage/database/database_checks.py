"""Whether a SQLite database is whole: asked before a server uses it, for what is damaged answers wrongly, not late."""

import sqlite3
from contextlib import closing
from pathlib import Path

from springtide.errors import StateError

REMEDY = "put a backup back with: springtide restore FILE (the damaged one is kept beside it)"


def find_damage(path: Path) -> str:
    """What is wrong with a database file; empty if nothing is, or if there is none yet."""
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=10.0)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if verdict == "ok" else str(verdict).replace("\n", " ")


def check_database(path: Path) -> None:
    """Refuse a damaged database."""
    damage = find_damage(path)
    if damage:
        raise StateError(f"the database {path} is damaged ({damage}); {REMEDY}")
