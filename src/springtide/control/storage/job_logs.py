"""What jobs leave in files: the logs of their ranks, and the metrics that `run.log` recorded."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from springtide.control.storage.private_paths import open_plain
from springtide.control.storage.state_dir import StateDir

PAGE_BYTES = 256 * 1024
MOST_METRICS = 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a log, where it began and where the next one begins."""

    text: str
    offset: int
    next_offset: int


def read_log(
    state_dir: StateDir, job_id: str, rank: int, offset: int, tail: int | None = None, active: bool = True
) -> Page:
    """A page of a rank's log from an offset on; an offset past the end begins anew.

    While the job is active it is cut at the last whole line. A log that was rotated is shorter than before: its reader
    begins at its start again. What is no log but a link to something else reads as empty.
    """
    try:
        with open_plain(state_dir.root, state_dir.logs(job_id) / f"rank-{rank}.log") as file:
            return read_page(file, offset, tail, active)
    except OSError:
        return Page("", 0, 0)


def read_page(file: BinaryIO, offset: int, tail: int | None, active: bool) -> Page:
    """A page of an open log."""
    size = file.seek(0, os.SEEK_END)
    begin = find_tail(file, size, tail) if tail is not None else offset if offset <= size else 0
    file.seek(begin)
    data = file.read(PAGE_BYTES)
    end = data.rfind(b"\n") + 1
    is_last = not active and begin + len(data) >= size
    whole = data if is_last or (not end and len(data) == PAGE_BYTES) else data[:end]
    return Page(whole.decode("utf-8", errors="replace"), begin, begin + len(whole))


def find_tail(file: BinaryIO, size: int, lines: int) -> int:
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


def read_metrics(state_dir: StateDir, job_id: str, after_step: int) -> list[dict[str, Any]]:
    """Recorded metrics after a step, one entry per line, at most ten thousand."""
    try:
        with open_plain(state_dir.root, state_dir.logs(job_id) / "metrics.jsonl") as lines:
            return list(islice(pick_entries(lines, after_step), MOST_METRICS))
    except OSError:
        return []


def pick_entries(lines: Iterable[bytes], after_step: int) -> Iterator[dict[str, Any]]:
    """The entries after a step; lines that are none are passed over."""
    for line in lines:
        try:
            entry = json.loads(line.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            continue
        step = entry.get("step", 0) if isinstance(entry, dict) else None
        if isinstance(step, int) and step > after_step:
            yield entry
