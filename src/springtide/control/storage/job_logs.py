"""What jobs leave in files: the logs of their ranks, and the metrics that `run.log` recorded."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    path = folder / f"rank-{rank}.log"
    if not path.is_file():
        return Page("", 0, 0)
    size = path.stat().st_size
    begin = find_tail(path, size, tail) if tail is not None else offset if offset <= size else 0
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(PAGE_BYTES)
    end = data.rfind(b"\n") + 1
    is_last = not active and begin + len(data) >= size
    whole = data if is_last or (not end and len(data) == PAGE_BYTES) else data[:end]
    return Page(whole.decode("utf-8", errors="replace"), begin, begin + len(whole))


def find_tail(path: Path, size: int, lines: int) -> int:
    """The offset at which the last so many lines begin, within the last page."""
    begin = max(0, size - PAGE_BYTES)
    with path.open("rb") as file:
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
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return
    count = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("step", 0) > after_step and count < MOST_METRICS:
                count += 1
                yield entry
