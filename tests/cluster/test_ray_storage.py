"""The whole platform on a Ray cluster whose hosts share no disk: `springtide serve --engine ray --storage s3://...`."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from tests.cluster.ray_clusters import Raylets, kill_host, needs_ray
from tests.executors.hosts.loopback_cluster import wait_until
from tests.objects.s3_server import BUCKET, S3Server, run_s3

from springtide.cli.demo_scenario import train_plainly
from springtide.client.client import Client
from springtide.executors.local.executor import LocalExecutor
from springtide.objects.object_store import ObjectStore

pytestmark = [
    needs_ray,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="hosts are kept from the home by unshare (util-linux)"),
]
SPRINGTIDE = Path(sys.executable).with_name("springtide")
STEPS = 400
TRAIN = """
import os, time
import torch
import springtide

run = springtide.init(logical_workers=2, seed=0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=4)
pause_s = float(os.environ.get("PAUSE_S", "0"))
for epoch in run.steps(STEPS):
    for step in loader:
        for x, y in step:
            ((model(x) - y) ** 2).mean().backward()
            time.sleep(pause_s)
        optimizer.step(); optimizer.zero_grad()
if run.is_main:
    (run.output_dir / "deep").mkdir(exist_ok=True)
    (run.output_dir / "deep" / "report.txt").write_text("written after the last step")
    print("all is written", flush=True)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with run_s3() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def raylets(home: Path) -> Iterator[Raylets]:
    """Two nodes that see an empty folder where the home is, and have no credentials."""
    own = () if os.geteuid() == 0 else ("--map-root-user",)
    hide = f'mount -t tmpfs none {home} && exec "$@"'
    with Raylets((1, 1), enter=("unshare", *own, "--mount", "sh", "-c", hide, "hosts")) as made:
        yield made


@contextlib.contextmanager
def serve(home: Path, address: str, storage: str, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`springtide serve`, as a user types it; it has ended afterwards, and its agents with it."""
    command = [str(SPRINGTIDE), "serve", "--engine", "ray", "--address", address, "--port", "0", "-o", "json"]
    server = subprocess.Popen(
        [*command, "--storage", storage],
        env={**os.environ, **variables, "SPRINGTIDE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield server
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        LocalExecutor(home).shutdown()


def connect(server: subprocess.Popen[str], home: Path) -> Client:
    """A client of a server that is starting."""
    wait_until(lambda: (home / "server.json").exists() or server.poll() is not None, lambda: "no server", 180.0)
    assert server.poll() is None, server.communicate()
    return Client(home=home)


def write_job(folder: Path) -> dict[str, object]:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN.replace("STEPS", str(STEPS)))
    variables = {"PAUSE_S": "0.02", "PYTHONPATH": os.environ["PYTHONPATH"]}
    return {"run": "python train.py", "workdir": str(folder), "checkpoint": {"every": "0.5s"}, "env": variables}


def test_a_job_on_hosts_without_a_shared_disk_is_killed_resumed_and_fetched(
    raylets: Raylets, s3: S3Server, home: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    with serve(home, raylets.address, f"s3://{BUCKET}/whole", s3.environ) as server, connect(server, home) as client:
        hosts = sorted({one.node for one in client.nodes()})
        job = client.submit(write_job(work), wait=False)
        client.wait(job.id, lambda document: len(document.devices) == 2 and document.step > 60)
        kill_host(home, hosts[1])
        ended = client.wait(job.id)
        assert (ended.state, ended.step) == ("succeeded", STEPS), ended
        assert "node_lost" in [event.kind for event in client.events()]
        began = [event.data.get("step", 0) for event in client.events(job.id) if event.kind == "started"]
        assert len(began) > 1 and began[-1] > 0, "it went on from a checkpoint, which only the storage has"
        plain = train_plainly(work, (), tmp_path / "plain")
        brought = client.fetch(job.id, tmp_path / "fetched").weights
        assert hashlib.sha256(brought.read_bytes()).hexdigest() == plain != ""
        check_tree(client, job.id, tmp_path / "files")
        assert client.receipt(job.id)["final"]["weights_sha256"] == plain
        assert "all is written" in "".join(client.logs(job.id))
        client.stop()
    assert not list(home.rglob("*.safetensors")), "the server's disk has receipts only"
    kept = ObjectStore(f"s3://{BUCKET}/whole/jobs/{job.id}/output", s3.environ).list("files")
    assert "files/deep/report.txt" in kept


def check_tree(client: Client, job: str, folder: Path) -> None:
    """What `springtide ls` and `fetch --outputs` have of it, though it is on no disk of the server's."""
    listed = {one.path: one for one in client.files(job)}
    assert "output/deep/report.txt" in listed and "output/chain.jsonl" in listed
    weights = [path for path in listed if path.endswith("model.safetensors")]
    assert weights and all(listed[path].sha256 for path in weights)
    brought = client.fetch_files(job, ["output", weights[-1]], folder)
    assert {str(path.relative_to(folder)) for path in brought} >= {"output/deep/report.txt", weights[-1]}
    assert (folder / "output" / "deep" / "report.txt").read_text() == "written after the last step"


@pytest.mark.parametrize(
    ("storage", "change", "told"),
    [
        ("s3://no-such-bucket/jobs", {}, "check the URL, the bucket, and the credentials"),
        (f"s3://{BUCKET}/jobs", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "check the URL, the bucket"),
        (f"file:///{BUCKET}", {}, "must be object storage"),
        ("ftp://somewhere/jobs", {}, "has the scheme 'ftp'"),
        ("s3://me:secret@bucket/jobs", {}, "holds no credentials"),
    ],
    ids=["bucket", "address", "folder", "scheme", "password"],
)
def test_storage_that_cannot_be_used_is_refused_before_anything_is_started(
    s3: S3Server, home: Path, storage: str, change: dict[str, str], told: str
) -> None:
    nowhere = "127.0.0.1:9"  # the storage is looked at before Ray is
    with serve(home, nowhere, storage, {**s3.environ, **change}) as server:
        _, said = server.communicate(timeout=120)
    assert server.returncode == 2 and told in said and "secret@" not in said, said
    ours = [one for one in psutil.process_iter(["cmdline"]) if str(home) in " ".join(one.info["cmdline"] or [])]
    assert ours == [], "nothing was started for it"
