"""`springtide gc`: remove what no job needs any more."""

import time

import typer

from springtide.cli.outputs import OUTPUT, Output, print_table, write_json


def run(
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would go."),
    output: Output = OUTPUT,
) -> None:
    """Remove old checkpoints, probes, code without jobs, and jobs that ended 90 days ago.

    Example:

      springtide gc --dry-run
    """
    from springtide.control.homes import find_home
    from springtide.control.housekeeping import collect, list_garbage
    from springtide.control.store import Store

    home = find_home().make()
    store = Store(f"sqlite:///{home.database}")
    pieces = (list_garbage if dry_run else collect)(home, store, time.time())
    store.close()
    total = sum(piece.bytes for piece in pieces)
    if output is Output.JSON:
        listed = [{"kind": one.kind, "path": str(one.path), "bytes": one.bytes} for one in pieces]
        write_json({"schema": 1, "dry_run": dry_run, "bytes": total, "removed": listed})
        return
    rows = ((one.kind, f"{one.bytes / 1e6:.1f}", str(one.path)) for one in pieces)
    print_table(("WHAT", "MB", "WHERE"), rows, "nothing to remove")
    if pieces:
        print(f"{'would free' if dry_run else 'freed'} {total / 1e6:.1f} MB")
