"""Databases by address: which driver, how a connection is set up, and which errors say nothing about what was written.

What is the same in SQLite and PostgreSQL is written once, in SQLAlchemy Core; what is not is here.
"""

import errno
import json
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Engine, Executable, Table, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, IntegrityError, ProgrammingError

from springtide.control.storage.database.connections import choose_arguments
from springtide.control.storage.leadership import LostLeadError
from springtide.errors import InputError

#: Errors of the machine, whatever it was asked for. Others come of one name or one folder, and cost only who gave it.
_OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def is_unavailable(error: BaseException) -> bool:
    """Whether a write failed because the database cannot be reached, locked or written, whatever was to be written."""
    if isinstance(error, OSError):
        return isinstance(error, ConnectionError | TimeoutError) or error.errno in _OF_THE_MACHINE
    known = isinstance(error, DatabaseError) and not isinstance(error, DataError | IntegrityError | ProgrammingError)
    return known or isinstance(error, MemoryError | LostLeadError)


def find_cause(error: BaseException) -> BaseException:
    """What the driver says where an error is the database's: the rest of it is our statement, which is for our log."""
    return getattr(error, "orig", None) or error


def is_undone(error: BaseException) -> bool:
    """Whether what failed has certainly written nothing: it failed before the commit, which has no statement."""
    return not isinstance(error, DatabaseError) or error.statement not in (None, "COMMIT")


def find_address(url: str) -> URL:
    """An address with our driver: `postgresql://` alone would mean an older one that the extra does not install."""
    try:
        address = make_url(url)
    except ArgumentError:
        raise InputError(
            f"database {url!r} is no address; write postgresql://USER@HOST/NAME or sqlite:///FILE"
        ) from None
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    if address.drivername == "postgresql+psycopg" and find_spec("psycopg") is None:
        raise InputError("a PostgreSQL needs its driver, which is not installed: pip install 'springtide[postgres]'")
    return address


def is_file(url: str) -> bool:
    """Whether a database is a file, which servers of one state directory only can reach."""
    return find_address(url).get_backend_name() == "sqlite"


def open_engine(address: URL, name: str = "") -> Engine:
    """An engine for an address, whose sessions bear a name where there are sessions.

    SQLite is in WAL mode, synchronous enough to survive a kill at any moment. Errors do not repeat the values of a
    statement: they are shown to others than whose values those are.
    """
    if not address.drivername.startswith("sqlite"):
        arguments = choose_arguments(address, name)
        settings = {"pool_pre_ping": True, "connect_args": arguments}
        return create_engine(address, **settings, hide_parameters=True, json_serializer=write_json)
    engine = create_engine(address, hide_parameters=True, json_serializer=write_json)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    # by the driver itself, which takes a fifth of the time: it locks nothing yet, and so cannot fail for another's sake
    connection.connection.cursor().execute("BEGIN")


def write_json(value: Any) -> str:
    """A value as JSON in ASCII, which every database takes, whatever its encoding.

    Where nothing else is in it that is written several times as fast as the standard library does.
    """
    try:
        text = to_json(value, inf_nan_mode="constants").decode()
    except ValueError:  # text that is no Unicode
        text = "\N{REPLACEMENT CHARACTER}"
    return text if text.isascii() else json.dumps(value)


def _set_pragmas(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # else the driver begins no transaction around changes of tables
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def upsert(connection: Connection, table: Table, key: str, rows: list[dict[str, Any]]) -> None:
    """Insert rows, or replace those whose key is there."""
    if not rows:
        return
    connection.execute(make_upsert(connection.dialect.name, table, key), rows)


@cache
def make_upsert(dialect: str, table: Table, key: str) -> Executable:
    """The statement that inserts rows or replaces them; building it takes a millisecond, so it is built once."""
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    changed = {column.name: statement.excluded[column.name] for column in table.c if column.name not in (key, "seq")}
    upsert: Executable = statement.on_conflict_do_update(index_elements=[key], set_=changed)
    return upsert
