"""The commands of the live platform against a real server, with the exit codes and JSON that scripts rely on."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.http_servers import run_server, write_project

from springtide.cli import doctor
from springtide.cli.app import main
from springtide.control.server import Server
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("cli")) as server:
        yield server


@pytest.fixture(autouse=True)
def home(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
    monkeypatch.delenv("SPRINGTIDE_URL", raising=False)


def run(*words: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON document of a command; stdout holds nothing else."""
    capsys.readouterr()
    code = run(*words, "-o", "json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    return code, document


def test_status_tells_the_digest_of_the_weights(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, answer = run_json(capsys, "submit", write_project(tmp_path, name="weighed"))
    assert run("logs", "-f", "weighed") == 0
    ended = server.store.job(answer["id"])
    assert ended is not None
    for weights, told in (("", "none yet"), ("c0ffee" * 10, "SHA-256 " + "c0ffee" * 10)):
        server.store.write(Batch(jobs={ended.id: replace(ended, weights=weights)}))
        capsys.readouterr()
        assert run("status", "weighed") == 0
        assert f"  {'weights':<10} {told}" in capsys.readouterr().out.splitlines()


def test_submit_follows_the_probe_and_exits_0_when_admitted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = write_project(tmp_path, deadline="10m", name="cli-one")
    code, answer = run_json(capsys, "submit", job)
    assert (code, answer["answer"], answer["promised"]) == (0, "admitted", True)
    assert run("logs", "-f", "cli-one") == 0
    code, told = run_json(capsys, "status", "cli-one")
    assert (code, told["state"], told["met"]) == (0, "succeeded", True)
    code, plan = run_json(capsys, "plan", job)
    assert (code, plan["answer"]) == (0, "admitted")
    assert run("plan", job, "--json", tmp_path.parent / "plan.json") == 0
    assert capsys.readouterr().out.startswith("would be promised to finish by")
    assert json.loads((tmp_path.parent / "plan.json").read_text())["answer"] == "admitted"
    assert run("plan", job, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1


def test_allowing_a_change_of_code_needs_a_folder_with_checkpoints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("submit", "--allow-code-change", write_project(tmp_path / "one", name="cli-anew"))
    assert run(*words) == 0
    assert "without checkpoint.dir" in capsys.readouterr().err
    job = write_project(tmp_path / "two", name="cli-changed", checkpoint={"dir": str(tmp_path / "saved")})
    code, answer = run_json(capsys, "submit", "--allow-code-change", job)
    assert (code, answer["spec"]["checkpoint"]["allow_code_change"]) == (0, True)


def test_a_declined_job_exits_3_and_its_offer_can_be_accepted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = write_project(tmp_path, name="cli-two")
    assert run("submit", job, "--deadline", "10m", "--name", "cli-known") == 0
    assert run("logs", "-f", "cli-known") == 0
    code, answer = run_json(capsys, "submit", job, "--deadline", "1s")
    assert (code, answer["answer"], answer["state"]) == (3, "declined", "offered")
    assert answer["offers"][0]["kind"] == "deadline"
    code, plan = run_json(capsys, "plan", job, "--deadline", "1s")
    assert (code, plan["answer"], plan["offers"][0]["kind"]) == (3, "declined", "deadline")
    code, answer = run_json(capsys, "accept", "cli-two")
    assert (code, answer["answer"]) == (0, "admitted")
    code, answer = run_json(capsys, "submit", job, "--deadline", "1s", "--accept-offer", "--name", "cli-three")
    assert (code, answer["answer"]) == (0, "admitted")


def test_an_unknown_job_is_planned_with_exit_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, plan = run_json(capsys, "plan", write_project(tmp_path, run="python train.py never-seen", deadline="1h"))
    assert (code, plan["reason"]) == (3, "unknown_speed")
    assert plan["sentence"] == "nobody has measured this code yet; `plan --probe` measures it, in at most 15 s"


def test_an_unknown_job_is_measured_for_a_plan_and_does_not_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_project(tmp_path / "work", deadline="1h", name="only-planned")
    with run_server(tmp_path) as idle:
        monkeypatch.setenv("SPRINGTIDE_HOME", str(idle.settings.state_dir.root))
        code, plan = run_json(capsys, "plan", job, "--probe")
        assert (code, plan["answer"], plan["probe"]) == (0, "admitted", None)
        assert plan["shares"]
        code, told = run_json(capsys, "status", "plan-only-planned")
        assert (told["state"], told["reason"], told["started_at"]) == ("cancelled", "measured", None)
        assert run("status", "only-planned") == 2
        code, told = run_json(capsys, "why", "plan-only-planned")
        assert (told["sentence"], told["remedy"]) == ("it was measured for a plan; submit it to have it run", "")


def test_without_waiting_an_unknown_job_is_probing_with_exit_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = write_project(tmp_path, run="python train.py other", deadline="1h", name="cli-probing")
    code, answer = run_json(capsys, "submit", job, "--no-wait")
    # waitlisted where the jobs of other tests still hold both devices
    assert code == 3 and answer["state"] in ("probing", "waitlisted")
    assert run("cancel", "cli-probing") == 0
    assert run("logs", "-f", "cli-probing") == 1
    assert run("resume", "cli-probing") == 0


def test_every_reading_command_speaks_table_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("submit", write_project(tmp_path, name="cli-reader")) == 0
    for words in (
        ["ps"],
        ["ps", "--all"],
        ["nodes"],
        ["events"],
        ["why", "cli-reader"],
        ["top", "--once"],
        ["users"],
        ["users", "list"],
    ):
        capsys.readouterr()
        assert run(*words) == 0
        assert capsys.readouterr().out.strip()
        code, _ = run_json(capsys, *words)
        assert code == 0
    code, jobs = run_json(capsys, "ps", "-a")
    assert "cli-reader" in {job["name"] for job in jobs["jobs"]}


def test_users_are_added_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    code, user = run_json(capsys, "users", "add", "dora", "--most-active", 3)
    assert (code, user["most_active"]) == (0, 3)
    assert user["token"]
    assert run("users", "remove", "dora") == 0
    assert run("users", "remove", "dora") == 2


def test_what_is_not_given_of_a_user_or_project_stays(capsys: pytest.CaptureFixture[str]) -> None:
    run("projects", "add", "speech", "--quota", 3600)
    project = run_json(capsys, "projects", "add", "speech", "--most-active", 5)[1]
    assert (project["quota_device_s"], project["most_active"]) == (3600, 5)
    run("users", "add", "emil", "--admin", "--quota", 60)
    user = run_json(capsys, "users", "add", "emil", "--project", "speech")[1]
    assert (user["admin"], user["quota_device_s"], user["project"], user["token"]) == (True, 60, "speech", None)
    user = run_json(capsys, "users", "add", "emil", "--no-admin", "--reset", "--most-active", 2)[1]
    assert (user["admin"], user["quota_device_s"], user["project"], user["most_active"]) == (False, None, None, 2)
    assert run_json(capsys, "projects", "add", "speech", "--reset")[1]["quota_device_s"] is None
    assert (run("users", "remove", "emil"), run("projects", "remove", "speech")) == (0, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["status", "no-such-job"], "there is no job 'no-such-job'"),
        (["submit", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["new", "."], "exists and is not empty"),
        (["plan"], "nothing to plan"),
        (["accept", "no-such-job"], "there is no job"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert len(error.strip().splitlines()) == 1


def test_a_server_that_refuses_is_not_stopped_and_none_is_started_in_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setenv("SPRINGTIDE_TOKEN", "wrong")
    for words in (["stop"], ["plan", write_project(tmp_path / "work")]):
        assert run(*words) == 4
        assert "no valid token" in capsys.readouterr().err
    monkeypatch.setenv("SPRINGTIDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPRINGTIDE_URL", server.url)
    assert run("stop") == 4
    assert "no valid token" in capsys.readouterr().err
    monkeypatch.setenv("SPRINGTIDE_URL", "http://127.0.0.1:9")
    assert run("submit", write_project(tmp_path / "work")) == 4
    assert "no server answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
    monkeypatch.delenv("SPRINGTIDE_URL")
    assert run("submit", write_project(tmp_path / "work", secrets=["NOBODY_HAS_SET_THIS"])) == 2
    assert "NOBODY_HAS_SET_THIS is not set in your environment" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_the_doctor_says_when_a_server_that_is_named_does_not_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPRINGTIDE_HOME", str(tmp_path))
    monkeypatch.setenv("SPRINGTIDE_TOKEN", "any")
    monkeypatch.delenv("SPRINGTIDE_URL", raising=False)
    server = {finding["check"]: finding for finding in run_json(capsys, "doctor")[1]["findings"]}["server"]
    assert (server["status"], server["seen"]) == ("ok", "none runs")
    monkeypatch.setenv("SPRINGTIDE_URL", "http://127.0.0.1:9")  # submit starts none in its place
    code, document = run_json(capsys, "doctor")
    server = {finding["check"]: finding for finding in document["findings"]}["server"]
    assert (code, server["status"]) == (1, "failed") and "no server answers" in server["seen"]


def test_no_server_and_a_wrong_token_end_with_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPRINGTIDE_TOKEN", "wrong")
    assert run("ps") == 4
    assert "no valid token" in capsys.readouterr().err
    monkeypatch.setenv("SPRINGTIDE_HOME", str(tmp_path))
    assert run("ps") == 4
    assert "no server runs" in capsys.readouterr().err


def test_a_new_project_is_a_script_and_a_valid_job_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from springtide import examples
    from springtide.client.job_folders import read_job_file

    for example in examples.NAMES:
        code, document = run_json(capsys, "new", tmp_path / example, "--example", example)
        assert (code, document["files"]) == (0, ["train.py", "model.py", "job.yaml", ".springtideignore"])
        job = read_job_file(tmp_path / example / "job.yaml")
        assert (tmp_path / example / job.script).is_file()


def test_the_doctor_finds_this_machine_fit(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run_json(capsys, "doctor")
    assert code == 0
    found = {finding["check"]: str(finding) for finding in document["findings"]}
    assert {*found} >= {"python", "torch", "devices", "state", "server", "tar"}
    assert ("CVE-2025-8194" in found["tar"]) == doctor.has_tar_bug(), "said where Python's own reader has it"


@pytest.mark.parametrize(("device", "status"), [("cuda", "failed"), ("cpu", "ok")])
def test_where_there_are_gpus_the_doctor_tries_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, status: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(doctor.check_gpus()) == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase $1 in --query-gpu*) echo "0, GPU-1, NVIDIA A100-SXM4-40GB, 40960, Disabled";; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    findings = list(doctor.check_gpus(device))
    assert (findings[0].check, findings[0].status) == ("cuda", status)
    assert "paste the above into an issue" in capsys.readouterr().err


def test_housekeeping_backs_up_restores_and_collects(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    copy = tmp_path / "copy.db"
    assert run("backup", copy) == 0
    assert run("restore", copy) == 0
    orphan = server.settings.state_dir.jobs / "orphan"
    (orphan / "logs").mkdir(parents=True)
    os.utime(orphan, (0, 0))
    for words in (("gc", "--dry-run"), ("gc",)):
        code, document = run_json(capsys, *words)
        assert (code, any(one["path"].endswith("orphan") for one in document["removed"])) == (0, False)
    assert run("gc") == 0
    assert "1 folders of jobs that the database does not know stay" in capsys.readouterr().err
    code, document = run_json(capsys, "gc", "--orphans", "--dry-run")
    assert (code, any(one["path"].endswith("orphan") for one in document["removed"])) == (0, True)
    assert orphan.exists()
    assert run("gc", "--orphans", "--yes") == 0
    assert not orphan.exists()
    code, document = run_json(capsys, "du")
    assert document["bytes"] > 0
    monkeypatch.setenv("SPRINGTIDE_HOME", str(tmp_path / "other"))
    assert run("restore", copy) == 0
    (tmp_path / "junk").write_text("junk")
    assert run("restore", tmp_path / "junk") == 2
    assert run("backup", tmp_path) == 2
    assert run("backup", tmp_path / "nowhere" / "copy.db") == 2
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE schema_version SET version = 1000")
        connection.commit()
    capsys.readouterr()
    assert run("restore", copy) == 2
    assert "is of version 1000" in capsys.readouterr().err


def test_nothing_is_collected_where_the_jobs_are_in_a_database_elsewhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = StateDir(tmp_path / "home").make()
    (home.jobs / "theirs").mkdir()
    os.utime(home.jobs / "theirs", (0, 0))
    home.note_database("postgresql://ann:hunter2@elsewhere/springtide")
    monkeypatch.setenv("SPRINGTIDE_HOME", str(home.root))
    assert run("gc") == 1
    assert "are in postgresql, not here" in capsys.readouterr().err
    assert (home.jobs / "theirs").exists()
    assert "hunter2" not in home.elsewhere.read_text()


def test_gc_keeps_what_the_server_is_told_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = StateDir(tmp_path / "home").make()
    store = Store(f"sqlite:///{home.database}")
    ended_s = time.time() - 10 * 86400
    job = JobRecord("id1", "one", "ann", JobState.SUCCEEDED, JobFile(run="x"), 1.0, seq=1, finished_s=ended_s)
    store.write(Batch(jobs={"id1": job}))
    home.output("id1").mkdir(parents=True)
    monkeypatch.setenv("SPRINGTIDE_HOME", str(home.root))
    assert run("gc") == 0
    assert home.output("id1").exists()
    home.config.write_text("keep_days: 9\n")
    assert run("gc") == 0
    assert not home.job_folder("id1").exists()
    assert Store(f"sqlite:///{home.database}").job("id1") is None
    store.close()
