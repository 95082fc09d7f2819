"""Options in groups: typer sees each of them, the command gets its groups."""

from dataclasses import dataclass
from pathlib import Path

import typer
from typer.testing import CliRunner

from springtide.cli.option_groups import flatten, option


@dataclass(frozen=True, slots=True)
class Sizes:
    """A group."""

    files: list[Path] = option([], "Files.", "--file", metavar="FILE")
    most: int = option(3, "At most.", min=1)
    quiet: bool = option(False, "Say nothing.", "--quiet")


seen: list[tuple[str, Sizes]] = []


@flatten
def measure(sizes: Sizes, name: str = typer.Argument(help="Whose.")) -> None:
    """Measure."""
    seen.append((name, sizes))


app = typer.Typer()
app.command()(measure)


def test_values_reach_the_command_in_their_groups() -> None:
    seen.clear()
    assert CliRunner().invoke(app, ["ann", "--file", "a", "--file", "b", "--most", "7", "--quiet"]).exit_code == 0
    assert CliRunner().invoke(app, ["bob"]).exit_code == 0
    assert seen == [("ann", Sizes([Path("a"), Path("b")], 7, True)), ("bob", Sizes())]


def test_rules_names_and_help_are_those_of_the_options() -> None:
    assert CliRunner().invoke(app, ["ann", "--most", "0"]).exit_code == 2
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Measure." in shown and "--file" in shown and "At most." in shown
