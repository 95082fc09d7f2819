"""The whole platform with real processes: a detached server, its agent, and training workers."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from springtide.cli.app import main
from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.client.client import Client
from springtide.client.packing import pack
from springtide.control.background import start_background
from springtide.control.clock import SystemClocks
from springtide.control.scheduling.machines.inventory import make_inventory
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.archives import unpack
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.control.storage.store import Store
from springtide.core.job_file import check_job
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.protocol import Event, NodeLost

TRAIN = """
import torch
import springtide

run = springtide.init(logical_workers=2, seed=0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, data, batch_size=4)
import time
for epoch in run.epochs(EPOCHS):
    for step in loader:
        for x, y in step:
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            time.sleep(0.01)
        optimizer.step(); optimizer.zero_grad(); scheduler.step()
    if run.is_main:
        print("epoch", epoch, "loss", float(loss), flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[StateDir]:
    home = StateDir(tmp_path / "state")
    yield home
    address = read_address(home)
    if address is not None and psutil.pid_exists(address["pid"]):
        os.kill(address["pid"], signal.SIGKILL)
    LocalExecutor(home.root).shutdown()


def write_job(folder: Path, epochs: int, **keys: object) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAIN.replace("EPOCHS", str(epochs)))
    return {"run": "python train.py", "workdir": str(folder), "checkpoint": {"every": "1s"}, **keys}


def test_jobs_survive_a_killed_server_and_nothing_is_left_behind(home: StateDir, tmp_path: Path) -> None:
    start_background(home, ("--devices", "2", "--port", "0"))
    with Client(home=home.root) as client:
        job = client.submit(write_job(tmp_path / "work", 40), wait=False)
        client.wait(job.id, lambda document: document.step > 10)
    address = read_address(home)
    assert address is not None
    os.kill(address["pid"], signal.SIGKILL)
    psutil.Process(address["pid"]).wait(30) if psutil.pid_exists(address["pid"]) else None
    home.address.unlink()
    start_background(home, ("--devices", "2", "--port", "0"))
    with Client(home=home.root) as client:
        ended = client.wait(job.id)
        assert (ended.state, ended.step, ended.faults) == ("succeeded", 320, 0)
        assert [event.kind for event in client.events(job.id)].count("started") == 1
        assert "epoch 39" in "".join(client.logs(job.id))
        assert hash_weights(home.checkpoints(job.id))
        address = read_address(home)
        client.stop()
    assert address is not None
    if psutil.pid_exists(address["pid"]):
        psutil.Process(address["pid"]).wait(60)
    left = [one for one in psutil.process_iter(["cmdline"]) if str(home.root) in " ".join(one.info["cmdline"] or [])]
    assert left == []


def test_scripts_that_cannot_work_fail_with_a_sentence(home: StateDir, tmp_path: Path) -> None:
    start_background(home, ("--devices", "2", "--port", "0"))
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "train.py").write_text("raise SystemExit(3)\n")
    (bad / "quiet.py").write_text("print('done')\n")
    with Client(home=home.root) as client:
        crash = client.submit({"run": "python train.py", "workdir": str(bad), "retry": {"max": 0}})
        quiet = client.submit({"run": "python quiet.py", "workdir": str(bad), "retry": {"max": 0}})
        for job in (crash, quiet):
            ended = client.wait(job.id)
            assert ended.state == "failed"
            assert ended.sentence


def test_a_checkpoint_of_other_code_is_refused_and_taken_if_the_user_allows_it(
    home: StateDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_background(home, ("--devices", "1", "--port", "0"))
    monkeypatch.setenv("SPRINGTIDE_HOME", str(home.root))
    work, saved = tmp_path / "work", tmp_path / "saved"
    with Client(home=home.root) as client:
        shorter = client.submit(write_job(work, 2, checkpoint={"dir": str(saved)}), wait=False)
        assert client.wait(shorter.id).step == 16
        (manifest,) = [json.loads(path.read_text()) for path in saved.glob("step-*/manifest.json")]
        longer = write_job(work, 4, checkpoint={"dir": str(saved)})
        refused = client.wait(client.submit(longer, wait=False).id)
        (work / "job.yaml").write_text(json.dumps(longer | {"name": "allowed"}))
        with pytest.raises(SystemExit) as told:
            main(["submit", str(work / "job.yaml"), "--allow-code-change"])
        assert not told.value.code
        taken = client.wait("allowed")
        (started,) = [event.data for event in client.events("allowed") if event.kind == "started"]
    assert (refused.state, refused.exit_code, refused.faults) == ("failed", 2, 0), refused.sentence
    for word in (f"{saved}/step-000000016", manifest["code"][:12], "this script's", "--allow-code-change"):
        assert word in refused.sentence
    assert (taken.state, taken.step, started["step"]) == ("succeeded", 32, 16)
    assert hash_weights(saved) == train_plainly(work, (), tmp_path / "plain")


@pytest.mark.whole
def test_a_drained_node_is_left_within_the_grace_and_the_bits_stay(
    home: StateDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_background(home, ("--devices", "2", "--nodes", "2", "--port", "0"))
    monkeypatch.setenv("SPRINGTIDE_HOME", str(home.root))
    work = tmp_path / "work"
    with Client(home=home.root) as client:
        job = client.submit(write_job(work, 30), wait=False).id
        client.wait(job, lambda document: len(document.devices) == 2 and document.step > 20)
        with pytest.raises(SystemExit) as left:
            main(["nodes", "drain", "node-1", "--grace", "60s"])
        assert not left.value.code
        client.wait(job, lambda document: "drained" in [event.kind for event in client.events()])
        with closing(LocalExecutor(home.root)) as executor:
            (running,) = executor.running()
        assert running.devices == ("cpu:0",)
        ended = client.wait(job)
        kinds = [event.kind for event in client.events(job)]
        assert (ended.state, ended.faults, ended.lost_steps) == ("succeeded", 0, 0)
        assert "shrinks" in kinds and "drain_forced" not in kinds
        assert {device.state for device in client.nodes()} == {"ready", "drained"}
    assert hash_weights(home.checkpoints(job)) == train_plainly(work, (), tmp_path / "plain")


class Watched(LocalExecutor):
    """The executor of this machine, which is told of lost nodes as one that reaches several would notice them."""

    lost: NodeLost | None = None

    def events(self, after: int) -> tuple[Event, ...]:
        """What happened, and the loss of a node, once."""
        lost, self.lost = self.lost, None
        return (*super().events(after), *([lost] if lost is not None else []))


@contextmanager
def reconcile(home: StateDir, executor: LocalExecutor) -> Iterator[Reconciler]:
    """A control plane in this process, with two nodes of one device each."""
    store = Store(f"sqlite:///{home.make().database}")
    try:
        site = make_inventory("cpu", [device.name for device in executor.devices()], 2)
        yield Reconciler(store, executor, site, home, SystemClocks(), ServerOptions())
    finally:
        store.close()
        executor.close()


def follow(reconciler: Reconciler, job: str, holds: Callable[[JobRecord], bool]) -> JobRecord:
    """Let the control plane work until something holds of a job."""
    until_s = time.monotonic() + 120.0
    while (record := reconciler.store.job(job)) is None or not holds(record):
        assert time.monotonic() < until_s, record
        reconciler.step(0.05)
    return record


@pytest.mark.whole
def test_a_job_goes_on_elsewhere_when_a_node_is_lost_and_the_bits_stay(home: StateDir, tmp_path: Path) -> None:
    work, executor = tmp_path / "work", Watched(home.root, "2")
    told = write_job(work, 30, checkpoint={"every": "0.2s"})
    archive = pack(work)
    with reconcile(home, executor) as reconciler:
        unpack(archive.data, home.code / archive.code_hash)
        del told["workdir"]
        job = Operations(reconciler).submit(Submission(check_job(told, "test"), archive.code_hash, "ann"))
        follow(reconciler, job, lambda record: len(record.devices) == 2 and record.step > 40)
        (running,) = executor.running()
        os.kill(running.pids[-1], signal.SIGKILL)
        executor.lost = NodeLost(job="", generation=0, node="node-1", reason="its machine does not answer")
        moved = follow(reconciler, job, lambda record: record.devices == ("cpu:0",))
        assert moved.condition("recovering") is not None
        ended = follow(reconciler, job, lambda record: not record.active)
        started = [event.data for event in reconciler.store.events(job) if event.kind == "started"]
    assert (ended.state, ended.step, ended.devices) == ("succeeded", 240, ())
    assert started[-1]["share"] == 1 and 0 < started[-1]["step"] < 240
    assert hash_weights(home.checkpoints(job)) == train_plainly(work, (), tmp_path / "plain")
