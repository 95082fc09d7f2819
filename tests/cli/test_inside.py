"""Inside a running job: its folder and variables, for its owner only, as its user, and not after it has ended."""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.http_servers import SLOW, connect, run_server, write_project

from springtide.cli.app import main
from springtide.cli.inside import check_user, choose_variables, find_machine, find_spy
from springtide.client.client import Client
from springtide.client.replies import InsideInfo, MachineInfo
from springtide.control.api.inside_routes import list_machines
from springtide.control.server import Server
from springtide.errors import InputError
from springtide.executors.protocol import Running


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
    assert (
        run("exec", "long", "--", sys.executable, "-c", "import os; print([os.environ['CUDA_VISIBLE_DEVICES']])") == 0
    )
    assert capfd.readouterr().out == "['']\n", "a job on processors sees no GPU"
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


def make_inside(*machines: MachineInfo, folder: str = "/tmp", host: str = "head") -> InsideInfo:
    """A job on machines of a cluster."""
    given = {"LR": "0.1", "PATH": "/server/bin"}
    return InsideInfo({}, "id", "long", host, folder, given, None, 1234, (), machines)


def test_a_command_sees_the_jobs_devices_on_its_machine_and_no_other() -> None:
    running = Running(
        job="id",
        generation=1,
        devices=("blue/gpu:0", "green/gpu:1", "blue/gpu:3"),
        state="running",
        pids=(10, 11, 12),
        pid_devices=("blue/gpu:0", "green/gpu:1", "blue/gpu:3"),
        uuids={"blue/gpu:0": "GPU-a", "green/gpu:1": "GPU-b", "blue/gpu:3": "MIG-c"},
    )
    machines = [MachineInfo.read(one) for one in list_machines(running, "head")]
    blue, green = machines
    assert (blue.host, blue.pids, green.host, green.pids) == ("blue", (10, 12), "green", (11,))
    inside = make_inside(blue, green)
    there = choose_variables(inside, find_machine(inside, "exec", "blue"), {"PATH": "/blue/bin", "HOME": "/home/ann"})
    assert there == {"LR": "0.1", "PATH": "/blue/bin", "CUDA_VISIBLE_DEVICES": "GPU-a,MIG-c"}
    own = list_machines(
        Running(job="id", generation=1, devices=("gpu:0",), state="running", uuids={"gpu:0": "GPU-d"}), "head"
    )
    here = choose_variables(make_inside(MachineInfo.read(own[0])), MachineInfo.read(own[0]), {"PATH": "/mine"})
    assert here == {"LR": "0.1", "PATH": "/server/bin", "CUDA_VISIBLE_DEVICES": "GPU-d"}


def test_who_is_not_where_the_job_runs_is_told_where_to_go() -> None:
    blue = MachineInfo({}, "blue", ("blue/cpu:0",), (), (10,))
    second = MachineInfo({}, "blue-2", ("blue-2/cpu:0",), (), (os.getpid(),))  # another machine of that name
    with pytest.raises(
        InputError, match=r"long runs on blue, and this is head; go there: ssh blue springtide shell long"
    ):
        find_machine(make_inside(blue), "shell", "head")
    with pytest.raises(InputError, match="runs on blue, blue-2, and this is blu;"):
        find_machine(make_inside(blue, second), "stack", "blu")
    inside = replace(make_inside(blue, second), folder=str(Path.cwd()))
    assert find_machine(inside, "exec", "blue") is second, "its processes are here"
    with pytest.raises(InputError, match="this is blue;"):
        find_machine(make_inside(second), "exec", "blue")  # a machine that is called blue-2, and not this one


def test_a_command_is_refused_where_the_jobs_folder_is_not(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    inside = start(client, tmp_path, monkeypatch)
    Path(inside.folder).rename(tmp_path / "elsewhere")
    assert run("exec", "long", "--", "ls") == 2
    assert "is not on this machine, whose disk is its own" in capfd.readouterr().err
    client.cancel("long")


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


def test_a_shell_is_a_terminal_in_the_jobs_folder_with_its_variables(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = start(client, tmp_path, monkeypatch)
    program = str(Path(sys.executable).with_name("springtide"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(program, [program, "shell", "long"], {**os.environ, "SHELL": "/bin/sh", "ENV": "", "PS1": ""})
    os.write(terminal, b"test -t 0 && echo a terminal in $(pwd) with $LR\nexit 5\n")
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error of reading it
        while piece := os.read(terminal, 1 << 16):
            shown += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)
    said = shown.decode().replace("\r\n", "\n")
    assert f"in {inside.folder} of long; the job goes on. Leave with: exit" in said.replace("\n  ", " ")
    assert f"a terminal in {inside.folder} with 0.1" in said
    assert client.job("long").state == "running"
    client.cancel("long")


def test_the_verb_stack_shows_each_process_or_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import time\ndef wait_long():\n    print('here', flush=True); time.sleep(60)\nwait_long()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        machine = MachineInfo({}, "head", ("cpu:0",), (), (process.pid,))
        monkeypatch.setattr("springtide.cli.inside.look", lambda job, verb: (make_inside(machine), machine))
        has_spy = shutil.which("py-spy") or Path(sys.executable).with_name("py-spy").exists()
        ended, said = run("stack", "long"), capsys.readouterr()
        process.kill()
    if not has_spy:
        assert ended == 2 and "which is not installed; pip install 'springtide[stack]'" in said.err
    else:
        assert "wait_long" in said.out or "py-spy cannot look at long" in said.err


def test_the_verb_stack_of_a_job_without_processes_says_so(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(client, tmp_path, monkeypatch)  # of the fake engine, which has none
    assert run("stack", "long") == 2
    assert "long has no process here yet" in capsys.readouterr().err
    client.cancel("long")
