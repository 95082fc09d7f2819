"""The folder of a job's checkpoints as the agent sees it: which is the newest, how large it is, whether it is new.

Reads names and sizes only; what a checkpoint holds is the business of `training.checkpoints`.
"""

import contextlib
from pathlib import Path


class CheckpointFolder:
    """The checkpoints of one job, and the newest of them that was seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = self.find_step()

    def find_newest(self) -> Path | None:
        """The newest whole checkpoint: their names sort by step, and the manifest is written last."""
        whole = [path.parent for path in self.folder.glob("step-*/manifest.json")]
        return max((path for path in whole if path.name.removeprefix("step-").isdigit()), default=None)

    def find_step(self) -> int:
        """The step of the newest checkpoint; -1 if there is none."""
        newest = self.find_newest()
        return int(newest.name.removeprefix("step-")) if newest is not None else -1

    def measure(self) -> int:
        """The bytes of the newest checkpoint; 0 if there is none."""
        newest = self.find_newest()
        with contextlib.suppress(OSError):
            return sum(file.stat().st_size for file in newest.iterdir()) if newest is not None else 0
        return 0

    def find_new(self) -> int | None:
        """The step of a checkpoint newer than any seen before."""
        step = self.find_step()
        if step <= self.seen:
            return None
        self.seen = step
        return step
