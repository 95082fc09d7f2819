"""`springtide gc`: remove what no job needs any more."""

import time
from typing import TYPE_CHECKING

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, print_table
from springtide.errors import StateError

if TYPE_CHECKING:
    from springtide.control.storage.housekeeping import Removable


def run(
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would go."),
    output: OutputOption = OUTPUT,
) -> None:
    """Remove old checkpoints, probes, code without jobs, and jobs that ended 90 days ago, as a server does every hour.

    Example:

      springtide gc --dry-run
    """
    pieces = remove_garbage(dry_run)
    total = sum(piece.bytes for piece in pieces)
    listed = [{"kind": one.kind, "path": str(one.path), "bytes": one.bytes} for one in pieces]
    if output.write({"schema": 1, "dry_run": dry_run, "bytes": total, "removed": listed}):
        return
    rows = ((one.kind, f"{one.bytes / 1e6:.1f}", str(one.path)) for one in pieces)
    print_table(("WHAT", "MB", "WHERE"), rows, "nothing to remove")
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
