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
from collections.abc import Mapping, Sequence
from pathlib import Path

from springtide.executors.local.jobs import last_words
from springtide.executors.local.safe_files import hold, open_to_append, open_to_read
from springtide.executors.log_files import (
    FILE_BYTES,
    FILES,
    NOTES,
    STAMP,
    AttemptNote,
    name_log,
    name_times,
    read_note,
    read_stamps,
    write_stamp,
)

CHUNK_BYTES = 1 << 16
#: What one pipe may bring per turn of the agent's loop, so that one loud script does not starve the rest.
TURN_BYTES = 1 << 20
#: When output gets a time of its own: this long after the last one, or after this much of it.
SOON_S = 1.0
AT_ONCE_S = 0.1
MANY_BYTES = 64
#: Of how many steps a metric series remembers what it holds.
KEPT_STEPS = 50


class RotatingLog:
    """A file that becomes `name.1` when it is full; `name.1` becomes `name.2`, and the oldest goes.

    Beside each file lies one that says when its bytes came: at once after a pause of a second or a `mark`, else to a
    tenth of a second.
    """

    def __init__(self, path: Path, files: int = FILES, file_bytes: int = FILE_BYTES) -> None:
        self.path = path
        self.files = files
        self.file_bytes = file_bytes
        self.file = open_to_append(path)
        self.size = os.fstat(self.file.fileno()).st_size
        self.times_path = path.with_name(name_times(path.name))
        self.begin = self.find_begin()
        #: How much the rank had written when its present attempt began.
        self.attempt_at = self.end
        self.times = open_to_append(self.times_path)
        #: When what was written last came, by the stamps; nothing comes before it, whatever the clock says.
        self.stamped_s = 0.0
        self.stamped_at = -1
        self.due = True
        if self.size and not measure(self.times_path):  # of an earlier version, which kept no times
            with contextlib.suppress(OSError):
                self.times.write(write_stamp(self.begin, os.fstat(self.file.fileno()).st_mtime))

    @property
    def end(self) -> int:
        """How much the rank has ever written."""
        return self.begin + self.size

    def find_begin(self) -> int:
        """How much was written before the file; of logs without times, what is in the older files."""
        with contextlib.suppress(OSError, StopIteration), open_to_read(self.times_path) as file:
            return next(read_stamps(file.read(STAMP.size)))[0]
        older = (self.path.with_name(f"{self.path.name}.{age}") for age in range(1, self.files))
        return sum(measure(path) for path in older)

    @property
    def attempt_begin(self) -> int:
        """Where in the file the present attempt begins; what it wrote before a rotation is in an older one."""
        return max(0, self.attempt_at - self.begin)

    def begin_attempt(self) -> None:
        """Tell what an attempt will write from what earlier ones wrote."""
        self.attempt_at = self.end

    def mark(self) -> None:
        """Have the next output stamped, however soon it comes: something else has happened before it."""
        self.due = True

    def write(self, data: bytes, at_s: float) -> None:
        """Append; a full disk loses output, never the job."""
        if self.size + len(data) > self.file_bytes and self.size:
            self.rotate()
        self.stamp(at_s)
        with contextlib.suppress(OSError):
            self.size += self.file.write(data) or 0

    def stamp(self, at_s: float) -> None:
        """Write down when what follows came, if that is worth the room."""
        since_s, count = at_s - self.stamped_s, self.end - self.stamped_at
        if not self.due and since_s < SOON_S and (since_s < AT_ONCE_S or count < MANY_BYTES):
            return
        self.stamped_s, self.stamped_at, self.due = max(self.stamped_s, at_s), self.end, False
        with contextlib.suppress(OSError):
            self.times.write(write_stamp(self.end, self.stamped_s))

    def rotate(self) -> None:
        """Start a new file."""
        self.begin, self.size, self.due = self.end, 0, True
        self.close()
        with hold(self.path.parent) as folder:
            for name in (self.path.name, self.times_path.name):
                shift(folder, name, self.files)
        self.file, self.times = open_to_append(self.path), open_to_append(self.times_path)

    def close(self) -> None:
        """Let go of the files."""
        self.file.close()
        self.times.close()


def shift(folder: int, name: str, files: int) -> None:
    """Make every file of a log one older, and the oldest go."""
    names = [name, *(f"{name}.{age}" for age in range(1, files))]
    for newer, older in reversed(list(itertools.pairwise(names))):
        with contextlib.suppress(FileNotFoundError):
            os.replace(newer, older, src_dir_fd=folder, dst_dir_fd=folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def measure(path: Path) -> int:
    """The size of a file; 0 where there is none."""
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def read_tail(path: Path, lines: int = 5, reach: int = 8192, begin: int = 0) -> list[str]:
    """The last lines of a file, or of what comes after `begin` in it, that are not empty."""
    try:
        with open_to_read(path) as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - reach))
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
    """The logs of one job: `rank-K.log` for each rank, `metrics.jsonl`, and notes on its attempts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: dict[int, RotatingLog] = {}
        self.metrics = MetricSeries(folder / "metrics.jsonl")
        self.attempt = find_last_attempt(folder / NOTES)

    def path_of(self, rank: int) -> Path:
        """The newest log file of a rank."""
        return self.folder / name_log(rank)

    def sum_up(self, rank: int) -> str:
        """What a rank said last in the present attempt, in a line: an earlier one ended for reasons of its own."""
        log = self.logs.get(rank)
        if log is None:  # files are opened by what is written
            return ""
        return last_words.sum_up(read_tail(log.path, last_words.REACH, reach=1 << 16, begin=log.attempt_begin))

    def write(self, rank: int, data: bytes, at_s: float) -> None:
        """Append to a rank's log."""
        if rank not in self.logs:
            self.logs[rank] = RotatingLog(self.path_of(rank))
        self.logs[rank].write(data, at_s)

    def write_metrics(self, step: int, metrics: Mapping[str, float], at_s: float) -> None:
        """Keep what a step recorded, between what was printed before it and after it."""
        self.metrics.write(step, metrics, at_s)
        self.mark()

    def mark(self) -> None:
        """Tell what comes from what came, in the log of every rank."""
        for log in self.logs.values():
            log.mark()

    def begin(self, kind: str, devices: Sequence[str], step: int, at_s: float) -> None:
        """Note that an attempt begins: `start`, or `probe`."""
        self.attempt += 1
        for log in self.logs.values():
            log.begin_attempt()
        self.note(kind, devices, step, at_s)

    def note(self, kind: str, devices: Sequence[str], step: int, at_s: float, reason: str = "") -> None:
        """Note something of the present attempt; a full disk loses it."""
        note = AttemptNote(kind, self.attempt, at_s, step, tuple(devices), reason)
        with contextlib.suppress(OSError), open_to_append(self.folder / NOTES) as file:
            file.write(note.write())
        self.mark()

    def close(self) -> None:
        """Let go of all files."""
        for log in self.logs.values():
            log.close()
        self.logs.clear()


def find_last_attempt(path: Path) -> int:
    """The number of the newest attempt that was noted; 0 where none was."""
    notes = (read_note(line.encode()) for line in read_tail(path, lines=20, reach=1 << 16))
    return max((note.attempt for note in notes if note is not None), default=0)


class MetricSeries:
    """Metrics as JSON lines, each step and name once, however often the step was trained.

    Lines may lie a few steps out of order: where rank 0 moves to another process, the last words of the old one and the
    first of the new one come on two lines, and either may be read first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: What was written of the newest steps; all that is not after `floor` counts as written.
        self.written: dict[int, set[str]] = {}
        self.floor = -1
        rows = read_tail(path, lines=KEPT_STEPS, reach=1 << 16)
        for line in rows:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                self.enter(int(row["step"]), set(row["metrics"]))
        if measure(path) > 1 << 16 or len(rows) == KEPT_STEPS:
            self.floor = min(self.written, default=-1)

    def enter(self, step: int, names: set[str]) -> None:
        """Remember what was written, of as many steps as may still come late."""
        self.written.setdefault(step, set()).update(names)
        if len(self.written) > KEPT_STEPS:
            self.floor = min(self.written)
            del self.written[self.floor]

    def write(self, step: int, metrics: Mapping[str, float], at_s: float) -> None:
        """Append what has not been written before; JSON has no number for infinity or none, so they are texts."""
        known = self.written.get(step, set())
        fresh = {name: value for name, value in metrics.items() if name not in known}
        if not fresh or step <= self.floor:
            return
        self.enter(step, set(fresh))
        shown = {name: value if math.isfinite(value) else str(value) for name, value in fresh.items()}
        row = json.dumps({"step": step, "at_s": at_s, "metrics": shown}, allow_nan=False)
        with contextlib.suppress(OSError), open_to_append(self.path) as file:
            file.write(f"{row}\n".encode())
