"""Ray's head dies and is started again: both are told, training notices neither, and hosts join the new one."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.cluster.ray_clusters import RayHead, find_free_port, make_variables, needs_ray
from tests.control.test_live import write_job
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.executors.local.executor import LocalExecutor

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.timeout(900)]
EPOCHS = 450


@pytest.fixture
def home(tmp_path: Path) -> Iterator[StateDir]:
    made = StateDir(tmp_path / "home").make()
    yield made
    end_server(made)
    LocalExecutor(made.root).shutdown()


@pytest.fixture
def head(home: StateDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHead]:
    with tempfile.TemporaryDirectory(prefix="st-") as temporary:
        # A raylet waits for a minute before it gives its head up.
        variables = {**make_variables(home.root, temporary), "RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made = RayHead(find_free_port(), variables)
        made.start()
        yield made
        made.stop()


def end_server(home: StateDir) -> None:
    """Kill the server, if there is one."""
    address = read_address(home)
    if address is not None and psutil.pid_exists(address["pid"]):
        os.kill(address["pid"], signal.SIGKILL)
        psutil.Process(address["pid"]).wait(30)
    home.address.unlink(missing_ok=True)


def test_the_head_dies_and_returns_and_training_goes_on(head: RayHead, home: StateDir, tmp_path: Path) -> None:
    host = head.join()
    try:
        wait_until(lambda: "1 hosts" in head.run("doctor", "--engine", "ray", "--address", head.address).stdout, str)
        arguments = ("--engine", "ray", "--address", head.address, "--port", "0")
        start_background(home, arguments)
        work = tmp_path / "work"
        with Client(home=home.root) as client:
            job = client.submit(write_job(work, EPOCHS), wait=False)
            client.wait(job.id, lambda document: document.step > 20)
            head.kill()
            wait_until(lambda: bool(client.server().document["outage"]), lambda: "the loss of the head is not told")
            assert "cannot be reached" in client.server().document["outage"]
            assert any("no other host can be found" in fact for fact in client.why(job.id).facts)
            asked = head.run("doctor", "--engine", "ray", "--address", head.address)
            assert asked.returncode == 1 and "cannot be reached" in asked.stdout, asked.stdout

        end_server(home)
        start_background(home, arguments)  # it finds the lead and its hosts at work, and no Ray
        with Client(home=home.root) as client:
            wait_until(lambda: bool(client.server().document["outage"]), lambda: "a new server does not tell")
            before = client.job(job.id).step
            client.wait(job.id, lambda document: document.step > before + 20)

            head.start()
            wait_until(lambda: client.server().document["outage"] is None, lambda: f"{client.server().document}", 240)
            wait_until(
                lambda: "1 hosts" in head.run("doctor", "--engine", "ray", "--address", head.address).stdout, str
            )
            ended = client.wait(job.id)
            kinds = [event.kind for event in client.events()]
            assert (ended.state, ended.step, ended.faults) == ("succeeded", 8 * EPOCHS, 0)
            assert "node_lost" not in kinds and kinds.count("outage_over") == 1
            assert hash_weights(home.checkpoints(job.id)) == train_plainly(work, (), tmp_path / "plain")
            client.stop()
    finally:
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0
