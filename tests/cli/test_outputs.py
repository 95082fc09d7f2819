"""Where results go: reports and texts in files or on stdout, and pictures that are refused before anything runs."""

import json
from pathlib import Path

import pytest
import typer

from springtide.cli.app import VERBS, build_app
from springtide.cli.outputs import (
    OutputForm,
    OutputOption,
    check_picture,
    clean_log,
    print_table,
    say,
    tell,
    write_text,
)
from springtide.errors import InputError


def test_a_report_goes_where_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    assert not OutputForm(json_file=str(file)).write({"schema": 1})
    assert json.loads(file.read_text(encoding="utf-8")) == {"schema": 1}
    assert capsys.readouterr().out == ""
    assert OutputForm(json_file="-").write({"schema": 1})
    assert OutputOption.JSON.write({"schema": 1})
    assert capsys.readouterr().out == 2 * '{\n  "schema": 1\n}\n'


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory; give a path in a folder"):
        write_text("x", str(tmp_path / "none" / "x.yaml"))


def test_unwritable_pictures_are_refused(tmp_path: Path) -> None:
    check_picture(tmp_path / "x.png")
    with pytest.raises(InputError, match=r"'\.txt'; it must be one of \.png"):
        check_picture(tmp_path / "x.txt")
    with pytest.raises(InputError, match="does not exist"):
        check_picture(tmp_path / "none" / "x.png")


REPORTS = {"demo", "doctor", "plan", "simulate", "throughput evaluate", "throughput fit", "verify"}


#: Whose stdout is not ours: a shell's, a command's, a protocol's, that of Ray.
NOT_OURS = {"shell", "exec", "mcp", "join"}


def list_options(verb: str) -> dict[str, set[str]]:
    """The options of a verb, or of each command below it."""
    command = typer.main.get_command(build_app(verb))
    assert hasattr(command, "commands")
    found = command.commands[verb]
    below = getattr(found, "commands", {})
    every = {f"{verb} {name}": one for name, one in below.items()} or {verb: found}
    return {name: {option for parameter in one.params for option in parameter.opts} for name, one in every.items()}


@pytest.mark.parametrize("verb", sorted(set(VERBS) - NOT_OURS))
def test_every_command_takes_o_json_and_every_report_json(verb: str) -> None:
    for name, options in list_options(verb).items():
        assert {"-o", "--output"} <= options, name
        assert ("--json" in options) == (name in REPORTS), name


EVIL = "\x1b]0;title\x07\x1b[2Jx\x9b31m\u202ey\ud800"


def test_words_of_jobs_are_told_to_the_terminal_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    for show in (say, tell, lambda text: print_table(("A",), [(text,)], width=200)):
        show(f"{EVIL} [/b] [red]z[/]")
        shown = "".join(capsys.readouterr())
        assert not set("\x1b\x07\x9b\u202e\ud800") & set(shown)
        assert r"\x1b]0;title\x07\x1b[2Jx\x9b31m\u202ey\ud800 [/b] [red]z[/]" in shown


def test_a_log_keeps_its_colours_and_progress_bars_on_a_terminal_and_nothing_else() -> None:
    harmless = "\x1b[1;31mred\x1b[0m\r 50%\x1b[K\tdone\n"
    assert clean_log(harmless) == harmless
    assert clean_log(f"{harmless}{EVIL}\x1b") == harmless + r"\x1b]0;title\x07\x1b[2Jx\x9b31m\u202ey\ud800\x1b"
