"""Where results go: reports and texts in files or on stdout, and pictures that are refused before anything runs."""

import json
import re
from pathlib import Path

import pytest
import typer

import springtide.cli
from springtide.cli.app import VERBS, build_app, main
from springtide.cli.outputs import (
    OutputForm,
    OutputOption,
    check_picture,
    clean_log,
    fold,
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


def test_a_legend_is_for_people_and_keeps_its_words_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    legend = "PLANNED WITH: the steps/s that a promise counts on; ALONE: with nobody else here"
    print_table(("A",), [("1",)], legend=legend)
    assert capsys.readouterr().err == "", "who reads a pipe is a program"
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(("A",), [("1",)], legend=legend)
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(lines) == legend and max(map(len, lines)) <= 30


#: Modules with tables whose headings and cells are plain words: a path, a size, a step.
PLAIN_TABLES = {"fetch", "ls", "new", "receipt", "job_views"}


def test_every_table_that_needs_a_legend_has_one() -> None:
    folder = Path(springtide.cli.__path__[0])
    drawing = re.compile(r"\b(print_table|print_fitting|print_told|print_rich)\(|[^t]Table\(")
    drawn = {path.stem: path.read_text() for path in folder.glob("*.py") if drawing.search(path.read_text())}
    without = {name for name, text in drawn.items() if "legend" not in text.lower()}
    assert without == PLAIN_TABLES


def test_what_is_said_in_a_terminal_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "  - promised to finish by 2026-11-18T00:16:16Z; let it go: springtide release digits-cnn"
    say(line)
    assert capsys.readouterr().out == line + "\n", "a pipe gets lines as they are"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say(line)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(one.strip() for one in lines) == line.strip()
    assert max(map(len, lines)) <= 40 and all(one.startswith("    ") for one in lines[1:])


def test_nothing_in_a_narrow_table_is_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/somewhere/a-folder-with-a-long-name/and-a-file.log"
    print_table(("CHECK", "SEEN"), [("server", path)], width=30)
    shown = capsys.readouterr().out
    assert "…" not in shown and path in "".join(line[6:].strip() for line in shown.splitlines()[1:])


def test_brackets_in_help_are_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("mcp", "stack"):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert f"springtide[{verb}]" in "".join(capsys.readouterr().out.split())


def test_a_command_at_the_end_of_a_long_line_stays_whole() -> None:
    command = "SPRINGTIDE_HOME=/tmp/springtide-demo-1/state .venv/bin/springtide stop"
    lines = fold(f"the board of what has just run stays up in the background; end it with: {command}", 40)
    assert lines[-1] == f"  {command}" and len(lines) > 2 and all(len(line) <= 40 for line in lines[:-1])
    plain = fold("words and words: more of them, none of which is to be typed by anybody at all", 40)
    assert all(len(line) <= 40 for line in plain)
