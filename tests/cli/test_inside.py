"""Inside a running job: its folder and variables, for its owner only, as its user, and not after it has ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.http_servers import SLOW, connect, run_server, write_project

from springtide.cli.app import main
from springtide.cli.inside import check_user, find_spy
from springtide.client.client import Client
from springtide.client.replies import InsideInfo
from springtide.control.server import Server
from springtide.errors import InputError


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with run_server(tmp_path, job=SLOW) as server:
        monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
        monkeypatch.setenv("SPRINGTIDE_URL", server.url)
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server) as client:
        yield client


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def start(client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> InsideInfo:
    """A job that runs, with a variable and a secret."""
    monkeypatch.setenv("MY_KEY", "very secret")
    keys = {"name": "long", "env": {"LR": "0.1"}, "secrets": ["MY_KEY"]}
    job = client.submit(write_project(folder / "work", **keys))
    client.wait(job, lambda job: job.state == "running")
    return client.inside(job)


def test_where_its_inputs_and_outputs_are_is_known_inside(client: Client, tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    job = client.submit(write_project(tmp_path / "work", name="reads", inputs={"digits": str(tmp_path / "digits")}))
    client.wait(job, lambda job: job.state == "running")
    inside = client.inside(job)
    assert {"SPRINGTIDE_INPUTS", "SPRINGTIDE_OUTPUT"} <= inside.environment.keys()
    client.cancel(job)


def test_a_command_runs_in_the_jobs_folder_with_its_variables(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    inside = start(client, tmp_path, monkeypatch)
    assert (inside.environment["LR"], inside.environment["MY_KEY"]) == ("0.1", "very secret")
    assert "very secret" not in repr(inside)
    code = "import os, sys; print(os.listdir(), os.environ['LR'], 'SPRINGTIDE_TOKEN' in os.environ); sys.exit(7)"
    assert run("exec", "long", "--", sys.executable, "-c", code) == 7
    said = capfd.readouterr().out
    assert "train.py" in said and "0.1 False" in said
    assert run("exec", "long", "--", "no-such-program") == 2
    assert "cannot be run" in capfd.readouterr().err
    client.cancel("long")


def test_only_its_owner_enters_a_job_and_only_while_it_runs(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    token = client.put_user("ann").token
    with connect(server, token) as ann:
        start(ann, tmp_path, monkeypatch)
        with pytest.raises(InputError, match="is a job of ann; only they can enter it"):
            client.inside("long")
        with connect(server, client.put_user("bob").token) as bob, pytest.raises(InputError, match="there is no job"):
            bob.inside("long")
        ann.cancel("long")
        with pytest.raises(InputError, match=r"long has ended \(cancelled\).*springtide logs long"):
            ann.inside("long")


def test_who_is_not_the_jobs_user_is_told_how_to_become_it() -> None:
    inside = InsideInfo({}, "id", "long", "here", "/tmp", {}, None, 1234, ())
    check_user(inside, "shell", 1234)
    check_user(inside, "shell", 0)
    with pytest.raises(InputError, match="runs as user #1234; become it: sudo -u #1234 springtide shell long"):
        check_user(inside, "shell", 1235)


def test_a_stack_is_read_by_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    if not Path(sys.executable).with_name("py-spy").exists():
        with pytest.raises(InputError, match=r"pip install 'springtide\[stack\]'"):
            find_spy()
        return
    code = "import time\ndef wait_long():\n    print('here', flush=True); time.sleep(60)\nwait_long()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        said = subprocess.run([find_spy(), "dump", "--pid", str(process.pid)], capture_output=True, text=True)
        process.kill()
    assert "wait_long" in said.stdout or "ermission" in said.stderr
