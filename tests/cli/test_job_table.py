"""Jobs as a table: as many columns as fit, names whole, filters, order; errors as JSON; cancelling many at once."""

import json
import os
import pty
import re
import select
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.control.http_servers import SLOW, connect, run_server, write_project

from springtide.cli.app import main
from springtide.cli.job_table import (
    COLUMNS,
    LAST,
    JobFilter,
    JobOrder,
    JobsSeen,
    draw_seen,
    make_table,
    show_plan,
    sort_jobs,
)
from springtide.client.client import Client
from springtide.client.replies import JobInfo
from springtide.errors import InputError


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with run_server(tmp_path) as server, connect(server) as client:
        monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
        monkeypatch.setenv("SPRINGTIDE_URL", server.url)
        yield client


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with run_server(tmp_path, job=SLOW) as server, connect(server) as client:
        monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
        monkeypatch.setenv("SPRINGTIDE_URL", server.url)
        yield client


def submit(client: Client, folder: Path, name: str, **keys: object) -> JobInfo:
    return client.submit(write_project(folder / name, name=name, **keys))


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


LONG = "a-name-that-somebody-thought-about-for-long"


def show_in_terminal(monkeypatch: pytest.MonkeyPatch, width: int, *words: str) -> list[str]:
    """What a command writes on a terminal of this width, as lines without colours."""
    ours, terminal = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(width))
    with os.fdopen(terminal, "w") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert run(*words) == 0
        shown = b""
        while select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 1 << 16)
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_whole_names_in_lines_that_fit(
    slow: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    jobs = [submit(slow, tmp_path, name, devices=1) for name in ("short", LONG)]
    for job in jobs:
        slow.wait(job, lambda found: found.state == "running")
    for words in (["ps"], ["top", "--once"], ["nodes"], ["usage", "--by", "job"], ["events"]):
        lines = show_in_terminal(monkeypatch, width, *words)
        assert [line for line in lines if len(line) > width] == [], words
        assert any(LONG in line for line in lines), (words, lines)
    assert any(LONG in line for line in show_in_terminal(monkeypatch, width, "status", LONG))


def test_sixty_characters_hold_whole_names(client: Client, tmp_path: Path) -> None:
    jobs = [client.wait(submit(client, tmp_path, name, deadline="10m")) for name in ("short", LONG)]
    table = make_table(COLUMNS, jobs)
    for width in (60, 80, 120):
        fitting = table.fit(width)
        lines = list(fitting.draw())
        assert all(len(line) <= width for line in lines)
        assert LONG in lines[2] and lines[0].startswith(fitting.headings[0])
    assert {"NAME", "STATE"} <= set(table.fit(60).headings)
    assert table.fit(20).headings == ["NAME"], "a name however long it is"
    wide = make_table([*COLUMNS, *LAST], [replace(jobs[0], weights_sha256="0f" * 32)])
    assert "0f" * 32 in list(wide.draw())[1], "of the weights, `ps -o wide` shows the whole hash"


def test_jobs_are_filtered_and_sorted(client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, deadline in (("b", "2h"), ("a", "3h"), ("c", None)):
        client.wait(submit(client, tmp_path, name, **({"deadline": deadline} if deadline else {})))
    jobs = client.jobs(all=True)
    assert [job.name for job in sort_jobs(jobs, JobOrder.SUBMITTED)] == ["c", "a", "b"]
    assert [job.name for job in sort_jobs(jobs, JobOrder.NAME)] == ["a", "b", "c"]
    assert [job.name for job in sort_jobs(jobs, JobOrder.DEADLINE)] == ["b", "a", "c"]
    assert [job.name for job in JobFilter(state=["succeeded"]).find(client, False, 2)] == ["c", "a"]
    assert JobFilter(user="nobody").find(client, True, 100) == []
    assert show_plan(jobs[0]) == "-"
    assert run("ps", "--state", "nonsense") == 2
    assert "is not a state of a job; there are: probing" in capsys.readouterr().err
    assert run("ps", "-a", "-o", "wide") == 0
    assert "WEIGHTS (SHA-256)" in capsys.readouterr().out


def test_jobs_are_watched_until_interrupted(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.wait(submit(client, tmp_path, "first"))
    looks: list[float] = []

    def go_on(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt
        client.wait(submit(client, tmp_path, "second"))

    monkeypatch.setattr("springtide.cli.job_table.time", SimpleNamespace(sleep=go_on))
    assert run("ps", "--all", "--watch", "0.5") == 130
    assert looks == [0.5, 0.5] and "second" in capsys.readouterr().out


def test_what_is_watched_has_its_legend_its_notes_and_every_column_that_was_asked_for(
    client: Client, tmp_path: Path
) -> None:
    job = client.wait(submit(client, tmp_path, "first", deadline="10m"))
    seen = JobsSeen([job], {"standstill": "nothing is decided now", "outage": None})
    plain, wide = draw_seen(seen, False, "none").plain, draw_seen(seen, True, "none").plain
    assert "SLACK: between the expected end and the deadline" in plain and plain.endswith("nothing is decided now")
    assert "WEIGHTS (SHA-256)" not in plain and "WEIGHTS (SHA-256)" in wide
    assert draw_seen(JobsSeen([], {}), False, "no jobs").plain == "no jobs"


def test_who_has_no_jobs_is_told_how_to_have_one(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ps", "-a") == 0
    assert "there are no jobs yet; submit one with: springtide submit" in capsys.readouterr().out
    assert run("ps", "-a", "--user", "nobody") == 0
    assert "no such jobs" in capsys.readouterr().out


def test_all_jobs_are_looked_at_however_many_there_are_and_states_are_asked_of_the_server(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [submit(client, tmp_path, f"held-{number}", hold=True, labels={"a": "b"}) for number in range(3)]
    client.wait(submit(client, tmp_path, "done"))
    monkeypatch.setattr("springtide.cli.job_table.MOST_PER_PAGE", 2)
    asked: list[dict[str, object]] = []
    ask = client.ask

    def note(method: str, path: str, **options: Any) -> dict[str, Any]:
        asked.append(options["params"])
        return ask(method, path, **options)

    monkeypatch.setattr(client, "ask", note)
    assert [job.id for job in JobFilter(label=["a=b"]).find(client, False, None)] == [job.id for job in held[::-1]]
    assert len(asked) == 2
    assert [job.name for job in JobFilter(state=["succeeded"], user="nobody").find(client, False, 5)] == []
    assert asked[-1] == {"state": ["succeeded"], "limit": 5, "user": "nobody"}


def test_an_array_is_one_line_at_sixty_columns(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_project(tmp_path / "sw", name="learning-rates", hold=True, sweep={"grid": {"lr": [1, 2, 3]}})
    client.submit_array(path)
    lines = show_in_terminal(monkeypatch, 60, "ps")
    (line,) = (line for line in lines if "learning-rates" in line)
    assert "3 paused" in line and max(map(len, lines)) <= 60


def test_labels_choose_and_a_label_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match="--label 'team' has no value; write it as NAME=VALUE"):
        JobFilter(label=["team"]).check()


def test_all_jobs_are_cancelled_only_when_that_is_said(
    slow: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = slow
    for name in ("one", "two", "three"):
        submit(client, tmp_path, name, labels={"paper": "iclr"} if name == "two" else {})
    assert run("cancel") == 2 and "cancel was given no job" in capsys.readouterr().err
    assert run("cancel", "one", "--all") == 2
    assert run("cancel", "--all") == 2 and "say so with --yes" in capsys.readouterr().err
    assert run("cancel", "--all", "--user", "nobody", "--yes") == 0
    assert len(client.jobs()) == 3
    assert run("cancel", "--all", "--label", "paper=iclr", "--yes") == 0
    assert {job.name for job in client.jobs()} == {"one", "three"}
    assert run("cancel", "--all", "--yes") == 0
    assert client.jobs() == []


def test_an_error_is_a_document_for_programs(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("why", "nothing", "-o", "json") == 2
    told = json.loads(capsys.readouterr().out)["error"]
    assert (told["reason"], told["exit_code"]) == ("missing", 2) and "there is no job 'nothing'" in told["sentence"]
    assert run("ps", "--limit", "0", "--output=json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "usage"
    assert run("ps", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == []
