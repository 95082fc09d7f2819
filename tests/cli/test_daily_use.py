"""The commands of daily use against a real server: sweeps, holds, changes at submission, words that stay true."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_platform import run, run_json
from tests.control.http_servers import OPTIONS, run_server, write_project

from springtide.cli import doctor
from springtide.client.client import Client
from springtide.client.replies import JobInfo
from springtide.control.api.documents import write_event
from springtide.control.server import Server
from springtide.executors.local.jobs.worker_logs import JobLogs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("daily"), replace(OPTIONS, prices={"fake": 3600.0})) as server:
        yield server


@pytest.fixture(autouse=True)
def home(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
    monkeypatch.delenv("SPRINGTIDE_URL", raising=False)


def test_any_key_and_any_variable_is_changed_at_submission(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = write_project(tmp_path, name="settings")
    words = ("submit", job, "--set", "labels.team=vision", "--set", "steps=5", "--env", "LR=0.1")
    code, answer = run_json(capsys, *words)
    assert (code, answer["labels"], answer["spec"]["steps"], answer["spec"]["env"]) == (
        0,
        {"team": "vision"},
        5,
        {"LR": "0.1"},
    )
    assert run("submit", job, "--set", "deadlin=2h") == 2
    assert "did you mean 'deadline'?" in capsys.readouterr().err


def test_a_sweep_is_one_line_and_is_ended_as_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = write_project(tmp_path, name="sweeping", hold=True, sweep={"grid": {"lr": [1, 2], "seed": [1, 2, 3]}})
    assert run("submit", job) == 3
    assert "sweeping (" in capsys.readouterr().out
    assert run("ps") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "sweeping" in line]
    assert len(lines) == 1 and "6 paused" in lines[0] and "array of 6" in lines[0]
    assert "0/0" not in lines[0], "nobody knows their steps yet"
    _code, listed = run_json(capsys, "ps")
    assert sum(one["array"] is not None for one in listed["jobs"]) == 6
    assert run("cancel", "--array", "sweeping") == 0
    told = capsys.readouterr().out
    assert told.count("cancelled") >= 6 and "springtide resume" in told


def test_a_held_sweep_is_released_held_and_resumed_as_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = write_project(tmp_path, name="held-sweep", hold=True, sweep={"grid": {"lr": [1, 2]}})
    assert run("submit", job) == 3
    told = capsys.readouterr().out
    assert "an array of 2 jobs: 2 paused" in told and "2 x it was submitted with hold: true" in told
    assert "springtide release --array held-sweep" in told
    assert run("cancel", "--array", "held-sweep") == 0
    assert "springtide resume --array held-sweep" in capsys.readouterr().out
    assert run("release", "--array", "held-sweep") == 2
    assert "array 'held-sweep' has no job that is held" in capsys.readouterr().err
    assert run("submit", job) == 3
    assert run("release", "--array", "held-sweep") == 0
    assert run("submit", job) == 3
    assert run("cancel", "--array", "held-sweep") == 0
    code, resumed = run_json(capsys, "resume", "--array", "held-sweep")
    assert (code, len(resumed["jobs"])) == (0, 2) and all(one["state"] != "cancelled" for one in resumed["jobs"])


def test_a_sweep_that_waits_is_held_as_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("submit", write_project(tmp_path / "first", name="comes-first", hold=True)) == 3
    job = write_project(tmp_path / "sweep", name="comes-later", after="comes-first", sweep={"grid": {"lr": [1, 2]}})
    assert run("submit", job) == 3
    capsys.readouterr()
    code, held = run_json(capsys, "hold", "--array", "comes-later")
    assert (code, [one["state"] for one in held["jobs"]]) == (0, ["paused", "paused"])
    code, released = run_json(capsys, "release", "--array", "comes-later")
    assert (code, [one["state"] for one in released["jobs"]]) == (0, ["waitlisted", "waitlisted"])
    for name in ("--array", "comes-later"), ("comes-first",):
        assert run("cancel", *name) == 0


def test_of_several_jobs_of_a_name_the_one_is_meant_with_which_it_can_be_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = write_project(tmp_path, name="twins", hold=True)
    _, first = run_json(capsys, "submit", job)
    assert run("cancel", "twins") == 0
    assert "springtide resume twins" in capsys.readouterr().out
    run_json(capsys, "submit", job)
    assert run("why", first["id"]) == 0
    assert f"start it again with: springtide resume {first['id']}" in capsys.readouterr().out
    assert run("release", "twins") == 0
    with Client() as client:
        client.wait("twins", lambda one: one.ended)
    capsys.readouterr()
    code, resumed = run_json(capsys, "resume", "twins")
    assert (code, resumed["jobs"][0]["id"]) == (0, first["id"]), "the newer one has succeeded"


def test_the_plan_of_a_sweep_shows_all_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sweep = {"grid": {"lr": [1, 2], "seed": list(range(15))}}
    job = write_project(tmp_path, name="planned-sweep", run="python train.py", steps=100, deadline="1h", sweep=sweep)
    code, plan = run_json(capsys, "plan", job, "--probe")
    assert (code, plan["answer"]) == (0, "admitted")
    assert len(plan["sweep"]["cases"]) == 30 and plan["sweep"]["cases"][-1] == {"lr": "2", "seed": "14"}
    assert plan["sweep"]["cost_usd"] == pytest.approx(30 * plan["cost_usd"])
    assert run("plan", job) == 0
    told = capsys.readouterr().out
    assert "a sweep of 30 jobs" in told and "20: lr=2  seed=4" in told and "and 10 more" in told
    assert "all 30, if each goes like the first: at least" in told


def test_files_that_wait_for_each_other_are_refused_and_others_go_in_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = [write_project(tmp_path / name, name=name, after=other) for name, other in (("one", "two"), ("two", "one"))]
    assert run("submit", *paths) == 2
    assert "in a circle: one -> two -> one" in capsys.readouterr().err
    first = write_project(tmp_path / "first", name="first-of-two")
    second = write_project(tmp_path / "second", name="second-of-two", after="first-of-two")
    _code, answer = run_json(capsys, "submit", second, first)
    assert [one["name"] for one in answer["answers"]] == ["first-of-two", "second-of-two"]
    with Client() as client:
        assert client.wait("second-of-two").state == "succeeded"


def test_a_job_is_held_and_released(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = write_project(tmp_path, name="holding", hold=True)
    assert run_json(capsys, "submit", job)[1]["state"] == "paused"
    assert run("release", "holding") == 0
    with Client() as client:
        assert client.wait("holding").state == "succeeded"
    assert run("hold", "holding") == 2
    assert "only jobs that wait or run can be held" in capsys.readouterr().err


def test_a_plan_says_what_would_be_and_leaves_nothing_to_see(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = write_project(tmp_path, name="planned", deadline="10m", env={"ONLY": "plan"})
    assert run("plan", job, "--probe") == 0
    assert capsys.readouterr().out.startswith("would be promised to finish by")
    names = [one["name"] for one in run_json(capsys, "ps", "--all")[1]["jobs"]]
    assert not any("planned" in name for name in names)
    code, plan = run_json(capsys, "plan", job, "--set", "deadline=1s")
    assert code == 3 and plan["sentence"].startswith("would be declined: ")


def test_an_interrupted_submit_says_that_the_job_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(client: Client, *_: object, **__: object) -> JobInfo:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", interrupt)
    job = write_project(tmp_path, name="interrupted", deadline="10m", env={"ONLY": "interrupted"})
    assert run("submit", job) == 130
    told = capsys.readouterr().err
    assert "goes on without you" in told and "end it with: springtide cancel" in told


def test_cancelling_says_how_to_go_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("submit", write_project(tmp_path, name="ending", hold=True))
    capsys.readouterr()
    assert run("cancel", "ending") == 0
    assert "let them go on with: springtide resume ending" in capsys.readouterr().out, "it never ran"


def test_what_is_wrong_is_named_as_it_was_typed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("usage", "--since", "3x") == 2
    assert "--since '3x' is not a span" in capsys.readouterr().err
    run("submit", write_project(tmp_path, name="sw", hold=True, sweep={"grid": {"lr": [1, 2]}}))
    assert run("logs", "sw") == 2
    assert "'sw' is an array of several jobs; name one, as in sw-1" in capsys.readouterr().err


def test_one_file_is_one_file(server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Client() as client:
        job = client.wait(client.submit(write_project(tmp_path, name="leaves-one")))
    folder = server.settings.state_dir.job_folder(job.id) / "output"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text("a")
    assert run("ls", "leaves-one", "output/a.txt") == 0
    assert "1 file, 1 B; download with" in capsys.readouterr().out


def test_a_backup_overwrites_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    file.write_text("precious")
    assert run("backup", file) == 2
    assert "is not overwritten" in capsys.readouterr().err and file.read_text() == "precious"


def test_usage_is_added_up_by_user_project_and_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("projects", "add", "vision", "--quota", "360000") == 0
    _code, user = run_json(capsys, "users", "add", "uma", "--project", "vision")
    assert user["project"] == "vision"
    job = write_project(tmp_path, name="used", deadline="10m", env={"ONLY": "usage"})
    with Client(token=user["token"]) as client:
        ended = client.wait(client.submit(job))
    assert ended.cost_usd is not None and ended.cost_usd == pytest.approx(ended.device_s, rel=0.01)
    for by, name in (("user", "uma"), ("project", "vision"), ("job", "used")):
        lines = run_json(capsys, "usage", "--by", by)[1]["usage"]
        line = next(one for one in lines if one["name"] == name)
        assert line["usd"] == pytest.approx(ended.cost_usd, rel=0.01) and (line["kept"], line["missed"]) == (1, 0)
        assert line["device_h"] == pytest.approx(ended.device_s / 3600, abs=1e-4)
    assert run("usage") == 0 and "DEVICE-HOURS" in capsys.readouterr().out
    assert run("ps", "--all") == 0 and " USD" in capsys.readouterr().out.splitlines()[0]
    assert run("ps", "--all", "-o", "wide") == 0
    assert f"{ended.cost_usd:.2f}" in next(one for one in capsys.readouterr().out.splitlines() if " used " in one)
    assert run("status", "used") == 0 and " USD" in capsys.readouterr().out
    assert run("usage", "--since", "yesterday") == 2
    assert run("projects", "remove", "vision") == 2
    assert "has users: uma" in capsys.readouterr().err
    with Client(token=user["token"]) as client:
        assert {one.name for one in client.usage()} == {"uma"}, "who is no admin sees their own"


def test_after_a_kill_of_a_server_the_doctor_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPRINGTIDE_HOME", str(tmp_path))
    program = str(Path(sys.executable).with_name("springtide"))
    words = [program, "serve", "--engine", "fake", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until_s = time.monotonic() + 120
        while not (tmp_path / "server.json").exists():
            assert process.poll() is None and time.monotonic() < until_s
            time.sleep(0.05)
        assert doctor.check_server().status == "ok"
        os.kill(process.pid, signal.SIGKILL)
    code, told = run_json(capsys, "doctor")
    found = next(one for one in told["findings"] if one["check"] == "server")
    assert code == 1 and found["status"] == "failed" and f"process {process.pid}" in found["seen"]
    assert "was killed or has crashed" in found["seen"] and "springtide serve" in found["remedy"]


def test_lines_of_a_log_are_chosen_by_time_rank_and_number(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Client() as client:
        job = client.wait(client.submit(write_project(tmp_path, name="talkative")))
    now_s = time.time()
    logs = JobLogs(server.settings.state_dir.logs(job.id))
    logs.write(0, b"long ago\n", now_s - 7200)
    logs.write(1, b"of rank 1\n", now_s - 30)
    logs.write(0, b"one\ntwo\n", now_s - 20)
    logs.close()

    def read(*words: str) -> list[str]:
        assert run("logs", "talkative", "--raw", *words) == 0
        return capsys.readouterr().out.splitlines()

    assert read() == ["long ago", "one", "two"]
    assert read("-n", "1") == ["two"]
    assert read("--since", "10m") == ["one", "two"]
    assert read("--rank", "1") == ["of rank 1"]
    assert read("--all-ranks") == ["[0] long ago", "[1] of rank 1", "[0] one", "[0] two"]
    stamped = read("--times", "--since", "10m")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+Z +(one|two)", line) for line in stamped) and len(stamped) == 2
    assert run("logs", "talkative", "--since", "soon") == 2
    assert "--since 'soon'" in capsys.readouterr().err


def test_templates_are_listed_and_what_is_no_code_is_ignored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, listed = run_json(capsys, "new", "--list")
    assert code == 0 and {one["name"] for one in listed["templates"]} >= {"cnn", "gpt"}
    assert all(one["about"] for one in listed["templates"])
    assert run("new", tmp_path / "hello", "--template", "gpt") == 0
    assert "*.log" in (tmp_path / "hello" / ".springtideignore").read_text()
    assert run("new") == 2


def test_a_sentence_of_an_hour_ago_is_told_as_of_now(server: Server, tmp_path: Path) -> None:
    with Client() as client:
        job = client.submit(write_project(tmp_path, name="sentence", deadline="10m", hold=False))
        assert " (in " in job.sentence
        ended = client.wait(job)
    events = server.store.events(ended.id)
    admitted = next(event for event in events if event.kind == "admitted")
    assert " ago)" in write_event(admitted, admitted.at_s + 3600)["sentence"]
    assert " (in " in write_event(admitted, admitted.at_s)["sentence"]
