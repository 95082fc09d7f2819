"""The whole platform with real processes: a detached server, its agent, and training workers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from springtide.control.client import Client
from springtide.control.homes import Home, read_address
from springtide.control.server import start_background
from springtide.control.showcases import hash_weights
from springtide.executors.local import LocalExecutor

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
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step(); optimizer.zero_grad(); scheduler.step()
        time.sleep(0.01)
    if run.is_main:
        print("epoch", epoch, "loss", float(loss), flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "state")
    yield home
    address = read_address(home)
    if address is not None and psutil.pid_exists(address["pid"]):
        os.kill(address["pid"], signal.SIGKILL)
    LocalExecutor(home.root).shutdown()


def write_job(folder: Path, epochs: int, **keys: object) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAIN.replace("EPOCHS", str(epochs)))
    return {"run": "python train.py", "workdir": str(folder), "checkpoint": {"every": "1s"}, **keys}


def test_jobs_survive_a_killed_server_and_nothing_is_left_behind(home: Home, tmp_path: Path) -> None:
    start_background(home, ("--devices", "2", "--port", "0"))
    with Client(home=home.root) as client:
        job = client.submit(write_job(tmp_path / "work", 40), wait=False)
        client.wait(job["id"], lambda document: document["step"] > 10)
    address = read_address(home)
    assert address is not None
    os.kill(address["pid"], signal.SIGKILL)
    psutil.Process(address["pid"]).wait(30) if psutil.pid_exists(address["pid"]) else None
    home.address.unlink()
    start_background(home, ("--devices", "2", "--port", "0"))
    with Client(home=home.root) as client:
        ended = client.wait(job["id"])
        assert (ended["state"], ended["step"], ended["faults"]) == ("succeeded", 320, 0)
        assert [event["kind"] for event in client.events(job["id"])].count("started") == 1
        assert "epoch 39" in "".join(client.logs(job["id"]))
        assert hash_weights(home.checkpoints(job["id"]))
        address = read_address(home)
        client.stop()
    assert address is not None
    if psutil.pid_exists(address["pid"]):
        psutil.Process(address["pid"]).wait(60)
    left = [one for one in psutil.process_iter(["cmdline"]) if str(home.root) in " ".join(one.info["cmdline"] or [])]
    assert left == []


def test_scripts_that_cannot_work_fail_with_a_sentence(home: Home, tmp_path: Path) -> None:
    start_background(home, ("--devices", "2", "--port", "0"))
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "train.py").write_text("raise SystemExit(3)\n")
    (bad / "quiet.py").write_text("print('done')\n")
    with Client(home=home.root) as client:
        crash = client.submit({"run": "python train.py", "workdir": str(bad), "retry": {"max": 0}})
        quiet = client.submit({"run": "python quiet.py", "workdir": str(bad), "retry": {"max": 0}})
        for job in (crash, quiet):
            ended = client.wait(job["id"])
            assert ended["state"] == "failed"
            assert ended["sentence"]
