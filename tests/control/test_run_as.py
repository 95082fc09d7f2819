"""Jobs under another system user, for real: only where the tests run as root and that user can run this interpreter.

`make test-run-as` sets $SPRINGTIDE_RUN_AS, with which anything else fails instead of being skipped.
"""

import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.control.http_servers import connect, run_server

from springtide.client.client import Client
from springtide.control.server import start_background
from springtide.control.storage.state_dir import StateDir, read_address, write_secrets
from springtide.errors import SpringtideError
from springtide.executors.local.executor import LocalExecutor

OTHER = "nobody"
TRAIN = """
import os, sys, torch, springtide

print("uid", os.getuid(), flush=True)
try:
    print("token", open(os.environ["TOKEN_FILE"]).read())
except OSError as error:
    print("token:", error.strerror, flush=True)
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
    open(os.path.join(os.environ["SPRINGTIDE_OUTPUT"], "done"), "w").close()
"""


def can_run_as_other() -> bool:
    """Whether we are root, and the other user can reach this interpreter and its packages."""
    if os.geteuid() != 0:
        return False
    program = [sys.executable, "-c", "import springtide, torch"]
    try:
        return subprocess.run(program, user=OTHER, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def home() -> Iterator[StateDir]:
    with tempfile.TemporaryDirectory(prefix="springtide-run-as-") as folder:
        Path(folder).chmod(0o711)
        home = StateDir(Path(folder) / "state")
        yield home
        address = read_address(home)
        if address is not None and psutil.pid_exists(address["pid"]):
            os.kill(address["pid"], signal.SIGKILL)
        LocalExecutor(home.root).shutdown()


@pytest.mark.slow
def test_a_job_runs_as_its_users_system_user_and_cannot_read_the_token(home: StateDir, tmp_path: Path) -> None:
    if "SPRINGTIDE_RUN_AS" not in os.environ and not can_run_as_other():
        pytest.skip(f"needs root, and an interpreter that user {OTHER} can run")
    url = start_background(home, ("--devices", "1", "--port", "0"))
    (tmp_path / "train.py").write_text(TRAIN)
    job = {"run": "python train.py", "workdir": str(tmp_path), "env": {"TOKEN_FILE": str(home.token)}}
    with Client(url, home=home.root) as admin:
        token = admin.put_user("eve", run_as=OTHER).token
        with Client(url, token, home.root) as eve:
            ended = eve.wait(eve.submit({**job, "retry": {"max": 0}}, wait=False).id)
            said = "".join(eve.logs(ended.id))
        admin.stop()
    assert ended.state == "succeeded", (ended.sentence, said)
    assert "uid 65534" in said and "token: Permission denied" in said
    assert (home.output(ended.id) / "done").stat().st_uid == 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_a_job_with_secrets_is_that_of_its_user(tmp_path: Path) -> None:
    home = StateDir(tmp_path / "home").make()
    write_secrets(home, "job", {"KEY": "hunter2"}, OTHER)
    assert home.job_folder("job").stat().st_uid == pwd.getpwnam(OTHER).pw_uid
    assert home.secrets_file("job").stat().st_uid == 0
    assert home.secrets_file("job").stat().st_mode & 0o777 == 0o600


def test_a_system_user_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with run_server(tmp_path) as server, connect(server) as client:
        with pytest.raises(SpringtideError, match=r"no user of this system|runs as root"):
            client.put_user("eve", run_as="nobody-of-that-name")
        assert [user.name for user in client.users()] == [server.owner.name]
