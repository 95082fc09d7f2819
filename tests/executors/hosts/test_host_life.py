"""Hosts that die, fall silent, leave with notice or may not join; a lead that dies. Bits are those of one machine."""

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import HostsHarness, LoopbackCluster, wait_until

from springtide.executors.hosts.host_folders import has_left
from springtide.executors.hosts.lead_address import HOSTS, read_lead
from springtide.executors.protocol import (
    Checkpointed,
    Event,
    Faulted,
    Finished,
    JobSpec,
    NodeJoined,
    NodeLeaving,
    NodeLost,
    Resized,
    Started,
    Stop,
    Stopped,
)

LONG = Behaviour(steps=150, step_s=0.02)


class Wire:
    """What lies between a host and the lead: it can be cut, so that nothing gets through and nobody is told."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.is_cut = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.ended = False
        self.listener.settimeout(0.1)
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.accept, self.carry)]
        for thread in self.threads:
            thread.start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def accept(self) -> None:
        while not self.ended:
            with contextlib.suppress(OSError):
                near, _ = self.listener.accept()
                near.settimeout(None)
                try:
                    self.pairs.append((near, socket.create_connection(("127.0.0.1", self.target))))
                except OSError:
                    near.close()

    def carry(self) -> None:
        while not self.ended:
            if self.is_cut:
                time.sleep(0.01)
                continue
            others = {one: other for pair in self.pairs for one, other in (pair, pair[::-1])}
            for one in select.select(list(others), [], [], 0.01)[0]:
                self.pass_on(one, others[one])

    def pass_on(self, one: socket.socket, other: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = one.recv(1 << 16)
        with contextlib.suppress(OSError):
            other.sendall(data)
        if not data:
            self.pairs = [pair for pair in self.pairs if one not in pair]
            one.close()
            other.close()

    def close(self) -> None:
        self.ended = True
        for thread in self.threads:
            thread.join()
        for one in (self.listener, *(end for pair in self.pairs for end in pair)):
            one.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path)
    yield made
    made.close()


def start_two(cluster: LoopbackCluster) -> Trial:
    """Two hosts, and a job that will train on both."""
    cluster.start_host("h1", "1", "--node", "n1")
    cluster.start_host("h2", "1", "--node", "n1")
    cluster.wait_for_hosts("h1", "h2")
    return Trial(HostsHarness(cluster), "job")


def list_told(cluster: LoopbackCluster, kind: type[Event]) -> list[Event]:
    return [event for event in cluster.executor.events(0) if isinstance(event, kind)]


def list_trainers(cluster: LoopbackCluster, host: str) -> list[int]:
    """The processes of jobs on a host, which are named after their job."""
    return [process.pid for process in cluster.list_processes(host) if process.name().startswith("p0 ")]


def move(trial: Trial, devices: tuple[str, ...]) -> Started:
    """End what is left of a job and start it elsewhere, as a server does after the loss of a node."""
    before = len(trial.of(Started))
    trial.send(Stop, reason="node_lost", grace_s=0.0)
    trial.await_event(Stopped)
    trial.start(LONG, devices=devices)
    return trial.await_event(Started, before + 1)


def train_alone(cluster: LoopbackCluster) -> str:
    """The weights of the same job, undisturbed on one host."""
    trial = Trial(HostsHarness(cluster), "alone")
    trial.start(LONG, devices=("h1/cpu:0",))
    return trial.await_event(Finished).weights


def test_a_job_goes_on_with_the_same_bits_after_a_host_was_killed(cluster: LoopbackCluster) -> None:
    trial = start_two(cluster)
    trial.start(LONG, devices=trial.both)
    saved = trial.await_event(Checkpointed).step
    cluster.kill_host("h2")
    wait_until(lambda: bool(list_told(cluster, NodeLost)), lambda: "the loss was not told")
    assert move(trial, trial.first).step >= saved
    finished = trial.await_event(Finished)
    assert not any(fault.user_fault for fault in trial.of(Faulted)), "a lost host was judged as a crash of the script"
    assert finished.weights == train_alone(cluster) != ""


@pytest.mark.slow
def test_a_host_that_is_cut_off_ends_its_guests_before_they_count_as_gone(cluster: LoopbackCluster) -> None:
    wire = Wire(read_lead(cluster.home).port)
    behind = cluster.folder / "behind"
    behind.mkdir()
    text = (cluster.home / HOSTS).read_text().replace(str(wire.target), str(wire.port))
    (behind / HOSTS).write_text(text)
    cluster.start_host("h1")
    cluster.start_host("h2", "1", home=behind)
    cluster.wait_for_hosts("h1", "h2")
    trial = Trial(HostsHarness(cluster), "job")
    trial.start(LONG, devices=trial.both[1:])
    trial.await_event(Checkpointed)
    wire.is_cut = True
    wait_until(lambda: bool(list_told(cluster, NodeLost)), lambda: "the loss was not told")
    assert list_trainers(cluster, "h2"), "its processes cannot know yet that they are lost"
    trial.send(Stop, reason="node_lost", grace_s=0.0)
    trial.await_event(Stopped)
    assert not list_trainers(cluster, "h2"), "the job counts as gone, and a process of it trains on"
    trial.start(LONG, devices=trial.first)
    wire.is_cut = False
    cluster.wait_for_hosts("h1", "h2")
    assert trial.await_event(Finished).weights == train_alone(cluster)
    assert len(trial.of(Finished)) == 1
    wire.close()


class Sleepers(HostsHarness):
    """Jobs that need nobody: no lead, no store and no other process."""

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        (self.cluster.folder / "sleep.py").write_text("import time\ntime.sleep(600)\n")
        spec = super().make_spec(job, behaviour)
        return replace(spec, argv=("python", "sleep.py"), folder=str(self.cluster.folder), elastic=False)


@pytest.mark.slow
def test_the_guests_of_an_agent_that_is_stopped_end_before_they_count_as_gone(cluster: LoopbackCluster) -> None:
    cluster.start_host("h1")
    cluster.wait_for_hosts("h1")
    trial = Trial(Sleepers(cluster, ("h1/cpu:0",)), "job")
    trial.start()
    wait_until(lambda: bool(list_trainers(cluster, "h1")), lambda: cluster.log_of("h1"))
    cluster.agents["h1"].send_signal(signal.SIGSTOP)
    wait_until(lambda: bool(list_told(cluster, NodeLost)), lambda: "the loss was not told")
    assert list_trainers(cluster, "h1"), "they cannot know yet that they are lost"
    trial.send(Stop, reason="node_lost", grace_s=0.0)
    trial.await_event(Stopped)
    assert not list_trainers(cluster, "h1"), "the job counts as gone, and a process of it goes on"
    cluster.agents["h1"].send_signal(signal.SIGCONT)
    cluster.wait_for_hosts("h1")
    trial.start()
    wait_until(lambda: bool(list_trainers(cluster, "h1")), lambda: cluster.log_of("h1"))


@pytest.mark.slow
def test_jobs_outlive_their_lead_in_their_checkpoints(cluster: LoopbackCluster) -> None:
    trial = start_two(cluster)
    trial.start(LONG, devices=trial.both)
    saved = trial.await_event(Checkpointed).step
    os.kill(cluster.executor.hello()["pid"], signal.SIGKILL)
    fault = trial.await_event(Faulted)
    assert fault.cause == "agent_lost"
    assert trial.await_event(Started, 2).step >= saved
    assert trial.await_event(Finished).weights == train_alone(cluster)
    assert not list_told(cluster, NodeLost), "both hosts have come back to the new lead"


@pytest.mark.slow
def test_a_host_that_does_not_come_back_to_a_new_lead_is_lost(cluster: LoopbackCluster) -> None:
    start_two(cluster)
    lead = cluster.executor.hello()["pid"]
    os.kill(lead, signal.SIGSTOP)
    cluster.kill_host("h2")
    os.kill(lead, signal.SIGKILL)
    wait_until(lambda: bool(list_told(cluster, NodeLost)), lambda: "the loss was not told")
    (lost,) = list_told(cluster, NodeLost)
    assert isinstance(lost, NodeLost) and lost.node == "h2" and "has not come back" in lost.reason
    assert cluster.list_there() == ["h1"]


@pytest.mark.slow
@pytest.mark.parametrize("leaving", [0, 1], ids=["first rank's", "last rank's"])
def test_a_host_that_is_told_to_go_waits_until_its_guests_have_left(cluster: LoopbackCluster, leaving: int) -> None:
    trial, hosts = start_two(cluster), ("h1", "h2")
    trial.start(replace(LONG, steps=400), devices=trial.both)
    trial.await_step(5)
    cluster.agents[hosts[leaving]].send_signal(signal.SIGTERM)
    wait_until(lambda: bool(list_told(cluster, NodeLeaving)), lambda: "the notice was not told")
    trial.resize((trial.both[1 - leaving],))
    resized = trial.await_event(Resized)
    assert cluster.agents.pop(hosts[leaving]).wait(60) == 0
    cluster.wait_for_hosts(hosts[1 - leaving])
    assert has_left(cluster.state_of(hosts[leaving]), "n1"), "whoever started it does not start it there again"
    trial.await_step(resized.step + 20)
    assert not trial.of(Faulted), "it left in place"


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [("token", "another", "token of h1 is not this cluster's"), ("port", "1", "no lead yet")],
)
def test_a_host_without_the_token_or_the_way_is_told_why(
    cluster: LoopbackCluster, field: str, value: str, word: str
) -> None:
    strange, lead = cluster.folder / "strange", read_lead(cluster.home)
    strange.mkdir()
    text = (cluster.home / HOSTS).read_text().replace(str(getattr(lead, field)), value)
    (strange / HOSTS).write_text(text)
    cluster.start_host("h1", "1", home=strange)
    wait_until(lambda: word in cluster.log_of("h1"), lambda: cluster.log_of("h1"))
    assert cluster.list_there() == []
    if field == "token":
        assert cluster.agents["h1"].wait(30) == 2
    else:
        cluster.kill_host("h1")


def test_a_host_that_does_not_see_the_home_is_told_why(cluster: LoopbackCluster) -> None:
    cluster.start_host("h1", "1", home=cluster.folder / "nowhere")
    wait_until(lambda: "storage that all hosts share" in cluster.log_of("h1"), lambda: cluster.log_of("h1"))
    cluster.kill_host("h1")
    (cluster.home / "hosts.witness").write_text("of another storage")
    cluster.start_host("h2")
    assert cluster.agents["h2"].wait(60) == 2
    assert "does not see the lead's" in cluster.executor.hello()["refused"]["h2"]
    assert not list_told(cluster, NodeJoined)


def test_a_job_for_a_host_that_the_lead_has_forgotten_waits_for_it(cluster: LoopbackCluster) -> None:
    """The server may still count with a node that the lead has forgotten; its jobs failed for good there."""
    cluster.start_host("h1")
    cluster.wait_for_hosts("h1")
    trial = Trial(HostsHarness(cluster), "job")
    trial.start(Behaviour(steps=3), devices=("h2/cpu:0",))
    time.sleep(1.0)
    trial.listen()
    assert not trial.heard
    cluster.start_host("h2")
    trial.await_event(Finished)
