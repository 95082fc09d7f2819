"""A real Ray cluster of raylets on this machine: the contract of executors, and gloo between hosts."""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import Raylets, kill_host, list_host_processes, needs_ray
from tests.executors.conformance import checks
from tests.executors.conformance.checks import Check, run_check
from tests.executors.conformance.trials import Behaviour, make_spec
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.errors import ExecutorError, InputError
from springtide.executors.protocol import JobSpec, NodeJoined, NodeLost
from springtide.executors.ray import ray_executor
from springtide.executors.ray.ray_executor import RayExecutor

pytestmark = needs_ray
numbers = count()
#: The rest takes a minute more: make test-cluster.
FIRST = (checks.check_a_job_grows_and_shrinks,)
MARKED = [check if check in FIRST else pytest.param(check, marks=pytest.mark.slow) for check in checks.CHECKS]


@dataclass
class RayHarness:
    """Two raylets with one CPU each."""

    executor: RayExecutor
    folder: Path

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(device for node in self.executor.nodes() if node.is_there for device in node.devices)

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        return replace(make_spec(self.folder / job, behaviour), threads=1)

    def wait(self, after: int) -> None:
        self.executor.wait(after, 0.3)

    def kill(self, job: str) -> None:
        (found,) = [one for one in self.executor.running() if one.job == job]
        os.kill(found.pids[-1], signal.SIGKILL)


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    """Two nodes and a head."""
    with Raylets((1, 1)) as made:
        yield made


@pytest.fixture(scope="module")
def harness(raylets: Raylets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHarness]:
    """An executor of that cluster."""
    folder = tmp_path_factory.mktemp("ray")
    executor = RayExecutor(folder / "home", raylets.address)
    yield RayHarness(executor, folder)
    names = [node.name for node in executor.nodes()]
    executor.shutdown()
    wait_until(lambda: not any(list_host_processes(folder / "home", name) for name in names), lambda: f"left: {names}")


@pytest.mark.parametrize("check", MARKED, ids=lambda check: str(check.__name__))
def test_a_ray_cluster_keeps_the_contract(harness: RayHarness, check: Check) -> None:
    assert len(harness.devices) == 2
    run_check(harness, check, f"job-{next(numbers)}")


@pytest.mark.slow
def test_a_host_that_was_killed_is_lost_and_started_again(harness: RayHarness) -> None:
    before = harness.executor.events(0)[-1].seq
    victim = harness.executor.nodes()[-1].name
    kill_host(harness.executor.state_dir, victim)

    def find(kind: type[NodeLost | NodeJoined]) -> bool:
        found = [event for event in harness.executor.events(before) if isinstance(event, kind)]
        return any(event.node == victim for event in found)

    wait_until(lambda: find(NodeLost), lambda: f"{harness.executor.events(before)}")
    wait_until(lambda: find(NodeJoined), lambda: f"{harness.executor.events(before)}")


@pytest.mark.slow
def test_a_node_that_is_added_joins(harness: RayHarness, raylets: Raylets) -> None:
    raylets.tell("add", 1)
    wait_until(lambda: len(harness.devices) == 3, lambda: f"{harness.devices}, {harness.executor.keeper.hosts}")
    raylets.tell("kill", 2)
    name = harness.executor.nodes()[-1].name
    kill_host(harness.executor.state_dir, harness.devices[-1].partition("/")[0])
    wait_until(lambda: len(harness.devices) == 2, lambda: f"{name}: {harness.devices}")


def test_an_address_where_no_ray_is_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"Ray at 127\.0\.0\.1:9 cannot be reached"):
        RayExecutor(tmp_path / "home", "127.0.0.1:9")
    for address in ("somewhere", "10.0.0.5:99999"):
        with pytest.raises(InputError, match="neither auto nor HOST:PORT"):
            RayExecutor(tmp_path / "home", address)


@pytest.mark.slow
def test_whoever_listens_there_and_is_no_ray_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "CONNECT_S", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ExecutorError, match=f"Ray at {address} gave no answer within 5 s"):
            RayExecutor(tmp_path / "home", address)
