"""What every executor does with what it is sent and what it sends: which instructions count, and events in order.

In memory and without a clock; `local.journal` makes the same durable. What an instruction does is each executor's.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypedDict

from springtide.executors.protocol import (
    Cancel,
    Event,
    Failed,
    Ignored,
    Instruction,
    Probe,
    Resize,
    Start,
    Stop,
    Stopped,
)


class EventFields(TypedDict):
    """The fields that every event of a job carries."""

    job: str
    generation: int


class Outbox:
    """Numbered events that nobody has acknowledged yet. Numbers begin at 1 and are never used twice."""

    def __init__(self, events: Iterable[Event] = (), last: int = 0) -> None:
        self.waiting = list(events)
        self.last = max([last, *(event.seq for event in self.waiting)])

    def add(self, event: Event, at_s: float) -> Event:
        """Number an event and keep it."""
        self.last += 1
        numbered = replace(event, seq=self.last, at_s=at_s)
        self.waiting.append(numbered)
        return numbered

    def after(self, number: int) -> tuple[Event, ...]:
        """The kept events with greater numbers, ascending."""
        return tuple(event for event in self.waiting if event.seq > number)

    def acknowledge(self, upto: int) -> None:
        """Drop the events up to a number."""
        self.waiting = [event for event in self.waiting if event.seq > upto]


class Freshness(Enum):
    """What becomes of an instruction."""

    NEW = "new"
    REPEATED = "repeated"
    STALE = "stale"


class SeenGenerations:
    """The newest generation of each job, and the key it came under; in the order of their last instructions."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[int, str]] = {}

    def judge(self, instruction: Instruction) -> Freshness:
        """Whether to act on an instruction. An older generation is stale, or a repetition if it bears the same key."""
        generation, key = self.seen.get(instruction.job, (-1, ""))
        if instruction.generation > generation:
            return Freshness.NEW
        return Freshness.REPEATED if instruction.key == key else Freshness.STALE

    def record(self, instruction: Instruction) -> None:
        """Remember an instruction that is acted on; the job is then the newest."""
        self.seen.pop(instruction.job, None)
        self.seen[instruction.job] = (instruction.generation, instruction.key)

    def make_ignored(self, instruction: Instruction) -> Ignored:
        """The answer to a stale instruction."""
        job = instruction.job
        seen, _ = self.seen[job]
        return Ignored(job=job, generation=instruction.generation, key=instruction.key, seen=seen)


def refuse(instruction: Instruction, is_running: bool, devices: Collection[str] | None) -> Failed | Stopped | None:
    """The answer to a new instruction that cannot be carried out; None if it can be.

    `devices` are those the executor has; None: whichever it is told. After either answer the job holds no device.
    """
    common: EventFields = {"job": instruction.job, "generation": instruction.generation}
    match instruction:
        case Start() | Probe() | Resize() if problem := find_problem(instruction.devices, devices):
            return Failed(**common, step=0, exit_code=None, reason=problem, user_fault=False, code="bad_devices")
        case Stop() | Cancel() if not is_running:
            return Stopped(**common, step=0, reason=instruction.reason, cancelled=isinstance(instruction, Cancel))
        case Resize() if not is_running:
            return Stopped(**common, step=0, reason="the job was not running", clean=False)
    return None


def find_problem(asked: Sequence[str], devices: Collection[str] | None) -> str:
    """What is wrong with a list of devices; empty if nothing is."""
    unknown = [name for name in asked if devices is not None and name not in devices]
    if not unknown and asked and len(set(asked)) == len(asked):
        return ""
    there = f"; this machine has {', '.join(devices)}" if devices is not None else "; at least one is needed"
    return f"devices {', '.join(asked) or '(none)'} cannot be given{there}, each at most once"
