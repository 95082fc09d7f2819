"""Every command has an example, the reference is what the code says, and shells can complete both."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.control.http_servers import connect, run_server, write_project

from springtide.cli.app import VERBS, add_verb, main
from springtide.cli.connections import complete_job
from springtide.cli.reference import list_commands, split_help, write_reference

ROOT = Path(__file__).parents[2]
PAGE, SOURCE = ROOT / "docs" / "cli.md", ROOT / "src"
SPRINGTIDE = str(Path(sys.executable).with_name("springtide"))


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_reference(), "make reference"


def read_sentences(path: Path) -> Iterator[str]:
    """The texts in a module; of one with values in it, what stands between them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_an_option_that_a_sentence_of_ours_names_exists() -> None:
    """A remedy for hosts without the home was an option that `serve` never had."""
    sections = dict(re.findall(r"^## springtide (\w+)\n(.*?)(?=^## |\Z)", write_reference(), flags=re.M | re.S))
    sentences = (one for path in sorted(SOURCE.rglob("*.py")) for one in read_sentences(path))
    named = (found for one in sentences for found in re.findall(r"springtide (\w+)((?: [^\s`;,)'\"&|]+)*)", one))
    options = {(verb, option) for verb, rest in named for option in re.findall(r"--[a-z][a-z-]+", rest)}
    assert len(options) > 20
    assert [one for one in options if one[0] in sections and one[1] not in sections[one[0]]] == []


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
        said = capsys.readouterr().out
        assert "_SPRINGTIDE_COMPLETE=complete_" in said and "_tide_completion" in said.replace(
            "--command tide", "_tide_completion"
        )


def test_names_of_jobs_are_completed_and_without_a_server_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPRINGTIDE_URL", raising=False)
    with run_server(tmp_path) as server, connect(server) as client:
        monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
        client.submit(write_project(tmp_path / "work", name="digits-cnn", hold=True))
        asked = {"COMP_WORDS": "tide logs dig", "COMP_CWORD": "2", "_SPRINGTIDE_COMPLETE": "complete_bash"}
        said = subprocess.run([SPRINGTIDE], env={**os.environ, **asked}, capture_output=True, text=True).stdout
    assert said.split() == ["digits-cnn"]
    monkeypatch.setenv("SPRINGTIDE_HOME", str(tmp_path / "nobody"))
    assert complete_job("dig") == []


def test_every_target_of_the_makefile_is_phony() -> None:
    text = (PAGE.parents[1] / "Makefile").read_text(encoding="utf-8")
    phony = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    assert set(re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.MULTILINE)) <= set(phony)
