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

import pytest
from tests.control.http_servers import SLOW, connect, run_server, write_project

from springtide.cli.app import main
from springtide.cli.job_table import COLUMNS, LAST, JobFilter, JobOrder, make_table, show_plan, sort_jobs
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
    assert "is no state of a job; there are: probing" in capsys.readouterr().err
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
    assert (told["reason"], told["exit_code"]) == ("input", 2) and "there is no job 'nothing'" in told["sentence"]
    assert run("ps", "--limit", "0", "--output=json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "usage"
    assert run("ps", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == []
