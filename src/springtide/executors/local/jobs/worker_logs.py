"""What workers print: taken from pipes, written to files that rotate, and kept per rank.

A worker's output goes through a named pipe to the agent, so a script that prints gigabytes is slowed by the pipe and
never takes more than `FILES` times `FILE_BYTES` of disk per rank. Metrics are one series across restarts: a step that
is trained again is not written again.
"""

import contextlib
import itertools
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from springtide.executors.local.safe_files import hold, open_to_append, open_to_read

FILES = 5
FILE_BYTES = 10 << 20
CHUNK_BYTES = 1 << 16
#: What one pipe may bring per turn of the agent's loop, so that one loud script does not starve the rest.
TURN_BYTES = 1 << 20


class RotatingLog:
    """A file that becomes `name.1` when it is full; `name.1` becomes `name.2`, and the oldest goes."""

    def __init__(self, path: Path, files: int = FILES, file_bytes: int = FILE_BYTES) -> None:
        self.path = path
        self.files = files
        self.file_bytes = file_bytes
        self.file = open_to_append(path)
        self.size = os.fstat(self.file.fileno()).st_size

    def write(self, data: bytes) -> None:
        """Append; a full disk loses output, never the job."""
        if self.size + len(data) > self.file_bytes and self.size:
            self.rotate()
        with contextlib.suppress(OSError):
            self.size += self.file.write(data) or 0

    def rotate(self) -> None:
        """Start a new file."""
        self.file.close()
        with hold(self.path.parent) as folder:
            names = [self.path.name, *(f"{self.path.name}.{number}" for number in range(1, self.files))]
            for newer, older in reversed(list(itertools.pairwise(names))):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(newer, older, src_dir_fd=folder, dst_dir_fd=folder)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path.name, dir_fd=folder)
        self.file = open_to_append(self.path)
        self.size = 0

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()


def read_tail(path: Path, lines: int = 5, reach: int = 8192) -> list[str]:
    """The last lines of a file that are not empty."""
    try:
        with open_to_read(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - reach))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-lines:]


class Pipe:
    """The reading end of one worker's output; a writer waits until it is opened."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self.path = path
        self.handle: int | None = None
        #: Whether there may be more to read.
        self.open = True

    def start(self) -> None:
        """Let the writer begin."""
        if self.handle is None:
            self.handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """For selectors; no file before the start."""
        return -1 if self.handle is None else self.handle

    def read(self, limit: int = TURN_BYTES) -> bytes:
        """What is there, up to a limit; `open` becomes False when the writers have gone."""
        if self.handle is None:
            return b""
        chunks: list[bytes] = []
        size = 0
        with contextlib.suppress(BlockingIOError):
            while size < limit:
                chunk = os.read(self.handle, CHUNK_BYTES)
                if not chunk:
                    self.open = False
                    break
                chunks.append(chunk)
                size += len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        """Let go of the pipe."""
        if self.handle is not None:
            os.close(self.handle)
        self.path.unlink(missing_ok=True)


class JobLogs:
    """The logs of one job: `rank-K.log` for each rank, and `metrics.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: dict[int, RotatingLog] = {}
        self.metrics = MetricSeries(folder / "metrics.jsonl")

    def path_of(self, rank: int) -> Path:
        """The newest log file of a rank."""
        return self.folder / f"rank-{rank}.log"

    def write(self, rank: int, data: bytes) -> None:
        """Append to a rank's log."""
        if rank not in self.logs:
            self.logs[rank] = RotatingLog(self.path_of(rank))
        self.logs[rank].write(data)

    def close(self) -> None:
        """Let go of all files."""
        for log in self.logs.values():
            log.close()
        self.logs.clear()


class MetricSeries:
    """Metrics as JSON lines, each step and name once, however often the step was trained."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step = -1
        self.names: set[str] = set()
        for line in read_tail(path, lines=50, reach=1 << 16):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                self.enter(int(row["step"]), set(row["metrics"]))

    def enter(self, step: int, names: set[str]) -> None:
        """Remember what was written last."""
        self.names = names | (self.names if step == self.step else set())
        self.step = step

    def write(self, step: int, metrics: Mapping[str, float], at_s: float) -> None:
        """Append what has not been written before; JSON has no number for infinity or none, so they are texts."""
        if step < self.step:
            return
        known = self.names if step == self.step else set()
        fresh = {name: value for name, value in metrics.items() if name not in known}
        if not fresh:
            return
        self.enter(step, set(fresh))
        shown = {name: value if math.isfinite(value) else str(value) for name, value in fresh.items()}
        row = json.dumps({"step": step, "at_s": at_s, "metrics": shown}, allow_nan=False)
        with contextlib.suppress(OSError), open_to_append(self.path) as file:
            file.write(f"{row}\n".encode())
