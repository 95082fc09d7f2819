"""Probes that are rescaled and killed on their way, by what `springtide verify` does it with.

A run begins with a process per worker, goes on with one, is killed, goes on from its checkpoint, grows to all but one
and is killed again in its second epoch. Every process that takes the last step must have the digest of an undisturbed
run.
"""

import tempfile
from pathlib import Path

from tests.training.probes.probe_table import LoopProbe

from springtide.errors import TrainingError
from springtide.training.settings import Settings
from springtide.verification.scripted_jobs import Host, ScriptedJob, follow

SCRIPT = Path(__file__).parents[1] / "scripts" / "probe.py"
KILLS = (2, 7)
LONGEST_S = 120.0


def list_changes(workers: int) -> list[tuple[int, tuple[int, ...]]]:
    """The logical workers of each process, from which step on."""
    uneven = (2, *(1,) * (workers - 2)) if workers > 2 else (1,) * workers
    return [(0, (1,) * workers), (1, (workers,)), (3, uneven)]


class DisturbedRuns:
    """Where disturbed runs take place."""

    def __init__(self) -> None:
        self.host: Host | None = None

    def __enter__(self) -> "DisturbedRuns":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.host is not None:
            self.host.close()

    def find_wrong(self, probe: LoopProbe, wanted: str) -> str:
        """What is wrong with a probe that is disturbed; nothing if it ends as it should."""
        self.host = self.host or Host()
        with tempfile.TemporaryDirectory() as name:
            settings = Settings(checkpoint_dir=Path(name, "checkpoints"), checkpoint_every_steps=1)
            job = ScriptedJob(SCRIPT, (probe.name, name), Path(name), settings)
            try:
                run = follow(job, list_changes(probe.workers), KILLS, LONGEST_S, self.host)
            except TrainingError as error:
                return "" if probe.told and probe.told in str(error) else str(error)[-1500:]
            left = [file.read_text() for file in Path(name).glob("digest-*")]
        if probe.told:
            return "" if any(probe.told in one for one in run.warnings) else f"{probe.told!r} was not said"
        if not run.resumed or min(run.resumed) < 1:
            return f"resumed from {run.resumed}, which proves nothing"
        return "" if set(left) == {wanted} else f"{left} instead of {wanted}; {run.warnings}"
