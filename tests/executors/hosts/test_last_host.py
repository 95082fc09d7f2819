"""The last host that takes work is told to go: its jobs save within the notice, and go on when it is back."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.test_live import follow, write_job
from tests.executors.hosts.loopback_cluster import LoopbackCluster

from springtide.client.packing import pack
from springtide.control.clock import SystemClocks
from springtide.control.scheduling.machines.inventory import name_inventory
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.archives import unpack
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import check_job


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path)
    yield made
    made.close()


def test_a_job_on_the_only_host_saves_before_it_goes_and_goes_on_when_it_is_back(cluster: LoopbackCluster) -> None:
    cluster.start_host("h1", "1", "--notice-s", "8")
    cluster.wait_for_hosts("h1")
    home = StateDir(cluster.home, several_hosts=True).make()
    told = write_job(cluster.folder / "work", 100, checkpoint={"every": "1h"})
    archive = pack(Path(str(told.pop("workdir"))))
    unpack(archive.data, home.code / archive.code_hash)
    store = Store(f"sqlite:///{home.database}")
    site = name_inventory(cluster.executor.nodes())
    reconciler = Reconciler(store, cluster.executor, site, home, SystemClocks(), ServerOptions())
    job = Operations(reconciler).submit(Submission(check_job(told, "test"), archive.code_hash, "ann"))
    follow(reconciler, job, lambda record: record.step > 40)
    cluster.agents["h1"].send_signal(signal.SIGTERM)
    saved = follow(reconciler, job, lambda record: cluster.agents["h1"].poll() is not None)
    assert cluster.agents.pop("h1").returncode == 0
    cluster.start_host("h1")
    ended = follow(reconciler, job, lambda record: not record.active)
    started = [int(event.data["step"]) for event in store.events(job) if event.kind == "started"]
    store.close()
    assert started[0] == 0 and len(started) == 2, "nothing was started on a host that goes"
    assert started[1] == saved.step > 40, "steps that were made before the notice, or within it, were lost"
    assert all("-g" in path.name for path in home.checkpoints(job).iterdir()), "several hosts may write here"
    assert (ended.state, ended.step, ended.faults, ended.lost_steps) == ("succeeded", 800, 0, 0)
