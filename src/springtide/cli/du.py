"""`springtide du`: what takes space."""

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, print_table


def run(
    limit: int = typer.Option(20, min=1, help="At most so many lines."),
    output: OutputOption = OUTPUT,
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
    listed = [{"kind": one.kind, "path": str(one.path), "bytes": one.bytes} for one in pieces]
    if output.write({"schema": 1, "home": str(home.root), "bytes": total, "pieces": listed}):
        return
    print_table(
        ("WHAT", "MB", "WHERE"), ((one.kind, f"{one.bytes / 1e6:.1f}", str(one.path)) for one in pieces[:limit])
    )
    print(f"{total / 1e6:.1f} MB in {home.root}; free some with: springtide gc")
