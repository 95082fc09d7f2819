"""Copies in the memory of hosts: a job that lost a host goes on from the last of them, with its bits."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import HostsHarness, LoopbackCluster, wait_until
from tests.executors.hosts.test_host_life import list_told

from springtide.executors.hosts.host_memory import KEPT_S, ROOT, HostMemory
from springtide.executors.hosts.host_messages import OpenStart
from springtide.executors.local.jobs.places import PLAIN_JOB
from springtide.executors.local.paths import make_mark
from springtide.executors.protocol import Checkpointed, Faulted, Finished, JobSpec, NodeLost, Started, Stop, Stopped

LONG = Behaviour(steps=250, step_s=0.02)


class RarelySaved(HostsHarness):
    """Jobs that save nothing before their end."""

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        spec = super().make_spec(job, behaviour)
        return replace(spec, checkpoint=replace(spec.checkpoint, every_s=3600.0))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path)
    yield made
    made.close()


def list_copies(cluster: LoopbackCluster, host: str) -> list[Path]:
    """The whole copies on a host."""
    (folder,) = ROOT.glob(f"springtide-*-{make_mark(cluster.state_of(host))}")
    return list(folder.glob("*/*/step-*/manifest.json"))


@pytest.mark.skipif(not ROOT.is_dir(), reason="there is no file system in memory")
@pytest.mark.parametrize("lost", ["h1", pytest.param("h2", marks=pytest.mark.slow)])
def test_after_the_loss_of_a_host_a_job_goes_on_from_the_memory_of_the_other(
    cluster: LoopbackCluster, lost: str
) -> None:
    for host in ("h1", "h2"):
        cluster.start_host(host)
    cluster.wait_for_hosts("h1", "h2")
    trial = Trial(RarelySaved(cluster), "job")
    trial.start(LONG, devices=trial.both)
    left = "h2" if lost == "h1" else "h1"
    wait_until(lambda: bool(list_copies(cluster, left)), lambda: f"no copy: {cluster.log_of(left)}")
    cluster.kill_host(lost)
    wait_until(lambda: bool(list_told(cluster, NodeLost)), lambda: "the loss was not told")
    assert not trial.of(Checkpointed), "nothing is on disk yet"
    trial.send(Stop, reason="node_lost", grace_s=0.0)
    trial.await_event(Stopped)
    trial.start(LONG, devices=(f"{left}/cpu:0",))
    assert trial.await_event(Started, 2).step > 0, "it began anew"
    trial.await_event(Checkpointed)
    finished = trial.await_event(Finished)
    assert not any(fault.user_fault for fault in trial.of(Faulted))
    assert not list_copies(cluster, left), "a job that is done leaves none"
    alone = Trial(RarelySaved(cluster), "alone")
    alone.start(LONG, devices=(f"{left}/cpu:0",))
    assert finished.weights == alone.await_event(Finished).weights != ""


def order(start: str, before: str = "", **fields: object) -> OpenStart:
    return OpenStart("open", start, "job", replace(PLAIN_JOB, **fields), {}, "", before, 7)  # type: ignore[arg-type]


class OpenMemory(Protocol):
    def __call__(self, mark: str, root: Path) -> HostMemory: ...


@pytest.fixture
def open_memory() -> Iterator[OpenMemory]:
    """Makes the folders of agents, which are let go at the end."""
    with ExitStack() as stack:

        def make(mark: str, root: Path) -> HostMemory:
            memory = HostMemory(mark, root)
            stack.callback(memory.close)
            return memory

        yield make


def test_a_start_may_go_on_from_the_start_before_it_and_from_no_other(tmp_path: Path, open_memory: OpenMemory) -> None:
    memory = open_memory("mark", tmp_path)
    first = Path(memory.open(order("job/1"), 0.0)["SPRINGTIDE_MEMORY_DIR"])
    (first / "step-7").mkdir(parents=True)
    told = memory.open(order("job/2", "job/1"), 1.0)
    assert told["SPRINGTIDE_MEMORY_BEFORE"] == str(first) and (first / "step-7").is_dir()
    assert told["SPRINGTIDE_MEMORY_HEARD"] == "7"
    later = memory.open(order("job/4", "job/3"), 2.0)
    assert not first.exists(), "the job was elsewhere meanwhile: what is left here is of the past"
    assert not Path(later["SPRINGTIDE_MEMORY_BEFORE"]).exists()


def test_what_a_job_has_left_goes_after_a_while(tmp_path: Path, open_memory: OpenMemory) -> None:
    memory = open_memory("mark", tmp_path)
    own = Path(memory.open(order("job/1"), 0.0)["SPRINGTIDE_MEMORY_DIR"])
    own.mkdir(parents=True)
    memory.sweep({"job"}, 10.0)
    memory.sweep((), KEPT_S)
    assert own.exists()
    memory.sweep((), KEPT_S + 10.0)
    assert not own.exists() and not memory.seen_s
    assert memory.open(order("job/1", run_as="ann"), 0.0) == memory.open(order("job/1", elastic=False), 0.0) == {}


def test_a_folder_of_somebody_else_or_no_memory_means_no_copies(tmp_path: Path, open_memory: OpenMemory) -> None:
    before = open_memory("mark", tmp_path)
    (before.folder / "left").mkdir()
    assert open_memory("mark", tmp_path).is_usable and not (before.folder / "left").exists()
    before.close()
    before.folder.symlink_to(tmp_path)
    for memory in (open_memory("mark", tmp_path), open_memory("mark", tmp_path / "nowhere")):
        assert not memory.is_usable and memory.open(order("job/1"), 0.0) == {}


def test_what_a_killed_agent_left_goes_with_the_next_and_nothing_else(tmp_path: Path, open_memory: OpenMemory) -> None:
    mine, alive = open_memory("dead", tmp_path), open_memory("alive", tmp_path)
    assert mine.lock is not None
    mine.lock.close()  # as the kernel does for a process that ends
    strange = tmp_path / f"springtide-{os.getuid()}-link"
    strange.symlink_to(tmp_path / "elsewhere")
    young = open_memory("young", tmp_path)
    assert young.lock is not None
    young.lock.close()
    for folder in (mine.folder, alive.folder):
        os.utime(folder, (0, 0))
    open_memory("next", tmp_path)
    assert not mine.folder.exists() and alive.folder.is_dir() and young.folder.is_dir() and strange.is_symlink()
    assert not (tmp_path / "elsewhere").exists()
