"""What jobs leave in files, to read: the logs of their ranks as one text each, and what `run.log` recorded.

A rank's log is one text from its first byte on, however many files it lies in; a place in it (an offset) stays the same
when files rotate. What was dropped is known by the place at which the oldest file begins (`executors.log_files`).
"""

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, BinaryIO

from springtide.control.storage.private_paths import list_inside, open_plain
from springtide.control.storage.state_dir import StateDir
from springtide.executors.log_files import (
    LOG_NAME,
    NOTES,
    STAMP,
    AttemptNote,
    name_log,
    name_times,
    read_note,
    read_stamps,
)

PAGE_BYTES = 256 * 1024
MOST_METRICS = 10_000
MOST_NOTES = 10_000
#: What is read at once of files that a job's processes may have written over: times, a line, and lines of one request.
MOST_TIMES_BYTES, MOST_LINE_BYTES, MOST_READ_BYTES = 32 << 20, 4 << 20, 64 << 20
TRIES = 5  # to open the files of a log between two rotations


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a log, where it began, where the next one begins, and where the log itself begins and ends."""

    text: str
    offset: int
    next_offset: int
    first_offset: int = 0
    end_offset: int = 0


@dataclass(frozen=True, slots=True)
class LogPiece:
    """One file of a log, open, with its times; `begin` is the place of its first byte."""

    begin: int
    size: int
    file: BinaryIO
    stamps: bytes

    @property
    def end(self) -> int:
        """The place behind its last byte."""
        return self.begin + self.size


@dataclass(frozen=True, slots=True)
class RankLog:
    """The files of a log, oldest first, open."""

    pieces: tuple[LogPiece, ...] = ()

    @property
    def begin(self) -> int:
        """The place of the first byte that is still there."""
        return self.pieces[0].begin if self.pieces else 0

    @property
    def end(self) -> int:
        """The place behind the last byte."""
        return self.pieces[-1].end if self.pieces else 0

    def read(self, offset: int, count: int) -> bytes:
        """Up to so many bytes from a place on."""
        parts: list[bytes] = []
        for piece in self.pieces:
            if count > 0 and piece.begin <= offset < piece.end:
                piece.file.seek(offset - piece.begin)
                part = piece.file.read(min(count, piece.end - offset))
                parts.append(part)
                offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    def stamps(self, offset: int) -> Iterator[bytes]:
        """When the bytes from a place on came, in the form of the files; the first pair is at that place or before."""
        for piece in self.pieces:
            if piece.end > offset or piece is self.pieces[-1]:
                count = len(piece.stamps) // STAMP.size
                later = bisect_right(
                    range(count), offset, key=lambda place: STAMP.unpack_from(piece.stamps, place * STAMP.size)[0]
                )
                yield piece.stamps[max(0, later - 1) * STAMP.size :]


@contextmanager
def open_log(state_dir: StateDir, job_id: str, rank: int) -> Iterator[RankLog]:
    """A rank's log; empty where there is none, or what has its name is no plain file."""
    with ExitStack() as stack:
        log = RankLog()
        for _ in range(TRIES):
            log = RankLog(tuple(open_pieces(state_dir, job_id, rank, stack)))
            if all(older.end == newer.begin for older, newer in pairwise(log.pieces)):
                break
        yield log


def open_pieces(state_dir: StateDir, job_id: str, rank: int, stack: ExitStack) -> Iterator[LogPiece]:
    """The files of a log, oldest first; those before a gap are left out where places are not written down."""
    folder, begin = state_dir.logs(job_id), 0
    for name in list_files(state_dir, job_id, rank):
        try:
            stamps = read_times(state_dir, job_id, name)
            file = stack.enter_context(open_plain(state_dir.root, folder / name))
        except OSError:
            continue
        begin = next(read_stamps(stamps), (begin, 0.0))[0]
        size = os.fstat(file.fileno()).st_size
        yield LogPiece(begin, size, file, stamps)
        begin += size


def list_files(state_dir: StateDir, job_id: str, rank: int) -> list[str]:
    """The names of a rank's log files, oldest first."""
    names = map(LOG_NAME.fullmatch, list_inside(state_dir.root, state_dir.logs(job_id)))
    ages = (int(match[2] or 0) for match in names if match is not None and int(match[1]) == rank)
    return [name_log(rank, age) for age in sorted(ages, reverse=True)]


def list_ranks(state_dir: StateDir, job_id: str) -> list[int]:
    """The ranks that have written something."""
    names = map(LOG_NAME.fullmatch, list_inside(state_dir.root, state_dir.logs(job_id)))
    return sorted({int(match[1]) for match in names if match is not None})


def read_times(state_dir: StateDir, job_id: str, name: str) -> bytes:
    """The times of a log file; none where it is of an earlier version."""
    try:
        with open_plain(state_dir.root, state_dir.logs(job_id) / name_times(name)) as file:
            data = file.read(MOST_TIMES_BYTES)
    except FileNotFoundError:
        return b""
    return data[: len(data) - len(data) % STAMP.size]


def read_log(
    state_dir: StateDir, job_id: str, rank: int, offset: int, tail: int | None = None, active: bool = True
) -> Page:
    """A page of a rank's log from an offset on; one past the end begins anew, one of what was dropped at the rest.

    While the job is active it is cut at the last whole line.
    """
    with open_log(state_dir, job_id, rank) as log:
        begin = find_tail(log, tail) if tail is not None else log.begin if offset > log.end else max(offset, log.begin)
        data = log.read(begin, PAGE_BYTES)
        end = data.rfind(b"\n") + 1
        is_last = not active and begin + len(data) >= log.end
        whole = data if is_last or (not end and len(data) == PAGE_BYTES) else data[:end]
        return Page(whole.decode("utf-8", errors="replace"), begin, begin + len(whole), log.begin, log.end)


def find_tail(log: RankLog, lines: int) -> int:
    """The place at which the last so many lines begin."""
    position = log.end - (log.read(log.end - 1, 1) == b"\n")
    while position > log.begin:
        begin = max(log.begin, position - PAGE_BYTES)
        data = log.read(begin, position - begin)
        count = data.count(b"\n")
        if count >= lines:
            return begin + find_line(data, lines)
        lines, position = lines - count, begin
    return log.begin


def find_line(data: bytes, lines: int) -> int:
    """Where the last so many lines of a text begin that has as many ends of lines, and more after the last."""
    position = len(data)
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
    return position + 1


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; one that is too long comes in pieces."""
    end = file.tell() + MOST_READ_BYTES
    while file.tell() < end and (line := file.readline(MOST_LINE_BYTES)):
        yield line


def read_notes(state_dir: StateDir, job_id: str) -> list[AttemptNote]:
    """What happened to a job's processes, oldest first."""
    try:
        with open_plain(state_dir.root, state_dir.logs(job_id) / NOTES) as lines:
            return [note for line in islice(read_lines(lines), MOST_NOTES) if (note := read_note(line)) is not None]
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """Entries of `run.log`, and where the next page begins; `more` says that it was cut."""

    entries: list[dict[str, Any]]
    next_offset: int = 0
    more: bool = False


def read_metrics(
    state_dir: StateDir, job_id: str, after_step: int, offset: int = 0, tail: int | None = None
) -> MetricsPage:
    """Recorded metrics after a step, one entry per line, at most ten thousand: from an offset on, or the last."""
    try:
        with open_plain(state_dir.root, state_dir.logs(job_id) / "metrics.jsonl") as file:
            size = os.fstat(file.fileno()).st_size
            log = RankLog((LogPiece(0, size, file, b""),))
            file.seek(min(offset, size) if tail is None else find_tail(log, tail))
            return pick_entries(read_lines(file), after_step, file.tell())
    except OSError:
        return MetricsPage([])


def pick_entries(lines: Iterable[bytes], after_step: int, offset: int) -> MetricsPage:
    """The entries after a step, in the order of steps, which is nearly that of lines (`MetricSeries`).

    Lines that are none are passed over, so are pieces of one that is too long, and one that is not yet whole is left.
    """
    found: list[dict[str, Any]] = []
    begin = offset
    for line in lines:
        if len(found) == MOST_METRICS:
            return MetricsPage(sorted(found, key=take_step), offset, more=True)
        if not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES:
            break
        offset += len(line)
        entry = read_entry(line)
        if entry is not None and entry["step"] > after_step:
            found.append(entry)
    return MetricsPage(sorted(found, key=take_step), offset, more=offset - begin >= MOST_READ_BYTES)


def take_step(entry: dict[str, Any]) -> int:
    """The step that an entry is of."""
    step: int = entry["step"]
    return step


def read_entry(line: bytes) -> dict[str, Any] | None:
    """What a line recorded; None where it is no entry."""
    try:
        entry = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.setdefault("step", 0), int):
        return None
    return entry
