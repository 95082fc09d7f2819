"""What a job printed and recorded as one stream of lines in the order of time, from the bytes and times of its logs.

Pure: the client asks a server for them.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from springtide.errors import InputError

STAMP = struct.Struct("<Qd")  # as `executors.log_files` writes it


class LogKind(StrEnum):
    """What a line is: printed, recorded by `run.log`, or a note of the platform."""

    OUTPUT = "output"
    METRICS = "metrics"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's log; `rank` is None where it is of the whole job, `at_s` where nobody wrote it down."""

    kind: LogKind
    text: str
    rank: int | None = None
    at_s: float | None = None

    @property
    def at(self) -> datetime | None:
        """When it came."""
        return None if self.at_s is None else datetime.fromtimestamp(self.at_s, UTC)

    @property
    def document(self) -> dict[str, Any]:
        """The line as JSON."""
        at = None if self.at is None else self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"kind": str(self.kind), "at": at, "rank": self.rank, "text": self.text}


@dataclass(frozen=True, slots=True)
class LogTimes:
    """When the bytes of a log came: ascending places, and the time of what follows each."""

    places: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes) -> "LogTimes":
        """From the form in which servers send them."""
        pairs = list(STAMP.iter_unpack(data[: len(data) - len(data) % STAMP.size]))
        return cls([place for place, _ in pairs], [at_s for _, at_s in pairs])

    def find_s(self, place: int) -> float | None:
        """When the byte at a place came."""
        index = bisect_right(self.places, place) - 1
        return self.times_s[index] if index >= 0 else None

    def find_place(self, since_s: float, begin: int, end: int) -> int:
        """From which place of a log on everything came after a time; from its beginning where nobody knows."""
        index = bisect_right(self.times_s, since_s)
        return begin if not self.places else max(begin, self.places[index]) if index < len(self.places) else end


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which lines are wanted: from these ranks (none: all that wrote), how many, since when, and what is in them."""

    ranks: tuple[int, ...] = (0,)
    tail: int | None = None
    since_s: float | None = None
    pattern: str | None = None
    only: LogKind | None = None

    def wants(self, kind: LogKind) -> bool:
        """Whether lines of a kind are wanted."""
        return self.only in (None, kind)


def compile_pattern(pattern: str) -> "re.Pattern[str]":
    """A regular expression of a user's."""
    try:
        return re.compile(pattern, re.ASCII if pattern.isascii() else 0)
    except re.error as error:
        raise InputError(
            f"--grep {pattern!r} is not a regular expression: {error}; put \\ before a sign that is meant"
        ) from None


def split_lines(data: bytes, begin: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a text, each with its place."""
    for line in data.split(b"\n") if not data.endswith(b"\n") else data[:-1].split(b"\n"):
        yield begin, line
        begin += len(line) + 1


def find_lines(data: bytes, begin: int, pattern: "re.Pattern[str]") -> Iterator[tuple[int, bytes]]:
    """The lines of a text in which a pattern is found, each with its place; what is ASCII is searched as a whole."""
    if not pattern.pattern.isascii():
        found = split_lines(data, begin)
        yield from ((place, line) for place, line in found if pattern.search(line.decode(errors="replace")))
        return
    search, position = re.compile(pattern.pattern.encode(), re.MULTILINE), 0
    while position < len(data) and (match := search.search(data, position)) is not None:
        start = data.rfind(b"\n", 0, match.start()) + 1
        stop = data.find(b"\n", match.start())
        stop = len(data) if stop < 0 else stop
        if pattern.search(data[start:stop].decode(errors="replace")):
            yield begin + start, data[start:stop]
        position = stop + 1


def cut_blocks(chunks: Iterable[bytes], begin: int, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """A stream of bytes in blocks of whole lines, each with its place; the last may end within a line."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        end = chunk.rfind(b"\n") + 1
        if size >= block_bytes and end:
            rest = chunk[end:]
            block = b"".join([*held[:-1], chunk[:end]])
            yield begin, block
            begin, held, size = begin + len(block), [rest], len(rest)
    if size:
        yield begin, b"".join(held)


def show_metrics(step: int, metrics: dict[str, float]) -> str:
    """What a step recorded, as a line."""
    return f"step {step}: " + " ".join(f"{name}={value:.6g}" for name, value in metrics.items())


def show_note(kind: str, attempt: int, step: int, devices: tuple[str, ...], reason: str) -> str:
    """What happened to a job's processes, as a line."""
    where = f"on {', '.join(devices)}"
    match kind:
        case "probe":
            return f"--- probe (attempt {attempt}) {where}"
        case "start":
            return f"--- attempt {attempt} {where}" + (f", after step {step}" if step else "")
        case "resize":
            return f"--- resized at step {step}: {where}"
        case _:
            return f"--- attempt {attempt} ended at step {step}: {reason}"
