"""The agent's memory on disk: every instruction it accepted and every event not yet acknowledged.

One append-only file of JSON lines, synced before anything in it is answered or shown. Reading it back gives the jobs
that should run, the generations seen and the events to deliver, so an agent killed at any moment goes on from it.
A last line cut short was never acted on and is dropped. Each line has a checksum: one that was damaged, or says what
cannot be, is set aside in a file of its own, and the rest counts. The journal is rewritten when most of it is history.
Only its owner can read it, because jobs' variables are in it.
"""

import contextlib
import io
import json
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from springtide.executors import wire
from springtide.executors.delivery import Freshness, Outbox, SeenGenerations
from springtide.executors.local.paths import open_private, replace_to_append
from springtide.executors.protocol import (
    FINAL,
    Cancel,
    Event,
    Faulted,
    Instruction,
    Probe,
    Progressed,
    Resize,
    ScriptInfo,
    Start,
    Started,
    Stop,
)

#: The key of a job in a file that was rewritten; the word is that of the first journals.
ASSIGNED = "standing"
#: Lines beyond what a rewrite would leave.
HISTORY_LIMIT = 5_000
#: No server has seen so many events; one that says so is wrong.
HIGHEST_NUMBER = 1 << 53
#: Generations are remembered for so many jobs, newest first.
GENERATIONS_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """A job that should hold devices: its start, and what has become of it since."""

    order: Start | Probe
    generation: int
    devices: tuple[str, ...]
    ending: Stop | Cancel | None = None
    crashes: int = 0
    step: int = 0
    logical_workers: int | None = None
    #: Logical workers on each device; empty: spread evenly.
    workers: tuple[int, ...] = ()


_ASSIGNED: TypeAdapter[AssignedJob] = TypeAdapter(AssignedJob)


class Journal:
    """The file and what it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generations = SeenGenerations()
        self.outbox = Outbox()
        self.jobs: dict[str, AssignedJob] = {}
        self.written = 0
        self.unwritten = b""
        #: What is wrong with each line that was set aside when the file was read.
        self.set_aside: list[str] = []
        #: Why the last sync failed; empty if it did not.
        self.failure = ""
        #: Whether the disk has refused what the file had taken: the next sync could pass though it is not there.
        self.is_doubtful = False
        self.load()
        self.file = self.make_file()

    @property
    def bad_path(self) -> Path:
        """Where lines are kept that could not be read."""
        return self.path.with_name(f"{self.path.name}.bad")

    def load(self) -> None:
        """Read the file back; a line that cannot be read is set aside."""
        text = self.path.read_bytes() if self.path.exists() else b""
        bad = [
            line for number, line in enumerate(text.splitlines(keepends=True), 1) if not self.load_line(number, line)
        ]
        if bad:
            with open(self.bad_path, "ab", opener=open_private) as file:
                file.writelines(bad)

    def load_line(self, number: int, line: bytes) -> bool:
        """Replay one line; False if it cannot be read. One without its end was never acted on."""
        if not line.endswith(b"\n"):
            return True
        try:
            self.load_record(read_line(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.set_aside.append(f"line {number} ({error.__class__.__name__})")
            return False
        return True

    def load_record(self, record: dict[str, Any]) -> None:
        """Replay one record; all of it, or an error and nothing."""
        if "instruction" in record:
            instruction = wire.load_instruction(record["instruction"])
            self.generations.record(instruction)
            self.apply_instruction(instruction)
        elif "event" in record:
            event = wire.load_event(record["event"])
            self.outbox.waiting.append(event)
            self.outbox.last = max(self.outbox.last, event.seq)
            self.apply_event(event)
        elif "acknowledged" in record:
            self.outbox.acknowledge(int(record["acknowledged"]))
        elif ASSIGNED in record:
            assigned = _ASSIGNED.validate_python(record[ASSIGNED])
            self.jobs[assigned.order.job] = assigned
        elif "seen" in record:
            seen, last = {job: (int(one), str(key)) for job, (one, key) in record["seen"].items()}, int(record["last"])
            self.generations.seen |= seen
            self.outbox.last = max(self.outbox.last, last)

    def renumber(self, after: int) -> None:
        """Number the waiting events anew from a number on that was given out once, if a line that said so was lost."""
        waiting = self.outbox.waiting
        if self.set_aside and self.outbox.last < after < HIGHEST_NUMBER:
            self.outbox.waiting = [replace(event, seq=after + number) for number, event in enumerate(waiting, 1)]
            self.outbox.last = after + len(waiting)
            self.rewrite()

    def accept(self, instruction: Instruction) -> Freshness:
        """Judge an instruction, and write it down if it is new."""
        freshness = self.generations.judge(instruction)
        if freshness is Freshness.NEW:
            self.generations.record(instruction)
            self.append({"instruction": wire.dump_instruction(instruction)})
            self.apply_instruction(instruction)
        return freshness

    def add_event(self, event: Event, at_s: float) -> Event:
        """Number an event and write it down. It may be shown after the next `sync`."""
        numbered = self.outbox.add(event, at_s)
        self.append({"event": wire.dump_event(numbered)})
        self.apply_event(numbered)
        return numbered

    def acknowledge(self, upto: int) -> None:
        """Drop the events up to a number, and rewrite the file when most of it is history."""
        self.outbox.acknowledge(upto)
        self.append({"acknowledged": upto})
        if self.written - len(self.outbox.waiting) - len(self.jobs) > HISTORY_LIMIT:
            with contextlib.suppress(OSError):
                self.rewrite()

    def apply_instruction(self, instruction: Instruction) -> None:
        """Keep the jobs that should run up to date with an instruction."""
        match instruction:
            case Start() | Probe():
                assigned = AssignedJob(instruction, instruction.generation, instruction.devices)
                workers = instruction.workers if isinstance(instruction, Start) else ()
                self.jobs[instruction.job] = replace(assigned, workers=workers)
            case Resize(generation=generation, devices=devices, workers=workers):
                self.change(instruction.job, generation=generation, devices=devices, workers=workers)
            case Stop() | Cancel():
                self.change(instruction.job, generation=instruction.generation, ending=instruction)

    def apply_event(self, event: Event) -> None:
        """Keep the jobs that should run up to date with an event."""
        match event:
            case Progressed() | Started():
                self.change(event.job, step=event.step)
            case ScriptInfo():
                self.change(event.job, logical_workers=event.logical_workers)
            case Faulted(user_fault=True) if event.job in self.jobs:
                self.change(event.job, crashes=self.jobs[event.job].crashes + 1)
            case _ if isinstance(event, FINAL):
                self.jobs.pop(event.job, None)

    def change(self, job: str, **fields: Any) -> None:
        """Replace fields of a job, if it is there."""
        if job in self.jobs:
            self.jobs[job] = replace(self.jobs[job], **fields)

    def append(self, record: dict[str, Any]) -> None:
        """Add a line, on disk after the next `sync`."""
        self.unwritten += write_line(record)
        self.written += 1

    def sync(self) -> bool:
        """Have all lines on disk; False if the disk does not take them, which the next call tries again."""
        if not self.unwritten and not self.failure:
            return True
        try:
            if self.is_doubtful:
                self.replace()
            else:
                self.write_out()
        except OSError as error:
            self.failure = f"the journal {self.path} cannot be written: {error.strerror}"
            return False
        self.failure = ""
        return True

    def write_out(self) -> None:
        """Append what waits, and have it on disk."""
        while self.unwritten:
            self.unwritten = self.unwritten[self.file.write(self.unwritten) :]
        self.is_doubtful = True
        os.fsync(self.file.fileno())
        self.is_doubtful = False

    def rewrite(self) -> None:
        """Replace the file by one without history; a full disk leaves it as it is."""
        if self.sync():
            self.replace()

    def replace(self) -> None:
        """Replace the file by one that says all that is known now, and no more."""
        before, self.file = self.file, self.make_file()
        before.close()
        self.unwritten, self.is_doubtful = b"", False

    def make_file(self) -> io.FileIO:
        """A new file in the place of the one there is, to append to."""
        records = self.summarise()
        file = replace_to_append(self.path, b"".join(map(write_line, records)))
        self.written = len(records)
        return file

    def summarise(self) -> list[dict[str, Any]]:
        """The fewest lines that say what is known now."""
        seen = dict(list(self.generations.seen.items())[-GENERATIONS_LIMIT:])
        return [
            *({"event": wire.dump_event(event)} for event in self.outbox.waiting),
            *({ASSIGNED: _ASSIGNED.dump_python(assigned, mode="json")} for assigned in self.jobs.values()),
            {"seen": seen, "last": self.outbox.last},
        ]

    def close(self) -> None:
        """Sync and let go of the file."""
        self.sync()
        self.file.close()


def write_line(record: dict[str, Any]) -> bytes:
    """A record as a line: JSON, a tab, and the checksum of the JSON."""
    text = json.dumps(record).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


def read_line(line: bytes) -> dict[str, Any]:
    """The record in a line; a ValueError if it is not as it was written. The first journals had no checksums."""
    text, tab, checksum = line.removesuffix(b"\n").partition(b"\t")
    if tab and checksum != b"%08x" % zlib.crc32(text):
        raise ValueError("its checksum is another")
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    return record
