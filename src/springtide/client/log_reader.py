"""Reads the log of a job from a server as one stream of lines, once or for as long as the job goes on."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from typing import Any

from springtide.client.http_connections import HttpCaller, HttpResponse
from springtide.client.log_streams import (
    LogChoice,
    LogKind,
    LogLine,
    LogTimes,
    compile_pattern,
    cut_blocks,
    find_lines,
    show_metrics,
    show_note,
    split_lines,
)
from springtide.client.replies import AttemptInfo, MetricsInfo

BLOCK_BYTES = 4 << 20
FOLLOW_S = 0.3
MOST_TAIL = 100_000
RANGE = re.compile(r"bytes (\d+)-")


@dataclass(frozen=True, slots=True)
class LogSource:
    """The line to a server, and the paths of a job there."""

    http: HttpCaller
    ask: Callable[..., dict[str, Any]]
    find_error: Callable[[HttpResponse], Exception]
    path: str

    @contextmanager
    def open_text(self, rank: int, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """The bytes of a rank's log from a place on, or from where it begins now, with that place."""
        headers = {"Range": f"bytes={offset}-"}
        with self.http.stream("GET", f"{self.path}/logs/text", params={"rank": rank}, headers=headers) as response:
            if response.status_code >= 400:
                raise self.find_error(response)
            told = RANGE.match(response.headers.get("content-range", ""))
            yield int(told[1]) if told else offset, response.iter_raw()

    def read_times(self, rank: int, offset: int) -> LogTimes:
        """When the bytes of a rank's log from a place on came."""
        response = self.http.get(f"{self.path}/logs/times", params={"rank": rank, "offset": offset})
        if response.status_code >= 400:
            raise self.find_error(response)
        return LogTimes.read(response.content)

    def read_metrics(self, offset: int, tail: int | None = None) -> tuple[list[MetricsInfo], int]:
        """What was recorded from a place on, or the last of it, and where the rest will be."""
        found: list[MetricsInfo] = []
        more = True
        while more:
            chosen = {"offset": offset} if tail is None else {"tail": tail}
            page = self.ask("GET", f"{self.path}/metrics", params=chosen)
            found += map(MetricsInfo.read, page["metrics"])
            offset, more, tail = page.get("next_offset", 0), page.get("more", False), None
        return found, offset

    def read_attempts(self) -> list[AttemptInfo]:
        """What happened to the job's processes."""
        return [AttemptInfo.read(one) for one in self.ask("GET", f"{self.path}/attempts")["attempts"]]

    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return bool(self.ask("GET", f"{self.path}/logs", params={"tail": 1})["ended"])


@dataclass(slots=True)
class LogReader:
    """What of a log was read so far, and the rest."""

    source: LogSource
    choice: LogChoice
    places: dict[int, int] = field(default_factory=dict)
    metrics_place: int = 0
    notes: int = 0

    def read(self, follow: bool = False) -> Iterator[LogLine]:
        """The lines that are wanted; with `follow`, until the job has ended."""
        ended = not follow or self.source.has_ended()
        first = self.read_fresh(hold=not ended, is_first=True)
        yield from first if self.choice.tail is None else deque(first, maxlen=self.choice.tail)
        while not ended:
            time.sleep(FOLLOW_S)
            ended = self.source.has_ended()
            yield from self.read_fresh(hold=not ended)

    def read_fresh(self, hold: bool, is_first: bool = False) -> Iterator[LogLine]:
        """What has come since the last time, in the order of time; with `hold`, lines that may go on are left."""
        kinds = [self.read_notes()] if self.choice.wants(LogKind.NOTE) else []
        if self.choice.wants(LogKind.OUTPUT):
            kinds += [self.read_output(rank, hold, is_first) for rank in self.find_ranks()]
        kinds += [self.read_metrics(is_first)] if self.choice.wants(LogKind.METRICS) else []
        return merge(*kinds, key=lambda line: -inf if line.at_s is None else line.at_s)

    def find_ranks(self) -> tuple[int, ...]:
        """The ranks that are wanted."""
        if self.choice.ranks:
            return self.choice.ranks
        return tuple(self.source.ask("GET", f"{self.source.path}/logs", params={"tail": 1})["ranks"]) or (0,)

    def read_output(self, rank: int, hold: bool, is_first: bool) -> Iterator[LogLine]:
        """What a rank has printed."""
        if rank not in self.places:
            dropped = self.find_start(rank)
            if dropped and is_first:
                told = f"--- {dropped / 1e6:.1f} MB that rank {rank} printed before this are no longer kept"
                yield LogLine(LogKind.NOTE, told, rank)
        with self.source.open_text(rank, self.places[rank]) as (begin, chunks):
            times: LogTimes | None = None
            for place, block in cut_blocks(chunks, begin, BLOCK_BYTES):
                whole = block[: block.rfind(b"\n") + 1] if hold else block
                self.places[rank] = place + len(whole)
                times = times or self.source.read_times(rank, begin)
                for start, line in self.pick_lines(whole, place):
                    yield LogLine(LogKind.OUTPUT, line.decode(errors="replace"), rank, times.find_s(start))

    def pick_lines(self, data: bytes, begin: int) -> Iterator[tuple[int, bytes]]:
        """The lines of a text that are wanted."""
        if not data:
            return iter(())
        pattern = self.choice.pattern
        return split_lines(data, begin) if pattern is None else find_lines(data, begin, compile_pattern(pattern))

    def find_start(self, rank: int) -> int:
        """Set where reading begins; how much is missing before it because it was dropped."""
        choice, path = self.choice, f"{self.source.path}/logs"
        tail = choice.tail if choice.pattern is None and choice.tail is not None else None
        page = self.source.ask("GET", path, params={"rank": rank, "tail": min(tail or 1, MOST_TAIL)})
        begin, end = int(page.get("first_offset", 0)), int(page.get("end_offset", 0))
        if choice.since_s is not None:
            self.places[rank] = self.source.read_times(rank, 0).find_place(choice.since_s, begin, end)
            return 0
        self.places[rank] = int(page["offset"]) if tail is not None and tail <= MOST_TAIL else begin
        return begin if tail is None else 0

    def read_metrics(self, is_first: bool) -> Iterator[LogLine]:
        """What was recorded."""
        choice = self.choice
        tail = choice.tail if is_first and choice.pattern is None and choice.since_s is None else None
        entries, self.metrics_place = self.source.read_metrics(
            self.metrics_place, tail if tail is not None and tail <= MOST_TAIL else None
        )
        for one in entries:
            line = LogLine(LogKind.METRICS, show_metrics(one.step, one.metrics), None, one.at_s)
            if self.is_wanted(line):
                yield line

    def read_notes(self) -> Iterator[LogLine]:
        """What happened to the processes."""
        attempts = self.source.read_attempts()
        fresh, self.notes = attempts[self.notes :], len(attempts)
        for one in fresh:
            text = show_note(one.kind, one.attempt, one.step, one.devices, one.reason)
            line = LogLine(LogKind.NOTE, text, None, one.at_s)
            if self.is_wanted(line):
                yield line

    def is_wanted(self, line: LogLine) -> bool:
        """Whether a line is late enough and has what is looked for."""
        choice = self.choice
        if choice.since_s is not None and (line.at_s is None or line.at_s < choice.since_s):
            return False
        return choice.pattern is None or compile_pattern(choice.pattern).search(line.text) is not None
