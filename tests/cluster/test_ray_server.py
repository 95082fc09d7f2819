"""The whole platform on a Ray cluster: a detached server, its lead, hosts on raylets, and a host that is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.cluster.ray_clusters import Raylets, kill_host, needs_ray
from tests.control.test_live import write_job

from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.executor_factory import open_executor
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.errors import InputError
from springtide.executors.local.executor import LocalExecutor

pytestmark = [needs_ray, pytest.mark.slow]
EPOCHS = 150


@pytest.fixture
def raylets() -> Iterator[Raylets]:
    with Raylets((1, 1)) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[StateDir]:
    home = StateDir(tmp_path / "state")
    yield home
    address = read_address(home)
    if address is not None and psutil.pid_exists(address["pid"]):
        os.kill(address["pid"], signal.SIGKILL)
    LocalExecutor(home.root).shutdown()


def test_a_job_outlives_a_killed_server_and_a_killed_host_with_its_bits(
    raylets: Raylets, home: StateDir, tmp_path: Path
) -> None:
    arguments = ("--engine", "ray", "--address", raylets.address, "--port", "0")
    start_background(home, arguments)
    work = tmp_path / "work"
    with Client(home=home.root) as client:
        hosts = sorted({one.node for one in client.nodes()})
        assert len(hosts) == 2
        job = client.submit(write_job(work, EPOCHS, checkpoint={"every": "0.5s"}), wait=False)
        client.wait(job.id, lambda document: len(document.devices) == 2 and document.step > 20)
    address = read_address(home)
    assert address is not None
    os.kill(address["pid"], signal.SIGKILL)
    psutil.Process(address["pid"]).wait(30) if psutil.pid_exists(address["pid"]) else None
    home.address.unlink()
    with pytest.raises(InputError, match="home of a cluster"):
        open_executor("local", home, None)
    start_background(home, arguments)
    with Client(home=home.root) as client:
        assert client.job(job.id).faults == 0, "the job went on without a server"
        kill_host(home.root, hosts[1])
        ended = client.wait(job.id)
        kinds = [event.kind for event in client.events()]
        assert (ended.state, ended.step) == ("succeeded", 8 * EPOCHS)
        assert "node_lost" in kinds and "node_joined" in kinds
        assert f"epoch {EPOCHS - 1}" in "".join(client.logs(job.id))
        assert hash_weights(home.checkpoints(job.id)) == train_plainly(work, (), tmp_path / "plain")
        client.stop()
