"""Live jobs on hosts that share no disk: code by digest, secrets in memory, checkpoints in an S3-compatible store."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import HostsHarness, LoopbackCluster, wait_until
from tests.executors.hosts.test_host_faults import SlowWire
from tests.objects.s3_server import BUCKET, S3Server

from springtide.executors.hosts.lead_address import HOSTS
from springtide.executors.protocol import (
    Checkpointed,
    CheckpointFailing,
    Event,
    Failed,
    Faulted,
    Finished,
    JobSpec,
    NodeLost,
    Progressed,
    Started,
    Stop,
    Stopped,
)
from springtide.objects.folder_copies import read_list
from springtide.objects.object_store import ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="a host is kept from the home by unshare (util-linux)"),
]
LONG = Behaviour(steps=150, step_s=0.02)
SECRET = "only-in-memory-9d1f"


class ApartCluster(LoopbackCluster):
    """Hosts that see the lead's home as an empty folder, and have been told where the lead is."""

    def start_apart(self, host: str) -> None:
        self.state_of(host).mkdir()
        shutil.copy(self.home / HOSTS, self.state_of(host) / HOSTS)
        self.start_host(host)

    def enter(self, host: str) -> list[str]:
        own = [] if os.geteuid() == 0 else ["--map-root-user"]
        hide = f'mount -t tmpfs none {self.home} && exec "$@"'
        return ["unshare", *own, "--mount", "sh", "-c", hide, "host"]


@dataclass
class RemoteHarness(HostsHarness):
    """Jobs whose checkpoints go to the store."""

    folder: str = "apart"
    generation: int = 0

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        plain = super().make_spec(job, behaviour)
        self.generation += 1
        url = f"s3://{BUCKET}/{self.folder}/{job}"
        secrets = self.cluster.home / f"{job}.secrets"
        secrets.write_text(json.dumps({"SECRET": SECRET}))
        return replace(
            plain,
            argv=("python", "train.py", str(behaviour.steps), str(behaviour.step_s)),
            folder=str(Path(__file__).with_name("apart_job")),
            checkpoint=replace(plain.checkpoint, url=url, generation=self.generation, output_url=f"{url}/output"),
            env={"PYTHONPATH": os.environ["PYTHONPATH"]},
            secrets_file=str(secrets),
        )


@contextmanager
def run_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> Iterator[ApartCluster]:
    """Two hosts, and a lead that knows the way to the store."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    made = ApartCluster(folder, storage=f"s3://{BUCKET}")
    for name in environ:
        monkeypatch.delenv(name)  # hosts are not told by their own environment
    made.start_apart("h1")
    made.start_apart("h2")
    made.wait_for_hosts("h1", "h2")
    yield made
    made.close()


@pytest.fixture
def cluster(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApartCluster]:
    with run_cluster(tmp_path, monkeypatch, s3.environ) as made:
        yield made


@pytest.fixture
def slow_cluster(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApartCluster]:
    """The same, and a store to which every piece takes its time."""
    wire = SlowWire(int(s3.url.rpartition(":")[2]))
    slow = {**s3.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{wire.port}"}
    with run_cluster(tmp_path, monkeypatch, slow) as made:
        yield made
    wire.close()


def list_told(cluster: LoopbackCluster, kind: type[Event]) -> list[Event]:
    return [event for event in cluster.executor.events(0) if isinstance(event, kind)]


def train_alone(harness: RemoteHarness) -> str:
    """The weights of the same job, undisturbed on one host."""
    trial = Trial(harness, "alone")
    trial.start(LONG, devices=("h1/cpu:0",))
    return trial.await_event(Finished).weights


def find_files(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_a_job_goes_on_from_the_store_after_a_host_was_killed_with_the_same_bits(
    cluster: ApartCluster, s3: S3Server
) -> None:
    harness = RemoteHarness(cluster)
    trial = Trial(harness, "job")
    trial.start(LONG, devices=trial.both)
    saved = trial.await_event(Checkpointed).step
    cluster.kill_host("h2")
    wait_until(lambda: bool(list_told(cluster, NodeLost)), lambda: "the loss was not told")
    trial.send(Stop, reason="node_lost", grace_s=0.0)
    trial.await_event(Stopped)
    trial.start(LONG, devices=trial.first)
    assert trial.await_event(Started, 2).step >= saved
    assert trial.await_event(Finished).weights == train_alone(harness) != ""
    assert not any(fault.user_fault for fault in trial.of(Faulted))
    logs = cluster.folder / "job" / "logs"
    printed = (logs / "rank-0.log").read_text().splitlines()
    assert printed.count(f"a secret of {len(SECRET)} letters") == 2, "what it printed is with the lead"
    numbers = {json.loads(line)["step"] for line in (logs / "metrics.jsonl").read_text().splitlines()}
    assert numbers == set(range(LONG.steps)), "what it recorded is with the lead"
    assert not list((cluster.folder / "job" / "checkpoints").rglob("*.safetensors")), "here are receipts only"
    assert not find_files(cluster.state_of("h1"), SECRET), "a secret lies on a host's disk"
    copied = read_list(ObjectStore(f"s3://{BUCKET}/apart/job/output", s3.environ))
    assert {"report.txt", "last.txt"} <= copied.keys(), "what it wrote after its last step is in the store"


def test_a_job_that_needs_the_home_is_refused_by_a_host_that_does_not_see_it(cluster: ApartCluster) -> None:
    harness = RemoteHarness(cluster)
    spec = harness.make_spec("given", LONG)
    named = replace(spec, checkpoint=replace(spec.checkpoint, url="", is_given=True))
    trial = Trial(harness, "given")
    trial.harness = ReadyMade(cluster, spec=named)
    trial.start(LONG)
    failed = trial.await_event(Failed)
    assert "host h1: it does not see the server's home" in failed.reason and not failed.user_fault
    assert "name a URL in checkpoint.dir" in failed.reason


@dataclass
class ReadyMade(HostsHarness):
    """One spec, whatever is asked for."""

    spec: JobSpec | None = None

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        assert self.spec is not None
        return self.spec


def test_training_goes_on_while_a_slow_store_takes_a_checkpoint(slow_cluster: ApartCluster) -> None:
    trial = Trial(RemoteHarness(slow_cluster, folder="slow"), "slow")
    trial.start(Behaviour(steps=400, step_s=0.02), devices=trial.both)
    trial.await_event(Finished)
    saved = trial.of(Checkpointed)[0]
    place = trial.heard.index(saved)
    reached = [event.step for event in trial.heard[:place] if isinstance(event, Progressed)]
    assert max(reached) > saved.step, "it made steps between the copy in memory and the word of the store"
    assert not trial.of(Faulted) and not trial.of(CheckpointFailing), "slow is not broken"
