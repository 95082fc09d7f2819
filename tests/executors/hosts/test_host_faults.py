"""Hosts that are slow, have another clock, no torch or no room: each is told in a sentence, or costs nothing."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from benchmarks.host_networks import NamespaceCluster, can_make_networks
from tests.executors.conformance.trials import SCRIPT, Behaviour, Trial
from tests.executors.hosts.loopback_cluster import HostsHarness, LoopbackCluster, wait_until
from tests.executors.hosts.test_host_life import Wire, list_told

from springtide.executors.hosts.device_watch import DeviceWatch
from springtide.executors.hosts.lead_address import HOSTS, read_lead
from springtide.executors.local.discovery import Device, Discovery
from springtide.executors.protocol import Failed, Faulted, Finished, JobSpec, NodeLeaving, NodeLost

SHORT = Behaviour(steps=60, step_s=0.02)
HOUR_S = 3600


@dataclass
class WrappedCluster(LoopbackCluster):
    """Hosts of which each is started by a command of its own."""

    words: tuple[str, ...] = ()

    def enter(self, host: str) -> list[str]:
        return list(self.words)


@dataclass
class ChangedHarness(HostsHarness):
    """Jobs of which one field is another."""

    python: str | None = None
    patience_s: float | None = None

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        return replace(super().make_spec(job, behaviour), python=self.python, patience_s=self.patience_s)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path)
    yield made
    made.close()


def train(harness: HostsHarness, name: str, *devices: str) -> Trial:
    trial = Trial(harness, name)
    trial.start(SHORT, devices=devices)
    trial.await_event(Finished)
    return trial


class SlowWire(Wire):
    """Every piece takes its time."""

    delay_s = 0.2

    def pass_on(self, one: socket.socket, other: socket.socket) -> None:
        time.sleep(self.delay_s)
        super().pass_on(one, other)


@pytest.mark.slow
def test_a_host_behind_a_slow_line_is_not_lost(cluster: LoopbackCluster) -> None:
    wire = SlowWire(read_lead(cluster.home).port)
    behind = cluster.folder / "behind"
    behind.mkdir()
    (behind / HOSTS).write_text((cluster.home / HOSTS).read_text().replace(str(wire.target), str(wire.port)))
    cluster.start_host("h1")
    cluster.start_host("h2", home=behind)
    cluster.wait_for_hosts("h1", "h2")
    trial = train(HostsHarness(cluster), "slow", "h1/cpu:0", "h2/cpu:0")
    assert not trial.of(Faulted) and not list_told(cluster, NodeLost)
    wire.close()


@pytest.mark.slow
def test_a_host_whose_clocks_are_an_hour_ahead_trains_the_same_bits(tmp_path: Path) -> None:
    ahead = ("unshare", "--time", "--fork", "--kill-child", "--monotonic", str(HOUR_S), "--boottime", str(HOUR_S))
    if os.geteuid() != 0 or shutil.which("unshare") is None or not Path("/proc/self/ns/time").exists():
        pytest.skip("a host gets other clocks by a time namespace, which needs root and Linux 5.6")
    cluster = WrappedCluster(tmp_path, words=ahead)
    try:
        cluster.start_host("h2")
        cluster.words = ()
        cluster.start_host("h1")
        cluster.wait_for_hosts("h1", "h2")
        harness = HostsHarness(cluster)
        together = train(harness, "together", "h1/cpu:0", "h2/cpu:0")
        alone = train(harness, "alone", "h1/cpu:0")
        assert together.of(Finished)[0].weights == alone.of(Finished)[0].weights != ""
        assert not together.of(Faulted) and not list_told(cluster, NodeLost)
        took_s = [event.moment_s for event in together.heard]
        assert took_s == sorted(took_s) and took_s[-1] - took_s[0] < HOUR_S, "moments are the lead's own"
    finally:
        cluster.close()


def test_a_job_whose_python_has_no_torch_on_the_host_fails_with_what_to_do(cluster: LoopbackCluster) -> None:
    bare = cluster.folder / "bare" / "bin" / "python"
    bare.parent.mkdir(parents=True)
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # an interpreter without packages
    bare.chmod(0o755)
    cluster.start_host("h1")
    cluster.wait_for_hosts("h1")
    trial = Trial(ChangedHarness(cluster, python=str(bare)), "bare")
    trial.start(SHORT)
    failed = trial.await_event(Failed)
    assert failed.code == "wrong_version" and f"python {bare} has no springtide with torch" in failed.reason
    assert "install springtide[train]==" in failed.reason


@pytest.mark.slow
def test_a_host_whose_disk_is_full_leaves_and_its_job_goes_on_elsewhere(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a small disk is made by mount, which needs root")
    state = tmp_path / "host-h1"
    (state / "code").mkdir(parents=True)
    hide = f'mount -t tmpfs none {tmp_path}/home && mount -t tmpfs -o size=128k none {state}/code && exec "$@"'
    cluster = WrappedCluster(tmp_path, storage="s3://nowhere", words=("unshare", "--mount", "sh", "-c", hide, "host"))
    try:
        (state / HOSTS).write_bytes((cluster.home / HOSTS).read_bytes())
        cluster.start_host("h1")
        cluster.words = ()
        cluster.start_host("h2")
        cluster.wait_for_hosts("h1", "h2")
        (cluster.folder / "large").mkdir()
        (cluster.folder / "large" / SCRIPT.name).write_text(SCRIPT.read_text() + "#" * (1 << 20))
        trial = Trial(LargeHarness(cluster), "large")
        trial.start(Behaviour(steps=200, step_s=0.02), devices=("h2/cpu:0",))
        trial.await_step(5)
        trial.resize(("h2/cpu:0", "h1/cpu:0"))
        fault = trial.await_event(Faulted)
        assert (fault.cause, fault.user_fault) == ("host_failed", False)
        assert "host h1: its code cannot be had" in fault.reason and "No space left" in fault.reason
        (told,) = list_told(cluster, NodeLeaving)
        assert isinstance(told, NodeLeaving) and told.node == "h1" and "No space left" in told.reason
        trial.resize(("h2/cpu:0",))  # as a server does when it hears that
        trial.await_event(Finished)
        assert not trial.of(Failed) and cluster.agents["h1"].wait(60) == 0
    finally:
        cluster.close()


class LargeHarness(HostsHarness):
    """A job with more code than the host has room for; it needs no home."""

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        return replace(super().make_spec(job, behaviour), folder=str(self.cluster.folder / "large"))


@pytest.mark.slow
@pytest.mark.parametrize("helped", [True, False], ids=["one is drained", "nobody helps"])
def test_two_hosts_that_cannot_reach_each_other_are_named(tmp_path: Path, helped: bool) -> None:
    """Both answer the lead, so neither is lost; their job stands still, and says between whom the network is cut.

    If nobody does anything, the second start on both goes no further either, and the third is on one of them.
    """
    if not can_make_networks():
        pytest.skip("hosts get networks of their own by namespaces, which needs root and ip")
    cluster = NamespaceCluster(tmp_path)
    try:
        cluster.start_host("h1")
        cluster.start_host("h2")
        cluster.wait_for_hosts("h1", "h2")
        harness = ChangedHarness(cluster, patience_s=4.0)
        trial, behaviour = Trial(harness, "parted"), Behaviour(steps=150, step_s=0.02)
        trial.start(behaviour, devices=trial.both)
        trial.await_step(20)
        cluster.network.part()
        fault = trial.await_event(Faulted)
        assert not fault.user_fault and "though hosts h1, h2 all answer" in fault.reason, fault
        assert not list_told(cluster, NodeLost)
        if helped:
            trial.resize(trial.first)  # as after `springtide nodes drain h2`
        else:
            assert "it goes on on h1 alone" in trial.await_event(Faulted, 2).reason
        weights = trial.await_event(Finished).weights
        alone = Trial(harness, "alone")
        alone.start(behaviour, devices=trial.first)
        assert weights == alone.await_event(Finished).weights != ""
    finally:
        cluster.close()


SMI = """#!/bin/sh
case "$1" in --query-gpu*) cat {rows};; esac
"""
GPU = "{index}, GPU-{index}, NVIDIA A100, 40960, [N/A]\n"


def test_a_gpu_that_disappears_is_offered_no_more_and_its_host_stays(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, tool = cluster.folder / "rows", cluster.folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SMI.format(rows=rows))
    tool.chmod(0o755)
    rows.write_text(GPU.format(index=0) + GPU.format(index=1))
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    cluster.start_host("h1", "1", "--look-s", "0.2")
    cluster.wait_for_hosts("h1")

    def offered() -> tuple[str, ...]:
        return tuple(name for node in cluster.executor.nodes() if node.is_there for name in node.devices)

    assert offered() == ("h1/gpu:0", "h1/gpu:1")
    rows.write_text(GPU.format(index=0))
    wait_until(lambda: offered() == ("h1/gpu:0",), lambda: f"{offered()}, {cluster.log_of('h1')}")
    (told,) = list_told(cluster, NodeLeaving)
    assert isinstance(told, NodeLeaving)
    assert "nvidia-smi does not list gpu:1 any more; it joins again with 1 devices" in told.reason
    rows.write_text(GPU.format(index=0) + GPU.format(index=1))
    wait_until(lambda: len(offered()) == 2, lambda: f"{offered()}, {cluster.log_of('h1')}")


def test_a_gpu_is_believed_to_be_gone_when_two_looks_agree() -> None:
    one, two = (Device(f"gpu:{index}", "a100", f"GPU-{index}") for index in (0, 1))
    watch = DeviceWatch(Discovery((one, two)), lambda: Discovery(()), every_s=3600.0)
    for seen, change in (((one,), None), ((one, two), None), ((one,), None), ((one,), (one,)), ((one,), None)):
        watch.judge(seen)
        assert watch.take_change() == change
    watch.close()


def test_a_driver_that_gives_no_answer_has_lost_no_gpu() -> None:
    one, looks = Device("gpu:0", "a100", "GPU-0"), iter(range(100))

    def look() -> Discovery:
        if next(looks) % 2:
            raise OSError("too many open files")
        return Discovery((), problem="nvidia-smi ended with code 18: driver/library version mismatch")

    watch = DeviceWatch(Discovery((one,)), look, every_s=0.001)
    wait_until(lambda: next(looks) > 20, lambda: "the watch has ended")
    assert watch.take_change() is None and watch.thread.is_alive()
    watch.close()
