"""`springtide backup`: copy the database while it is in use."""

import sqlite3
from pathlib import Path

import typer

from springtide.cli.outputs import OUTPUT, OutputOption
from springtide.errors import InputError, StateError


def run(
    file: Path = typer.Argument(metavar="FILE", help="Where to write the copy."),
    output: OutputOption = OUTPUT,
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
