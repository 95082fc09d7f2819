"""What may be wrong with Ray itself: another version, no answer, a drain, a keeper that is killed, a head that dies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import Raylets, needs_ray
from tests.cluster.test_ray import RayHarness
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.errors import ExecutorError
from springtide.executors.protocol import Faulted, Finished, NodeLeaving
from springtide.executors.ray import ray_executor
from springtide.executors.ray.ray_executor import RayExecutor, check_address

pytestmark = [needs_ray, pytest.mark.slow]
#: The keeper as it is, in a process that believes to be another Ray or another Python.
PRETEND = "import ray, sys; from springtide.executors.ray.ray_keeper import main; {change}; main()"


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    with Raylets((1, 1)) as made:
        yield made


@pytest.fixture(scope="module")
def harness(raylets: Raylets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHarness]:
    folder = tmp_path_factory.mktemp("faults")
    executor = RayExecutor(folder / "home", raylets.address)
    yield RayHarness(executor, folder)
    executor.shutdown()


@pytest.mark.parametrize(
    "change",
    ["ray.__version__ = '2.0.0'", "sys.version_info = tuple(map(int, '3.9.1'.split('.')))"],
    ids=["another ray", "another python"],
)
def test_another_version_is_told_with_both_numbers(raylets: Raylets, tmp_path: Path, change: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PRETEND.format(change=change)]
    done = subprocess.run(
        [*command, "--address", raylets.address, "--home", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    said = json.loads(done.stdout.splitlines()[-1])["error"]
    assert said.startswith("Version mismatch") and change.split("'")[1] in said, said
    assert "install what the cluster has" in said and done.returncode == 1


def test_an_address_that_swallows_everything_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "REACH_S", 1.0)
    with pytest.raises(ExecutorError, match=r"Ray at 192\.0\.2\.1:6379 cannot be reached .*is its head there"):
        check_address("192.0.2.1:6379")  # of a network that is nobody's (RFC 5737)


def test_a_keeper_that_is_killed_is_started_again(harness: RayHarness, raylets: Raylets) -> None:
    keeper = harness.executor.keeper
    assert keeper.process is not None
    before = keeper.process.pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: keeper.process is not None and keeper.process.pid != before, lambda: "no other keeper")
    raylets.tell("add", 1)
    wait_until(lambda: len(harness.devices) == 3, lambda: f"{harness.devices}, {keeper.hosts}")


def test_a_node_that_ray_drains_has_its_jobs_leave(harness: RayHarness, raylets: Raylets) -> None:
    node = harness.executor.keeper.connection["nodes"][-1]["id"]
    drain = [str(Path(sys.executable).with_name("ray")), "drain-node", "--address", raylets.address, "--node-id", node]
    drain += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
    subprocess.run([*drain, "--deadline-remaining-seconds", "300"], check=True, capture_output=True, timeout=120)

    def told() -> list[NodeLeaving]:
        return [event for event in harness.executor.events(0) if isinstance(event, NodeLeaving)]

    wait_until(lambda: bool(told()), lambda: f"{harness.executor.events(0)}")
    assert told()[0].grace_s > 0
    wait_until(lambda: bool(harness.executor.list_left()), lambda: f"{harness.executor.keeper.hosts}")
    assert len(harness.devices) == 2, "its actor, which lives until the node ends, has not brought it back"


def test_training_outlives_rays_head(harness: RayHarness, raylets: Raylets) -> None:
    trial = Trial(harness, "headless")
    trial.start(Behaviour(steps=200, step_s=0.05), devices=harness.devices[:1])
    trial.await_step(5)
    raylets.tell("behead", 0)
    trial.await_event(Finished)
    assert not trial.of(Faulted)


def test_full_object_stores_of_ray_stop_nobody(tmp_path: Path) -> None:
    """Hosts join, and a job trains: nothing of ours lies there."""
    small = {"RAY_automatic_object_spilling_enabled": "0", "RAY_local_fs_capacity_threshold": "0.0001"}
    with Raylets((1, 1), variables=small) as raylets, fill_stores(raylets) as are_full:
        assert are_full == [True] * 3, "head and hosts"
        executor = RayExecutor(tmp_path / "home", raylets.address)
        try:
            harness = RayHarness(executor, tmp_path)
            wait_until(lambda: len(harness.devices) == 2, lambda: f"{executor.keeper.hosts}")
            trial = Trial(harness, "cramped")
            trial.start(Behaviour(steps=60, step_s=0.02), devices=harness.devices)
            trial.await_event(Finished)
            assert not trial.of(Faulted)
        finally:
            executor.shutdown()


@contextlib.contextmanager
def fill_stores(raylets: Raylets) -> Iterator[list[bool]]:
    """Have the object store of every node full, as far as could be; whether each is."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.hoard", raylets.address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as hoard:
        assert hoard.stdout is not None
        yield json.loads(hoard.stdout.readline())
        hoard.communicate()
