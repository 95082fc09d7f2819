"""Every command has an example, the reference is what the code says, and shells can complete both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from springtide.cli.app import VERBS, add_verb, main
from springtide.cli.reference import list_commands, split_help, write_reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
SPRINGTIDE = str(Path(sys.executable).with_name("springtide"))


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_reference(), "make reference"


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_an_example(verb: str) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    add_verb(app, verb, *VERBS[verb])
    group = typer.main.get_command(app)
    for path, command in list_commands((verb,), group.commands[verb]):  # type: ignore[attr-defined]
        assert any(line.startswith("springtide ") for line in split_help(command.help)[1]), path


@pytest.mark.parametrize(
    ("words", "at", "expected"), [("springtide lo", "1", "logs"), ("springtide logs --al", "2", "--all-ranks")]
)
def test_bash_completes_commands_and_their_options(words: str, at: str, expected: str) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": at, "_SPRINGTIDE_COMPLETE": "complete_bash"}
    said = subprocess.run([SPRINGTIDE], env={**os.environ, **asked}, capture_output=True, text=True).stdout
    assert said.split() == [expected]


def test_the_script_for_a_shell_names_us(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        with pytest.raises(SystemExit):
            main(["completion", shell])
        assert "_SPRINGTIDE_COMPLETE=complete_" in capsys.readouterr().out
