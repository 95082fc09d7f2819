"""`springtide backup`, `restore`, `gc` and `du`: the verbs that keep the state directory in order."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, print_table
from springtide.errors import InputError, StateError

if TYPE_CHECKING:
    from springtide.control.storage.housekeeping import Removable


def backup(
    file: Path = typer.Argument(metavar="FILE", help="Where to write the copy."), output: OutputOption = OUTPUT
) -> None:
    """Copy the database by SQLite's online backup; a server may run meanwhile.

    Example:

      springtide backup springtide-monday.db
    """
    from springtide.control.storage.migrations import back_up
    from springtide.control.storage.state_dir import find_home

    home = find_home()
    if not home.database.exists():
        raise StateError(f"there is no database in {home.root}; nothing to back up")
    if file.is_dir() or not file.absolute().parent.is_dir():
        problem = "it is a folder" if file.is_dir() else "its folder does not exist"
        raise InputError(f"cannot write {file}: {problem}; give the path of a new file")
    try:
        back_up(home.database, file)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"cannot write {file}: {error}; give the path of a new file") from None
    if not output.write({"schema": 1, "file": str(file), "bytes": file.stat().st_size}):
        print(f"wrote {file} ({file.stat().st_size / 1e6:.1f} MB)")


def restore(
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


def gc(
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would go."), output: OutputOption = OUTPUT
) -> None:
    """Remove old checkpoints, probes, code without jobs, and jobs that ended 90 days ago, as a server does every hour.

    Example:

      springtide gc --dry-run
    """
    pieces = remove_garbage(dry_run)
    total = sum(piece.bytes for piece in pieces)
    if output.write({"schema": 1, "dry_run": dry_run, "bytes": total, "removed": describe(pieces)}):
        return
    print_pieces(pieces, "nothing to remove")
    if pieces:
        print(f"{'would free' if dry_run else 'freed'} {total / 1e6:.1f} MB")


def remove_garbage(dry_run: bool) -> "list[Removable]":
    """What may go, and unless it is only asked for, has gone."""
    from springtide.control.scheduling.context import ServerOptions
    from springtide.control.server import read_config
    from springtide.control.storage.housekeeping import collect, list_garbage
    from springtide.control.storage.state_dir import find_home
    from springtide.control.storage.store import Store

    home = find_home().make()
    if home.elsewhere.exists():
        kind = home.elsewhere.read_text().strip()
        raise StateError(f"the jobs of {home.root} are in {kind}, not here; their server removes what may go by itself")
    store = Store(f"sqlite:///{home.database}")
    try:
        return (list_garbage if dry_run else collect)(
            home, store, time.time(), read_config(home, ServerOptions()).keep_days
        )
    finally:
        store.close()


def du(limit: int = typer.Option(20, min=1, help="At most so many lines."), output: OutputOption = OUTPUT) -> None:
    """Show what takes space in the state directory, largest first.

    Example:

      springtide du
    """
    from springtide.control.storage.housekeeping import list_usage
    from springtide.control.storage.state_dir import find_home

    home = find_home().make()
    pieces = list_usage(home)
    total = sum(piece.bytes for piece in pieces)
    if output.write({"schema": 1, "home": str(home.root), "bytes": total, "pieces": describe(pieces)}):
        return
    print_pieces(pieces[:limit])
    print(f"{total / 1e6:.1f} MB in {home.root}; free some with: springtide gc")


def describe(pieces: "list[Removable]") -> list[dict[str, Any]]:
    """What takes space, for JSON."""
    return [{"kind": one.kind, "path": str(one.path), "bytes": one.bytes} for one in pieces]


def print_pieces(pieces: "list[Removable]", empty: str = "") -> None:
    """What takes space, a line each."""
    rows = ((one.kind, f"{one.bytes / 1e6:.1f}", str(one.path)) for one in pieces)
    print_table(("WHAT", "MB", "WHERE"), rows, empty)
