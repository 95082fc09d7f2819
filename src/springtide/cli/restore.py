"""`springtide restore`: put a backup in the place of the database."""

import sqlite3
from contextlib import closing
from pathlib import Path

import typer

from springtide.cli.outputs import OUTPUT, OutputOption
from springtide.errors import InputError


def run(
    file: Path = typer.Argument(metavar="FILE", help="A file that `springtide backup` wrote."),
    output: OutputOption = OUTPUT,
) -> None:
    """Put a backup in the place of the database; the server must be stopped. The old one is kept beside it.

    Example:

      springtide stop && springtide restore springtide-monday.db
    """
    from springtide.control.server import hold_lock
    from springtide.control.storage.migrations import back_up
    from springtide.control.storage.state_dir import find_home

    check_backup(file)
    home = find_home().make()
    with hold_lock(home):
        kept = home.database.with_name("springtide.db.before-restore")
        if home.database.exists():
            back_up(home.database, kept)
        for suffix in ("-wal", "-shm"):
            home.database.with_name(home.database.name + suffix).unlink(missing_ok=True)
        back_up(file, home.database)
    if not output.write({"schema": 1, "database": str(home.database), "kept": str(kept) if kept.exists() else None}):
        print(f"restored {home.database}" + (f"; the old one is {kept}" if kept.exists() else ""))


def check_backup(file: Path) -> None:
    """Refuse what is no database of ours, or of a newer springtide."""
    from springtide.control.storage.migrations import VERSION

    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (version,) = connection.execute("SELECT version FROM schema_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise InputError(f"{file} is no backup of a springtide database ({error})") from None
    if version > VERSION:
        raise InputError(
            f"{file} is of version {version}, this springtide knows up to {VERSION}; install the newer springtide again"
        )
