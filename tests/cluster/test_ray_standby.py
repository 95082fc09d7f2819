"""A standby on another machine than the active server's, on a Ray cluster: it goes on with the lead that is at work."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.private_postgres import find_lack, run_postgres
from benchmarks.takeover import run_platform, take_over
from tests.cluster.ray_clusters import Raylets, needs_ray
from tests.control.test_live import write_job

from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.control.storage.state_dir import StateDir
from springtide.executors.hosts.lead_executor import LeadExecutor
from springtide.executors.local.paths import SOCKET

pytestmark = [
    needs_ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(find_lack()), reason="needs a PostgreSQL server and its driver: make test-postgres"),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="hides a socket by a mount"),
]
EPOCHS = 300


@pytest.fixture
def database() -> Iterator[str]:
    with run_postgres() as url:
        yield url


@pytest.fixture
def raylets() -> Iterator[Raylets]:
    with Raylets((1, 1)) as made:
        yield made


def find_lead(home: Path) -> int:
    """The process of the lead, asked as on its own machine."""
    with contextlib.closing(LeadExecutor(home)) as executor:
        return int(executor.hello()["pid"])


def test_a_standby_on_another_machine_finds_the_lead_and_training_goes_on(
    raylets: Raylets, database: str, tmp_path: Path
) -> None:
    engine, work = ("--engine", "ray", "--address", raylets.address), tmp_path / "work"
    with run_platform(tmp_path / "platform", database) as platform:
        active = platform.start(*engine)
        # What another machine sees of the lead's socket in the home that both share: a file at which nobody listens.
        hide = f'mount --bind /dev/null {platform.home / SOCKET} && exec "$@"'
        standby = platform.start(*engine, "--standby", enter=("unshare", "--mount", "sh", "-c", hide, "elsewhere"))
        lead = find_lead(platform.home)
        with platform.connect() as client:
            job = client.submit(write_job(work, EPOCHS), wait=False)
            client.wait(job.id, lambda document: document.step > 20)
            took_s = take_over(platform, active, standby, signal.SIGKILL)
            print(f"taken over after {took_s:.1f} s")
            assert client.job(job.id).step < 8 * EPOCHS, "it ended before the server did; make it longer"
            ended = client.wait(job.id)
            kinds = [event.kind for event in client.events()]
        assert (ended.state, ended.step, ended.faults) == ("succeeded", 8 * EPOCHS, 0)
        assert "node_lost" not in kinds and find_lead(platform.home) == lead
        assert hash_weights(StateDir(platform.home).checkpoints(job.id)) == train_plainly(work, (), tmp_path / "plain")
