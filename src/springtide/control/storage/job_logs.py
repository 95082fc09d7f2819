"""What jobs leave in files: the logs of their ranks, and the metrics that `run.log` recorded.

Only files that the platform has written are read, and no link that a job's user has made is followed.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from springtide.executors.local.safe_files import open_to_read

PAGE_BYTES = 256 * 1024
MOST_METRICS = 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a log, where it began and where the next one begins."""

    text: str
    offset: int
    next_offset: int


def read_log(folder: Path, rank: int, offset: int, tail: int | None = None, active: bool = True) -> Page:
    """A page of a rank's log from an offset on; an offset past the end begins anew.

    While the job is active it is cut at the last whole line. A log that was rotated is shorter than before: its reader
    begins at its start again.
    """
    try:
        with open_to_read(folder / f"rank-{rank}.log") as file:
            return cut_page(file, offset, tail, active)
    except OSError:  # there is none, or what is there is not the platform's
        return Page("", 0, 0)


def cut_page(file: IO[bytes], offset: int, tail: int | None, active: bool) -> Page:
    """A page of an open log."""
    size = file.seek(0, os.SEEK_END)
    begin = find_tail(file, size, tail) if tail is not None else offset if offset <= size else 0
    file.seek(begin)
    data = file.read(PAGE_BYTES)
    end = data.rfind(b"\n") + 1
    is_last = not active and begin + len(data) >= size
    whole = data if is_last or (not end and len(data) == PAGE_BYTES) else data[:end]
    return Page(whole.decode("utf-8", errors="replace"), begin, begin + len(whole))


def find_tail(file: IO[bytes], size: int, lines: int) -> int:
    """The offset at which the last so many lines begin, within the last page."""
    begin = max(0, size - PAGE_BYTES)
    file.seek(begin)
    data = file.read(PAGE_BYTES)
    position = len(data.rstrip(b"\n"))
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return begin
    return begin + position + 1


def read_metrics(folder: Path, after_step: int) -> Iterator[dict[str, Any]]:
    """Recorded metrics after a step, one entry per line, at most ten thousand."""
    with contextlib.suppress(OSError), open_to_read(folder / "metrics.jsonl") as file:
        newer = (entry for line in file if (entry := read_entry(line)) is not None and entry["step"] > after_step)
        yield from itertools.islice(newer, MOST_METRICS)


def read_entry(line: bytes) -> dict[str, Any] | None:
    """The metrics of a step in a line; None if there are none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("step"), int) else None
