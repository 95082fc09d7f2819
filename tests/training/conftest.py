"""One warm fork server for all training tests, and a way to run the workload script under any schedule."""

import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from springtide.training.protocol import Settings
from springtide.training.records import Records, find_difference, read_records
from springtide.training.rosters import parse_size
from springtide.training.schedules import follow
from springtide.training.supervision import Job, Supervisor, connect_server, start_server

WORKLOAD = Path(__file__).parent / "scripts" / "workload.py"


@dataclass
class Laboratory:
    """Runs the workload and compares runs by bits."""

    folder: Path
    fork_socket: Path
    count: int = 0
    references: dict[str, Records] = field(default_factory=dict)

    def job(self, asked: dict[str, Any], **settings: Any) -> Job:
        """The workload as a job."""
        return Job(WORKLOAD, (json.dumps(asked),), self.folder, Settings(**settings))

    def new_folder(self) -> Path:
        """A folder nobody has used."""
        self.count += 1
        path = self.folder / f"run{self.count}"
        path.mkdir()
        return path

    def run(
        self,
        asked: dict[str, Any],
        rosters: Sequence[tuple[int, str]],
        kills: Sequence[int] = (),
        steps: int = 10,
        **settings: Any,
    ) -> tuple[Records, Supervisor]:
        """The records and the closed supervisor of a run under a schedule."""
        folder = self.new_folder()
        workers = asked.get("workers", 4)
        job = self.job(asked, trace_dir=folder / "trace", max_steps=steps, **settings)
        plan = [(step, parse_size(size, workers)) for step, size in rosters]
        supervisor = follow(job, plan, kills, 120, self.fork_socket)
        return read_records(folder / "trace"), supervisor

    def reference(self, asked: dict[str, Any], steps: int = 10) -> Records:
        """The records of stock DDP, run once per question."""
        key = json.dumps([asked, steps], sort_keys=True)
        if key not in self.references:
            workers = str(asked.get("workers", 4))
            self.references[key], _ = self.run(asked, [(0, workers)], steps=steps, mode="reference")
        return self.references[key]

    def compare(self, asked: dict[str, Any], *rosters: tuple[int, str], **options: Any) -> None:
        """Assert that a run has the reference's bits at every step."""
        steps = options.get("steps", 10)
        records, _ = self.run(asked, rosters, **options)
        assert find_difference(self.reference(asked, steps), records) is None
        assert len(records) == steps


@pytest.fixture(scope="session")
def fork_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warm fork server that lives as long as the tests."""
    path = tmp_path_factory.mktemp("fork") / "socket"
    process: subprocess.Popen[bytes] = start_server(path)
    holder: socket.socket = connect_server(path, process)
    yield path
    holder.close()
    process.wait(30)


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory, fork_socket: Path) -> Laboratory:
    """A laboratory for all tests of a session."""
    return Laboratory(tmp_path_factory.mktemp("laboratory"), fork_socket)
