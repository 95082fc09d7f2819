"""The guide's way to a cluster, command by command: a head with a token, a host that joins, one that may not."""

import secrets
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import RayHead, find_free_port, make_variables, needs_ray
from tests.cluster.test_ray import RayHarness
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.executors.protocol import Faulted, NodeLost
from springtide.executors.ray.host_survey import judge
from springtide.executors.ray.ray_executor import KeeperProcess, RayExecutor

pytestmark = needs_ray


@pytest.fixture
def head(tmp_path: Path) -> Iterator[RayHead]:
    with tempfile.TemporaryDirectory(prefix="st-") as temporary:
        made = RayHead(find_free_port(), make_variables(tmp_path / "home", temporary))
        made.start()
        yield made
        made.stop()


@pytest.mark.slow
def test_only_a_host_with_the_token_joins(head: RayHead) -> None:
    wrong = head.run("doctor", "--engine", "ray", "--address", head.address, RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert wrong.returncode == 1 and "does not let us in" in wrong.stdout, wrong.stdout
    turned_away = head.run("join", head.address, "--devices", "1", RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert turned_away.returncode == 1, turned_away.stdout + turned_away.stderr
    host = head.join()
    try:
        said = [""]

        def is_there() -> bool:
            said[0] = head.run("doctor", "--engine", "ray", "--address", head.address).stdout
            return "1 hosts" in said[0] and "1 x cpu" in said[0]

        wait_until(is_there, lambda: said[0])
    finally:
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0


def test_what_is_wrong_with_a_host_is_said() -> None:
    good = {"version": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "nice": 0, "witness": "w", "devices": "1 x cpu"}
    assert judge("blue", good, "w", "/home").problem == ""
    assert "no torch" in judge("blue", {**good, "torch": ""}, "w", "/home").problem
    assert "install the same" in judge("blue", {**good, "version": "0.0.9"}, "w", "/home").problem
    assert "storage that all hosts share" in judge("blue", {**good, "witness": ""}, "w", "/home").problem
    assert "nice 15" in judge("blue", {**good, "nice": 15}, "w", "/home").remark
    assert "springtide[train,ray]" in judge("blue", {"error": "ModuleNotFoundError"}, "w", "/home").problem


@pytest.mark.slow
def test_a_host_joins_again_when_the_head_is_back_and_its_jobs_never_noticed(
    head: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in head.variables.items():
        monkeypatch.setenv(name, value)
    host = head.join()
    executor: RayExecutor | None = None
    try:
        wait_until(lambda: "1 x cpu" in head.run("doctor", "--engine", "ray", "--address", head.address).stdout, str)
        executor = RayExecutor(tmp_path / "home", head.address)
        keeper, harness = executor.keeper, RayHarness(executor, tmp_path)
        trial = Trial(harness, "patient")
        trial.start(Behaviour(steps=100_000, step_s=0.05), devices=harness.devices)
        trial.await_step(5)
        before = keeper.connection["nodes"][0]["id"]
        head.kill()
        wait_until(lambda: keeper.process.poll() is not None, lambda: "the keeper outlived Ray's head")
        head.start()
        wait_until(lambda: has_joined_anew(keeper, before), lambda: f"{keeper.connection}, {keeper.hosts}", 240.0)
        assert [node.name for node in executor.nodes()] == list(keeper.hosts), "it is the host that it was"
        found = trial.find()
        assert found is not None
        trial.await_step(found.step + 5)
        assert not trial.of(Faulted) and not [one for one in executor.events(0) if isinstance(one, NodeLost)]
    finally:
        if executor is not None:
            executor.shutdown()
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0


def has_joined_anew(keeper: KeeperProcess, before: str) -> bool:
    """Whether another node than that one is there, with an agent that runs."""
    nodes = [one["id"] for one in keeper.connection["nodes"]]
    return before not in nodes and any(said.get("up") for said in keeper.hosts.values())
