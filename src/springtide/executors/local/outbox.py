"""Events on their way up, numbered and kept until acknowledged; and which generation of each job was seen last.

In memory and without a clock. `journals` makes the same durable.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from springtide.executors.protocol import Event, Instruction


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
    """The newest generation of each job, and the key it came under."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[int, str]] = {}

    def judge(self, instruction: Instruction) -> Freshness:
        """Whether to act on an instruction. An older generation is stale, or a repetition if it bears the same key."""
        generation, key = self.seen.get(instruction.job, (-1, ""))
        if instruction.generation > generation:
            return Freshness.NEW
        return Freshness.REPEATED if instruction.key == key else Freshness.STALE

    def enter(self, instruction: Instruction) -> None:
        """Note an instruction that is acted on."""
        self.seen[instruction.job] = (instruction.generation, instruction.key)

    def generation_of(self, job: str) -> int:
        """The newest generation seen of a job; -1 if none."""
        return self.seen.get(job, (-1, ""))[0]
