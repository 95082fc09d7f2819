"""`springtide backup`, `restore`, `gc` and `du`: the verbs that keep the state directory in order."""

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copy2
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, print_table, tell
from springtide.errors import InputError, StateError

if TYPE_CHECKING:
    from springtide.control.storage.housekeeping import Removable
    from springtide.control.storage.state_dir import StateDir
    from springtide.control.storage.store import Store

REPAIR = "springtide doctor --repair"
LOOK = "springtide gc --orphans"
LEGEND = (
    "code: what jobs were sent with; probe: left by a measurement; orphan: of a job that is not in the database; "
    "MB: 10^6 bytes"
)


def backup(
    file: Path = typer.Argument(metavar="FILE", help="Where to write the copy."), output: OutputOption = OUTPUT
) -> None:
    """Copy the database by SQLite's online backup; a server may run meanwhile.

    Example:

      springtide backup springtide-monday.db
    """
    from springtide.control.storage.database.database_migrations import back_up
    from springtide.control.storage.state_dir import find_home

    home = find_home()
    if not home.database.exists():
        raise StateError(f"there is no database in {home.root}; nothing to back up")
    if file.is_dir() or not file.absolute().parent.is_dir():
        problem = "it is a folder" if file.is_dir() else "its folder does not exist"
        raise InputError(f"cannot write {file}: {problem}; give the path of a new file")
    if file.exists():
        raise InputError(f"{file} exists and is not overwritten; give the path of a new file, or move that one away")
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

    The folders of jobs that the backup does not know stay; doctor --repair makes jobs of them again.

    Example:

      springtide stop && springtide restore springtide-monday.db
    """
    from springtide.control.server import hold_lock
    from springtide.control.storage.database.database_migrations import back_up
    from springtide.control.storage.orphans import find_orphans
    from springtide.control.storage.state_dir import find_home

    check_backup(file)
    home = find_home().make()
    with hold_lock(home):
        kept = home.database.with_name("springtide.db.before-restore")
        if home.database.exists():
            keep_database(home.database, kept)
        for suffix in ("-wal", "-shm"):
            home.database.with_name(home.database.name + suffix).unlink(missing_ok=True)
        back_up(file, home.database)
        unknown = len(find_orphans(home, read_ids(home.database)))
    told = {"database": str(home.database), "kept": str(kept) if kept.exists() else None, "unknown_jobs": unknown}
    if not output.write({"schema": 1, **told}):
        print(f"restored {home.database}" + (f"; the old one is {kept}" if kept.exists() else ""))
        if unknown:
            print(f"it does not know {unknown} jobs whose folders are here; take them back with: {REPAIR}")


def keep_database(database: Path, kept: Path) -> None:
    """Copy a database that is about to be replaced: by SQLite, or file by file if it is damaged."""
    from springtide.control.storage.database.database_migrations import back_up

    try:
        back_up(database, kept)
    except sqlite3.Error:
        for suffix in ("", "-wal", "-shm"):
            part = database.with_name(database.name + suffix)
            if part.exists():
                copy2(part, kept.with_name(kept.name + suffix))


def read_ids(database: Path) -> set[str]:
    """The ids of the jobs that a database knows, of whatever version it is."""
    with closing(sqlite3.connect(database)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone() is None:
            return set()
        return {str(job_id) for (job_id,) in connection.execute("SELECT id FROM jobs")}


def check_backup(file: Path) -> None:
    """Refuse what is not a database of ours, or damaged, or of a newer springtide."""
    from springtide.control.storage.database.database_checks import find_damage
    from springtide.control.storage.database.database_migrations import VERSION

    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (version,) = connection.execute("SELECT version FROM schema_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise InputError(f"{file} is not a backup of a springtide database ({error})") from None
    damage = find_damage(file)
    if damage:
        raise InputError(f"{file} is damaged ({damage}); restore an older backup")
    if version > VERSION:
        raise InputError(
            f"{file} is of version {version}, this springtide knows up to {VERSION}; install the newer springtide again"
        )


def gc(
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would be removed."),
    orphans: bool = typer.Option(
        False, "--orphans", help="Show the folders of jobs that the database does not know, and remove them when told."
    ),
    yes: bool = typer.Option(False, "--yes", help="With --orphans: remove them without asking."),
    output: OutputOption = OUTPUT,
) -> None:
    """Remove old checkpoints, probes, code without jobs, and jobs that ended 90 days ago, as a server does every hour.

    Folders of jobs that the database does not know may hold somebody's only weights. They go with --orphans alone.

    Examples:

      springtide gc --dry-run

      springtide gc --orphans
    """
    from springtide.control.storage.housekeeping import list_orphans

    pieces = remove_orphans(dry_run, yes, output) if orphans else remove_garbage(dry_run)
    total = sum(piece.bytes for piece in pieces)
    if output.write({"schema": 1, "dry_run": dry_run, "bytes": total, "removed": describe(pieces)}):
        return
    if not orphans:
        print_pieces(pieces, "nothing to remove")
    if pieces:
        print(f"{'would free' if dry_run else 'freed'} {total / 1e6:.1f} MB")
    if not orphans:
        with open_store() as (home, store):
            count = sum(one.kind == "orphan" for one in list_orphans(home, store))
        if count:
            tell(f"{count} folders of jobs that the database does not know stay; see them with: {LOOK}")


@contextmanager
def open_store() -> "Iterator[tuple[StateDir, Store]]":
    """The state directory and its store, if the jobs are in it."""
    from springtide.control.storage.database.database_checks import check_database
    from springtide.control.storage.state_dir import find_home
    from springtide.control.storage.store import Store

    home = find_home().make()
    if home.elsewhere.exists():
        kind = home.elsewhere.read_text().strip()
        raise StateError(f"the jobs of {home.root} are in {kind}, not here; their server removes what may go by itself")
    check_database(home.database)
    store = Store(f"sqlite:///{home.database}")
    try:
        yield home, store
    finally:
        store.close()


def remove_garbage(dry_run: bool) -> "list[Removable]":
    """What may go, and unless it is only asked for, has gone."""
    from springtide.control.scheduling.server_context import ServerOptions
    from springtide.control.server_config import read_config
    from springtide.control.storage.housekeeping import collect, list_garbage

    with open_store() as (home, store):
        keep_days = read_config(home, ServerOptions()).keep_days
        return (list_garbage if dry_run else collect)(home, store, time.time(), keep_days)


def remove_orphans(dry_run: bool, yes: bool, output: OutputOption) -> "list[Removable]":
    """What the database does not know, shown, and gone if that is confirmed."""
    from springtide.control.storage.housekeeping import list_orphans, may_still_go, remove_all

    with open_store() as (home, store):
        pieces = list_orphans(home, store)
        if output is not OutputOption.JSON:
            print_pieces(pieces, "there is nothing that the database does not know")
        if dry_run or not pieces:
            return pieces
        if not yes and not (sys.stdin.isatty() and typer.confirm(f"remove these {len(pieces)} for good?")):
            raise InputError(
                f"nothing was removed; take the jobs back with: {REPAIR}, or remove them with: {LOOK} --yes"
            )
        pieces = [one for one in pieces if may_still_go(store, one, since_s=0.0)]  # the answer may have taken minutes
        remove_all(home, pieces)
    return pieces


def du(
    limit: int = typer.Option(20, min=1, help="Show at most this many lines."), output: OutputOption = OUTPUT
) -> None:
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
    print_table(("WHAT", "MB", "WHERE"), rows, empty, legend=LEGEND)
