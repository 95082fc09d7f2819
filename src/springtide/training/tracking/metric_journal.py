"""What `run.log` has recorded, in a file: one value per name and step, whatever is killed, resumed or rescaled.

The first line names the run, each further one is a step with its metrics. Only the process of logical worker 0 writes.
A run that takes steps again after a resume logs the same values again: a name's steps only grow, so they are left out.
"""

import errno
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

JOURNAL = "tracking.jsonl"


@dataclass(frozen=True, slots=True)
class LoggedMetrics:
    """A line of the journal: what was logged after `step` steps, at this time since 1970."""

    step: int
    at_s: float
    metrics: Mapping[str, float]


class MetricJournal:
    """The file, open to be written at its end."""

    def __init__(self, file: Path, anew: bool) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        if anew:
            file.unlink(missing_ok=True)
        whole = read_whole(file)
        #: The last step of each name.
        self.last: dict[str, int] = {}
        for line in whole[1:]:
            entry = parse_line(line)
            self.last.update(dict.fromkeys(entry.metrics, entry.step))
        self.handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self.handle, sum(map(len, whole)))  # a line that a kill has cut short is logged again
        if not whole:
            self.write({"run": uuid.uuid4().hex})

    def add(self, step: int, at_s: float, metrics: Mapping[str, float]) -> None:
        """Write what was not logged before."""
        fresh = {name: value for name, value in metrics.items() if step > self.last.get(name, -1)}
        if fresh:
            self.write({"step": step, "at_s": at_s, "metrics": fresh})
            self.last.update(dict.fromkeys(fresh, step))

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line at once, or nothing of it: a kill after this does not lose it."""
        text = json.dumps(line).encode() + b"\n"
        written = os.write(self.handle, text)
        if written < len(text):
            os.ftruncate(self.handle, os.fstat(self.handle).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Have all lines on disk, so that none is missing before the checkpoint that is written next."""
        os.fsync(self.handle)

    def close(self) -> None:
        """Write no more."""
        os.close(self.handle)


def read_whole(file: Path) -> list[bytes]:
    """The lines of a journal up to the first that a kill has cut short, or that a crash of the machine has spoilt."""
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return list(takewhile(is_whole, lines))


def is_whole(line: bytes) -> bool:
    """Whether a line was written to its end."""
    try:
        is_ours = "run" in json.loads(line) or bool(parse_line(line))
    except (ValueError, KeyError, TypeError):
        return False
    return is_ours and line.endswith(b"\n")


def parse_line(line: bytes) -> LoggedMetrics:
    """What a line after the first says."""
    plain = json.loads(line)
    return LoggedMetrics(plain["step"], plain["at_s"], plain["metrics"])


class JournalReader:
    """A journal read from its start, and on as it grows."""

    def __init__(self, file: Path) -> None:
        self.file = file.open("rb")
        self.run: str = json.loads(self.file.readline())["run"]

    def read(self, most: int) -> list[LoggedMetrics]:
        """Up to so many of the lines that follow; none while there are none."""
        found: list[LoggedMetrics] = []
        while len(found) < most:
            place = self.file.tell()
            line = self.file.readline()
            if not line.endswith(b"\n"):
                self.file.seek(place)
                break
            found.append(parse_line(line))
        return found

    def close(self) -> None:
        """Read no more."""
        self.file.close()
