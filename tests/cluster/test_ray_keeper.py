"""What is told of a node whose host cannot work: no springtide there, no room, or a lead that refuses it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cluster.ray_clusters import needs_ray

from springtide.errors import ExecutorError
from springtide.executors.hosts.host_folders import note_leave
from springtide.executors.hosts.host_roll import ROLL
from springtide.executors.hosts.lead_address import HOSTS
from springtide.executors.local.paths import LOG
from springtide.executors.protocol import ExecutorNode
from springtide.executors.ray import ray_executor
from springtide.executors.ray.host_actor import HostActor
from springtide.executors.ray.ray_executor import KeeperProcess, RayExecutor, list_hosts

NODE = {"NodeID": "a" * 56, "Alive": True, "NodeManagerHostname": "blue", "NodeManagerAddress": "10.0.0.6"}


class BareRay:
    """A Ray of one node, on which no actor can begin until `is_well`."""

    def __init__(self) -> None:
        self.is_well = False
        self.made = 0
        self.util = SimpleNamespace(list_named_actors=list)

    def nodes(self) -> list[dict[str, Any]]:
        return [{**NODE, "Resources": {"CPU": 1.0}}]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: NODE["NodeID"])

    def remote(self, actor: type) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self.make))

    def make(self, *arguments: object) -> Any:
        self.made += 1
        return SimpleNamespace(look=SimpleNamespace(remote=lambda lead: "asked"))

    def wait(self, asked: list[str], timeout: float) -> tuple[list[str], list[str]]:
        return asked, []

    def get(self, asked: str) -> dict[str, Any]:
        if self.is_well:
            return {"up": True, "said": ""}
        raise RuntimeError("The actor died.\nModuleNotFoundError: No module named 'springtide'\n")


@needs_ray
def test_what_an_actor_died_of_stays_told_until_another_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from springtide.executors.ray import ray_keeper

    ray = BareRay()
    monkeypatch.setattr(ray_keeper, "ray", ray)
    keeper = ray_keeper.RayKeeper(tmp_path, None)
    for _ in range(3):
        keeper.look()
        keeper.look()
        (host,) = keeper.hosts.values()
        assert (host.name, host.said["up"]) == ("blue", False) and "No module named 'springtide'" in host.said["said"]
    assert ray.made == 1, "another is tried when the host is looked at next, not at every turn"
    ray.is_well, host.asked_s = True, 0.0
    monkeypatch.setattr(ray_keeper, "CHECK_S", 0.0)
    keeper.look()
    keeper.look()
    assert ray.made == 2 and host.said["up"]


@needs_ray
def test_who_speaks_with_ray_and_is_ended_by_it_is_told_apart_from_silence(tmp_path: Path) -> None:
    """Ray aborts a process that does not find the sockets of a raylet, as in a container beside Ray's."""
    keeper = KeeperProcess("auto", tmp_path, None)
    keeper.command = [sys.executable, "-c", "import os; os.abort()"]
    with pytest.raises(ExecutorError, match=r"Ray ended the process .*ray\.log says why.*/tmp/ray"):
        keeper.connect()
    assert "Ray ended" in keeper.fault


class BriefAgents(HostActor):
    """Agents that are there when they are looked at, and refused a moment later."""

    agent: "subprocess.Popen[bytes] | None" = None
    seconds = "0.4"

    def start(self) -> int | None:
        (self.state_dir / LOG).write_text("refused: host h1 has springtide 0.0.9, the lead has another\n")
        self.agent = subprocess.Popen(["sleep", self.seconds])
        return self.agent.pid


def test_an_agent_that_is_refused_again_and_again_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    actor = BriefAgents("h1", str(tmp_path), "1")
    first = actor.look()
    assert first["up"], "nothing is known against it yet"
    for _ in range(2):
        assert actor.agent is not None
        actor.agent.wait()
        again = actor.look()
        assert not again["up"] and "has springtide 0.0.9" in again["said"], again
    assert actor.agent is not None
    actor.agent.wait()
    actor.seconds = "60"
    assert not actor.look()["up"]
    assert actor.look()["up"], "one that lasts from one look to the next works"
    assert actor.agent is not None
    actor.agent.kill()
    actor.agent.wait()


def test_an_agent_that_was_told_to_go_is_not_started_again_on_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray drains the node, or `springtide join` ends: the actor lives on for a while, and must not bring it back."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    actor = BriefAgents("h1", str(tmp_path), "1", node="a" * 56)
    actor.seconds = "60"
    assert actor.look()["up"] and actor.agent is not None
    actor.give_notice()
    actor.agent.wait()
    note_leave(actor.state_dir, actor.node)
    first, actor.agent = actor.agent, None
    for _ in range(2):
        gone = actor.look({"host": "10.0.0.5", "port": 1, "token": "secret"})
        assert not (actor.state_dir / HOSTS).exists(), "the token lies on a host that does not serve"
        assert actor.agent is None and (gone["up"], gone["has_left"]) == (False, True), gone
    again = BriefAgents("h1", str(tmp_path), "1", node="b" * 56)
    assert again.look()["up"] and again.agent is not None and again.agent.pid != first.pid, "another raylet: it is back"
    again.agent.wait()


class ToldExecutor(RayExecutor):
    """What an executor says by what it knows."""

    def __init__(self, keeper: Any, nodes: tuple[ExecutorNode, ...]) -> None:
        self.keeper = keeper
        self.known = nodes

    def nodes(self) -> tuple[ExecutorNode, ...]:
        return self.known


def test_a_node_whose_host_cannot_work_is_told_while_others_train() -> None:
    green = ExecutorNode("green.a100", "a100", ("green/gpu:0",)), ExecutorNode("green.cpu", "cpu", ("green/cpu:0",))
    lost = ExecutorNode("blue", "cpu", ("blue/cpu:0",), is_there=False)
    said: dict[str, dict[str, Any]] = {"green": {"up": True, "said": ""}}
    said["blue"] = {"up": False, "said": "No module named 'springtide'"}
    keeper = SimpleNamespace(fault="", hosts=said)
    executor = ToldExecutor(keeper, (*green, lost))
    assert list_hosts(executor.nodes()) == {"green"}, "one host, though it is two nodes"
    assert "blue cannot work (No module named 'springtide')" in executor.outage()
    said["green"] = {"up": False, "said": "no answer within 30 s"}
    assert "green" not in executor.outage(), "its agent serves, whatever becomes of the actor"
    said["blue"] = {"up": False, "said": "", "has_left": True}
    assert executor.outage() == "" and executor.list_left() == {"blue"}, "it was told to go"
    said["blue"] = {"up": True, "said": ""}
    assert executor.outage() == ""
    keeper.fault = "Ray at 10.0.0.5:6379 cannot be reached"
    assert "no other host can be found" in executor.outage()


@pytest.mark.parametrize(("roll", "most_s"), [(None, 1.0), ("h1", 20.0)], ids=["at work", "begun anew"])
def test_one_host_that_does_not_come_keeps_no_server_from_starting_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roll: str | None, most_s: float
) -> None:
    """Its agent runs and cannot reach the lead: it has not joined, was not refused, and has not left."""
    passed = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: passed.append(passed.pop() + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    told = {"green": {"up": True, "said": ""}, "blue": {"up": True, "said": "no lead yet"}}
    keeper = SimpleNamespace(fault="", hosts=told, connection={"nodes": ["1", "2"], "address": "127.0.0.1"})
    keeper.connect = keeper.go = lambda: None
    monkeypatch.setattr(ray_executor, "KeeperProcess", lambda *given: keeper)
    monkeypatch.setattr(RayExecutor, "is_up", roll is None)
    monkeypatch.setattr(RayExecutor, "hello", lambda self: {"refused": {}})
    monkeypatch.setattr(RayExecutor, "nodes", lambda self: (ExecutorNode("green", "cpu", ("green/cpu:0",)),))
    if roll is not None:
        (tmp_path / ROLL).write_text(json.dumps([{"name": roll, "address": "", "devices": []}]))
    RayExecutor(tmp_path)
    assert passed[0] <= most_s
