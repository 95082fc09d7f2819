"""How a check drives an executor: what the executor's owner provides, and a job with all that was heard of it.

Time is the harness's: `wait` may sleep or move a clock that is not real, so the same checks run against both.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from springtide.executors.protocol import (
    FINAL,
    CheckpointPolicy,
    Event,
    Executor,
    Instruction,
    JobSpec,
    Probe,
    Resize,
    Running,
    Start,
)

SCRIPT = Path(__file__).with_name("script.py")
WORKERS = 4
#: Calls of `Harness.wait` before a check gives up; each lets something happen, or a good part of a second pass.
PATIENCE = 800

Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the job of a check does: as many steps, each so long on one device, and perhaps a crash after one."""

    steps: int = 20
    step_s: float = 0.02
    crashes_at: int = 0


#: A job that does not end during a check.
ENDLESS = Behaviour(steps=100_000)


class Harness(Protocol):
    """An executor under test, and what only its owner can do."""

    @property
    def executor(self) -> Executor:
        """The executor, with nothing running."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Two devices that it has."""

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        """A job that behaves so, with folders of its own and checkpoints as often as possible."""

    def wait(self, after: int) -> None:
        """Let a little time pass, or less if there is an event with a greater number."""

    def kill(self, job: str) -> None:
        """Lose one process of a running job, as by SIGKILL."""


def make_spec(folder: Path, behaviour: Behaviour) -> JobSpec:
    """The script of the checks as a job in a folder, for harnesses of real processes."""
    words = (str(behaviour.steps), str(behaviour.step_s), str(behaviour.crashes_at))
    return JobSpec(
        argv=("python", SCRIPT.name, *words),
        folder=str(SCRIPT.parent),
        checkpoint=CheckpointPolicy(str(folder / "checkpoints"), 0.1, 2),
        output_dir=str(folder / "output"),
        log_dir=str(folder / "logs"),
        logical_workers=WORKERS,
        retries=1,
    )


@dataclass
class Trial:
    """One job of one check, and every event of it since the trial began."""

    harness: Harness
    job: str
    cursor: int = 0
    generation: int = 0
    heard: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cursor = max((event.seq for event in self.executor.events(0)), default=0)

    @property
    def executor(self) -> Executor:
        """The executor under test."""
        return self.harness.executor

    @property
    def first(self) -> tuple[str, ...]:
        """The first of the two devices."""
        return self.harness.devices[:1]

    @property
    def both(self) -> tuple[str, ...]:
        """The two devices."""
        return self.harness.devices[:2]

    def send(self, instruction_type: type[Any], **fields: Any) -> Instruction:
        """Apply an instruction of the job's next generation."""
        self.generation += 1
        given = {"generation": self.generation, "key": f"{self.job}-{self.generation}", **fields}
        instruction: Instruction = instruction_type(job=self.job, **given)
        self.executor.apply([instruction])
        return instruction

    def start(self, behaviour: Behaviour = ENDLESS, devices: tuple[str, ...] | None = None, **fields: Any) -> Start:
        """Start the job, on the first device unless told otherwise."""
        spec = self.harness.make_spec(self.job, behaviour)
        instruction = self.send(Start, spec=spec, devices=self.first if devices is None else devices, **fields)
        assert isinstance(instruction, Start)
        return instruction

    def probe(self, devices: tuple[str, ...], **fields: Any) -> None:
        """Measure the job."""
        self.send(Probe, spec=self.harness.make_spec(self.job, ENDLESS), devices=devices, **fields)

    def resize(self, devices: tuple[str, ...], **fields: Any) -> None:
        """Give the job other devices."""
        self.send(Resize, devices=devices, **fields)

    def listen(self) -> None:
        """Read the events since the last time; numbers ascend by one."""
        fresh = self.executor.events(self.cursor)
        numbers = [event.seq for event in fresh]
        require(
            numbers == list(range(self.cursor + 1, self.cursor + 1 + len(fresh))),
            f"events after {self.cursor} are numbered {numbers}; numbers ascend by one",
        )
        self.cursor += len(fresh)
        self.heard += [event for event in fresh if event.job == self.job]

    def of(self, event_type: type[Kind]) -> list[Kind]:
        """The events of a kind that were heard."""
        return [event for event in self.heard if isinstance(event, event_type)]

    def await_event(self, event_type: type[Kind], count: int = 1) -> Kind:
        """The so-many-th event of a kind, waited for; an end of the job of another kind fails the check."""
        for _ in range(PATIENCE):
            self.listen()
            if len(self.of(event_type)) >= count:
                return self.of(event_type)[count - 1]
            ends = [event for event in self.heard if isinstance(event, FINAL) and event.generation == self.generation]
            require(not ends, f"{self.job} ended with {ends} before {event_type.__name__} number {count}")
            self.harness.wait(self.cursor)
        raise AssertionError(f"{self.job} said {event_type.__name__} fewer than {count} times; heard {self.heard[-5:]}")

    def await_step(self, step: int) -> None:
        """Wait until the job has taken a step."""
        for _ in range(PATIENCE):
            found = self.find()
            if found is not None and found.step >= step:
                return
            self.harness.wait(self.cursor)
            self.listen()
        raise AssertionError(f"{self.job} never reached step {step}; heard {self.heard[-5:]}")

    def find(self) -> Running | None:
        """The job as `running()` shows it."""
        return next((one for one in self.executor.running() if one.job == self.job), None)

    def stay_quiet(self) -> None:
        """Let some time pass, in which nothing may be said of the job."""
        before = len(self.heard)
        for _ in range(5):
            self.harness.wait(self.cursor)
            self.listen()
        require(len(self.heard) == before, f"{self.job} was to be silent and said {self.heard[before:]}")


def require(holds: bool, sentence: str) -> None:
    """Fail the check with a sentence unless something holds."""
    if not holds:
        raise AssertionError(sentence)
