"""The workload script run under any schedule, and compared by bits with stock DDP."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.training.group.rosters import parse_size
from springtide.training.settings import Settings
from springtide.verification.digest_compare import Records, find_difference, read_records
from springtide.verification.scripted_jobs import Host, ScriptedJob, ScriptedRun, follow

SCRIPTS = Path(__file__).parent / "scripts"
WORKLOAD = SCRIPTS / "workload.py"


@dataclass
class EqualityRuns:
    """Runs the workload and compares runs by bits."""

    folder: Path
    host: Host
    count: int = 0
    references: dict[str, Records] = field(default_factory=dict)

    def job(self, asked: dict[str, Any], **settings: Any) -> ScriptedJob:
        """The workload as a job."""
        return ScriptedJob(WORKLOAD, (json.dumps(asked),), self.folder, Settings(**settings))

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
    ) -> tuple[Records, ScriptedRun]:
        """The records and the closed run of a job under a schedule."""
        folder = self.new_folder()
        workers = asked.get("workers", 4)
        job = self.job(asked, trace_dir=folder / "trace", max_steps=steps, **settings)
        plan = [(step, parse_size(size, workers)) for step, size in rosters]
        run = follow(job, plan, kills, 120, self.host)
        return read_records(folder / "trace"), run

    def run_script(
        self, script: Path, rosters: Sequence[tuple[int, str]], kills: Sequence[int] = (), **settings: Any
    ) -> Records:
        """The records of another script with four logical workers, run to its end; with settings, or `arguments`."""
        folder, arguments = self.new_folder(), settings.pop("arguments", ())
        job = ScriptedJob(script, arguments, folder, Settings(trace_dir=folder / "trace", **settings))
        follow(job, [(step, parse_size(size, 4)) for step, size in rosters], kills, 120, self.host)
        return read_records(folder / "trace")

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
