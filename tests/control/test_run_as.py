"""Jobs under other system users, for real: nothing of them reaches a file that is not the job's.

The tests with jobs need root and an interpreter that the other users can run: `make test-run-as` makes one and sets
$SPRINGTIDE_RUN_AS, with which they fail instead of being skipped.
"""

import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.control.http_servers import connect, run_server

from springtide.client.client import Client
from springtide.client.replies import JobInfo
from springtide.control.background import start_background
from springtide.control.storage import housekeeping, job_logs
from springtide.control.storage.private_paths import remove
from springtide.control.storage.state_dir import StateDir, read_address, write_secrets
from springtide.errors import SpringtideError
from springtide.executors.local.as_user import do_as
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.jobs.environment import prepare
from springtide.executors.local.jobs.worker_logs import JobLogs, read_tail
from springtide.executors.local.safe_files import make_given, make_kept, open_to_read
from springtide.executors.protocol import CheckpointPolicy, JobSpec

EVE, MALLORY = "nobody", "daemon"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
TRAIN = """
import json, os, socket, subprocess, sys, torch, numpy, springtide

control = os.path.dirname(os.environ["SPRINGTIDE_CONTROL"].removeprefix("unix:"))
output = os.environ["SPRINGTIDE_OUTPUT"]
home = os.path.dirname(output)

def attempt(name, act):
    try:
        act()
    except OSError as error:
        print(f"{name}: {error.strerror}", flush=True)
    else:
        print(f"{name}: done", flush=True)

print("uid", os.getuid(), os.getgroups(), flush=True)
state = os.path.dirname(os.environ["TOKEN_FILE"])
attempt("token", lambda: open(os.environ["TOKEN_FILE"]).read())
attempt("database", lambda: open(f"{state}/springtide.db", "rb").read())
attempt("write-database", lambda: open(f"{state}/springtide.db", "ab"))
attempt("list-state", lambda: os.listdir(state))
attempt("list-jobs", lambda: os.listdir(os.path.dirname(home)))
attempt("move-job", lambda: os.rename(home, f"{home}-gone"))
attempt("link-secrets", lambda: os.symlink("/etc/passwd", f"{home}/secrets.json"))
attempt("link-log", lambda: os.symlink("/etc/passwd", f"{home}/logs/rank-7.log"))
attempt("move-logs", lambda: os.rename(f"{home}/logs", f"{home}/gone"))
attempt("move-checkpoints", lambda: os.rename(f"{home}/checkpoints", f"{home}/gone"))
attempt("link-probe", lambda: os.symlink("/etc", f"{home}/elsewhere"))
attempt("list-home", lambda: os.listdir(home))
attempt("list-logs", lambda: os.listdir(f"{home}/logs"))
attempt("link-control", lambda: os.symlink("/etc/passwd", f"{control}/p9.out"))
attempt("remove-control", lambda: os.unlink(f"{control}/c"))
for place in json.loads(os.environ.get("OTHERS", "[]")):
    attempt(place, lambda: os.listdir(place) if os.path.isdir(place) else open(place).read())
if "NOISE" in os.environ:
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["SPRINGTIDE_CONTROL"].removeprefix("unix:"))
    line.sendall(os.environ["NOISE"].encode() + b"\\n")
if "DAEMON" in os.environ:
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); " \\
        f"open({os.path.join(output, 'daemon')!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    subprocess.run([sys.executable, "-c", code], env={})

run = springtide.init(logical_workers=2, seed=0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=4)
for epoch in run.epochs(2):
    for step in loader:
        for x, y in step:
            ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
if run.is_main:
    open(os.path.join(output, "done"), "w").close()
"""
#: What the script tries, but for the places of others.
CONTROL = ("link-control", "remove-control")
STATE = ("token", "database", "write-database", "list-state", "list-jobs", "move-job", "link-secrets")
DENIED = (*STATE, "link-log", "move-logs", "move-checkpoints", "link-probe", "list-home", "list-logs", *CONTROL)


def can_run_as_other() -> bool:
    """Whether we are root, and other users can reach this interpreter and its packages."""
    if os.geteuid() != 0:
        return False
    program = [sys.executable, "-c", "import springtide, torch"]
    try:
        return subprocess.run(program, user=EVE, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


def uid_of(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


@dataclass
class SharedServer:
    """A server as root, and a client for each of two users."""

    home: StateDir
    admin: Client
    eve: Client
    mallory: Client
    projects: Path

    def run(self, client: Client, **keys: Any) -> tuple[JobInfo, str]:
        """A job that has ended, and what it said."""
        folder = self.projects / f"project-{time.monotonic_ns()}"
        folder.mkdir()
        (folder / "train.py").write_text(TRAIN)
        env = {"TOKEN_FILE": str(self.home.token), **keys.pop("env", {})}
        job = {"run": "python train.py", "workdir": str(folder), "env": env, "retry": {"max": 0}, **keys}
        ended = client.wait(client.submit(job, wait=False).id)
        return ended, "".join(client.logs(ended.id))


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedServer]:
    if "SPRINGTIDE_RUN_AS" not in os.environ and not can_run_as_other():
        pytest.skip("needs root, and an interpreter that other users can run: make test-run-as")
    with tempfile.TemporaryDirectory(prefix="springtide-run-as-") as folder:
        Path(folder).chmod(0o711)
        home = StateDir(Path(folder) / "state")
        url = start_background(home, ("--devices", "1", "--port", "0"))
        try:
            with Client(url, home=home.root) as admin:
                tokens = [admin.put_user(name, run_as=user).token for name, user in (("eve", EVE), ("mal", MALLORY))]
                with Client(url, tokens[0], home.root) as eve, Client(url, tokens[1], home.root) as mallory:
                    yield SharedServer(home, admin, eve, mallory, Path(folder))
                admin.stop()
        finally:
            address = read_address(home)
            if address is not None and psutil.pid_exists(address["pid"]):
                os.kill(address["pid"], signal.SIGKILL)
            LocalExecutor(home.root).shutdown()


@pytest.mark.slow
def test_a_job_runs_as_its_users_system_user_and_reaches_nothing_else(shared: SharedServer) -> None:
    ended, said = shared.run(shared.eve)
    assert ended.state == "succeeded", (ended.sentence, said)
    assert f"uid {uid_of(EVE)} [{pwd.getpwnam(EVE).pw_gid}]" in said
    for name in DENIED:
        assert f"{name}: Permission denied" in said or f"{name}: Operation not permitted" in said, (name, said)
    home = shared.home
    assert (home.output(ended.id) / "done").stat().st_uid == uid_of(EVE)
    assert home.checkpoints(ended.id).stat().st_uid == uid_of(EVE)
    for kept in (home.job_folder(ended.id), home.logs(ended.id), home.logs(ended.id) / "rank-0.log"):
        assert kept.stat().st_uid == 0
    assert stat.S_IMODE((home.logs(ended.id) / "rank-0.log").stat().st_mode) == 0o600


@pytest.mark.slow
def test_two_users_see_nothing_of_each_other(shared: SharedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = shared.run(shared.mallory)
    monkeypatch.setenv("KEY", "hunter2")
    code = shared.projects / "held"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    held = shared.mallory.submit({"run": "python train.py", "workdir": str(code), "hold": True, "secrets": ["KEY"]})
    home = shared.home
    assert "hunter2" in home.secrets_file(held.id).read_text()
    places = [home.output(first.id), home.checkpoints(first.id), home.logs(first.id) / "rank-0.log"]
    places += [home.secrets_file(held.id), home.new_secrets]
    ended, said = shared.run(shared.eve, env={"OTHERS": json.dumps([str(place) for place in places])})
    assert (first.state, ended.state) == ("succeeded", "succeeded")
    for place in places:
        assert f"{place}: Permission denied" in said, said


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["no JSON at all", '{"type": "progress", "step": "many"}'])
def test_what_a_job_says_on_its_control_socket_costs_itself(shared: SharedServer, noise: str) -> None:
    ended, said = shared.run(shared.eve, env={"NOISE": noise})
    assert ended.state == "failed" and "SPRINGTIDE_CONTROL" in ended.sentence, (ended.sentence, said)
    other, said = shared.run(shared.mallory)
    assert other.state == "succeeded", (other.sentence, said)


@pytest.mark.slow
def test_a_checkpoint_folder_of_roots_is_refused_and_stays_roots(shared: SharedServer) -> None:
    folder = shared.projects / "roots"
    folder.mkdir(mode=0o755)
    ended, said = shared.run(shared.eve, checkpoint={"dir": str(folder)}, name="roots-folder")
    assert ended.state == "failed", said
    assert "choose another checkpoint.dir" in ended.sentence and "Permission denied" in ended.sentence
    assert (folder.stat().st_uid, list(folder.iterdir())) == (0, [])


@pytest.mark.slow
def test_a_checkpoint_folder_of_ones_own_is_used(shared: SharedServer) -> None:
    folder = shared.projects / "eves"
    folder.mkdir(mode=0o700)
    os.chown(folder, uid_of(EVE), -1)
    ended, said = shared.run(shared.eve, checkpoint={"dir": str(folder / "deep" / "er")}, name="own-folder")
    assert ended.state == "succeeded", (ended.sentence, said)
    assert {path.stat().st_uid for path in (folder / "deep").rglob("*")} == {uid_of(EVE)}


@pytest.mark.slow
def test_a_daemon_with_a_scrubbed_environment_ends_with_its_job(shared: SharedServer) -> None:
    ended, said = shared.run(shared.eve, env={"DAEMON": "1"}, name="with-daemon")
    assert ended.state == "succeeded", (ended.sentence, said)
    pid = int((shared.home.output(ended.id) / "daemon").read_text())
    until_s = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


# Without a server: what the agent and the server do with folders that a user had prepared.


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A job's folder that is eve's, as earlier versions left them, with links to what is root's."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)
    secret = tmp_path / "secret"
    secret.write_text("root's own\n")
    secret.chmod(0o600)
    (tmp_path / "roots" / "step-1").mkdir(parents=True)
    home = tmp_path / "jobs" / "job"
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "rank-0.log").symlink_to(secret)
    (home / "logs" / "metrics.jsonl").symlink_to(secret)
    (home / "checkpoints").symlink_to(tmp_path / "roots")
    (home / "probe").symlink_to(tmp_path / "roots")
    for path in (home, *home.rglob("*")):
        os.chown(path, uid_of(EVE), -1, follow_symlinks=False)
    return home


@ROOT_ONLY
def test_logs_are_not_written_through_a_users_link(prepared: Path) -> None:
    secret = prepared.parents[1] / "secret"
    make_kept(prepared / "logs", prepared)
    logs = JobLogs(prepared / "logs")
    logs.write(0, b"hello\n", 0.0)
    logs.metrics.write(1, {"loss": 1.0}, 0.0)
    logs.close()
    assert secret.read_text() == "root's own\n"
    assert read_tail(prepared / "logs" / "rank-0.log") == ["hello"]
    assert (prepared / "logs").stat().st_uid == 0 and prepared.stat().st_uid == 0


@ROOT_ONLY
def test_logs_are_not_read_through_a_users_link(prepared: Path) -> None:
    home = StateDir(prepared.parents[1])
    assert job_logs.read_log(home, "job", 0, 0).text == ""
    assert job_logs.read_metrics(home, "job", -1).entries == []
    assert read_tail(prepared / "logs" / "rank-0.log") == []
    (prepared / "logs").rename(prepared / "real")
    (prepared / "logs").symlink_to(prepared.parents[1])
    os.chown(prepared / "logs", uid_of(EVE), -1, follow_symlinks=False)
    with pytest.raises(OSError, match="symbolic link"), open_to_read(prepared / "logs" / "secret"):
        pass


@ROOT_ONLY
def test_links_of_root_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("ours")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "round").symlink_to(tmp_path / "link" / ".." / "real")
    for name in ("link", "round"):
        with open_to_read(tmp_path / name / "file") as file:
            assert file.read() == b"ours"


@ROOT_ONLY
def test_house_is_kept_without_following_a_users_link(prepared: Path) -> None:
    roots = prepared.parents[1] / "roots"
    home = StateDir(prepared.parents[1])
    assert housekeeping.list_folders(home, prepared / "checkpoints") == []
    remove(home.root, prepared / "checkpoints" / "step-1")
    remove(home.root, prepared / "probe")
    assert (roots / "step-1").is_dir() and not (prepared / "probe").is_symlink()
    assert housekeeping.measure(prepared) < 100_000
    remove(home.root, prepared)
    assert not prepared.exists() and (roots / "step-1").is_dir()


@ROOT_ONLY
def test_a_folder_is_not_given_away_through_a_users_link(prepared: Path) -> None:
    uid, roots = uid_of(EVE), prepared.parents[1] / "roots"
    with pytest.raises(OSError):
        make_given(prepared / "checkpoints", prepared, uid, uid)
    with pytest.raises(OSError, match="symbolic link"):
        make_given(prepared / "probe" / "1" / "output", prepared, uid, uid)
    assert roots.stat().st_uid == 0 and [path.name for path in roots.iterdir()] == ["step-1"]
    make_given(prepared / "output", prepared, uid, uid)
    assert (prepared / "output").stat().st_uid == uid and prepared.stat().st_uid == 0


@ROOT_ONLY
@pytest.mark.parametrize("given", ["roots", "roots/deeper", "jobs/job/logs"])
def test_a_named_checkpoint_folder_is_never_taken_from_whom_it_belongs_to(prepared: Path, given: str) -> None:
    base = prepared.parents[1]
    (base / "code").mkdir(mode=0o755)
    (base / "code" / "train.py").touch()
    home = prepared.with_name("other")
    spec = JobSpec(
        argv=("python", "train.py"),
        folder=str(base / "code"),
        checkpoint=CheckpointPolicy(str(base / given), is_given=True),
        output_dir=str(home / "output"),
        log_dir=str(home / "logs"),
        home_dir=str(home),
        run_as=MALLORY,
    )
    found = prepare(spec)
    assert found is not None and found[0] == "no_folder" and MALLORY in found[1]
    assert (base / "roots").stat().st_uid == 0 and not (base / "roots" / "deeper").exists()


@ROOT_ONLY
def test_what_is_done_as_a_user_is_done_as_that_user_or_not_at_all(tmp_path: Path) -> None:
    assert do_as(EVE, lambda: [os.getuid(), os.geteuid(), os.getgroups()]) == [65534, 65534, [65534]]
    with pytest.raises(PermissionError):
        do_as(EVE, lambda: os.setuid(0))
    with pytest.raises(OSError, match="no JSON"):
        do_as(EVE, lambda: (_ for _ in ()).throw(RuntimeError("no JSON")))
    with pytest.raises(TimeoutError):
        do_as(EVE, lambda: time.sleep(60), patience_s=0.2)
    assert os.geteuid() == 0


@ROOT_ONLY
def test_the_folder_of_a_job_with_secrets_stays_roots(tmp_path: Path) -> None:
    home = StateDir(tmp_path / "home").make()
    home.job_folder("job").mkdir()
    os.chown(home.job_folder("job"), uid_of(EVE), -1)
    write_secrets(home, "job", {"KEY": "hunter2"})
    assert home.job_folder("job").stat().st_uid == 0
    assert home.secrets_file("job").stat().st_uid == 0
    assert home.secrets_file("job").stat().st_mode & 0o777 == 0o600


def test_a_system_user_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with run_server(tmp_path) as server, connect(server) as client:
        with pytest.raises(SpringtideError, match=r"no user of this system|runs as root"):
            client.put_user("eve", run_as="nobody-of-that-name")
        assert [user.name for user in client.users()] == [server.owner.name]
