"""An agent to play jobs on: an executor with two CPU slots, and everything that was heard of it."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.paths import make_mark
from springtide.executors.local.processes.worker_processes import find_marked
from springtide.executors.protocol import (
    FINAL,
    CheckpointPolicy,
    Event,
    Instruction,
    JobSpec,
    Probe,
    Resize,
    Running,
    Start,
)

SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE_S = float(os.environ.get("SPRINGTIDE_TEST_PATIENCE_S", 120))  # more on an emulated machine
BOTH = ("cpu:0", "cpu:1")

Kind = TypeVar("Kind", bound=Event)


@dataclass
class RecordedAgent:
    """An executor, and all that was heard of it."""

    executor: LocalExecutor
    folder: Path
    heard: list[Event] = field(default_factory=list)
    jobs: int = 0
    hashes: dict[str, str] = field(default_factory=dict)
    #: How much had been heard when each job was last started.
    began: dict[str, int] = field(default_factory=dict)

    def spec(self, job: str, *argv: str, **fields: Any) -> JobSpec:
        """A job with folders of its own; checkpoints as often as possible."""
        home = self.folder / job
        words: dict[str, Any] = {"python": None, "checkpoint": CheckpointPolicy(str(home / "checkpoints"), 0.1, 2)}
        return JobSpec(
            argv=("python", *argv),
            folder=str(fields.pop("folder", SCRIPTS)),
            output_dir=str(home / "output"),
            log_dir=str(home / "logs"),
            **{**words, **fields},
        )

    def new_job(self) -> str:
        """A name no job has had."""
        self.jobs += 1
        return f"job-{self.jobs}"

    def start(self, spec: JobSpec, devices: Sequence[str] = BOTH[:1], workers: tuple[int, ...] = ()) -> str:
        """Start a job and return its name, which is in its folders."""
        job = Path(spec.output_dir).parent.name
        self.apply(Start(job=job, generation=1, key=f"{job}-1", spec=spec, devices=tuple(devices), workers=workers))
        return job

    def tiny(self, *arguments: str, devices: Sequence[str] = BOTH[:1], **fields: Any) -> str:
        """Start the small training."""
        return self.start(self.spec(self.new_job(), "tiny.py", *arguments, **fields), devices)

    def resize(self, job: str, generation: int, *devices: str) -> None:
        """Give a job other devices."""
        self.apply(Resize(job=job, generation=generation, key=f"{job}-{generation}", devices=devices))

    def apply(self, *instructions: Instruction) -> None:
        """Send instructions."""
        self.began |= {one.job: len(self.heard) for one in instructions if isinstance(one, Start | Probe)}
        self.executor.apply(instructions)

    def listen(self) -> None:
        """Take in what has happened, waiting a little for it."""
        last = self.heard[-1].seq if self.heard else 0
        fresh = self.executor.wait(last, 0.5)
        assert [event.seq for event in fresh] == list(range(last + 1, last + 1 + len(fresh)))
        self.heard += fresh
        if fresh:
            self.executor.acknowledge(fresh[-1].seq - 1)

    def listen_late(self) -> None:
        """Take in what is there, wherever its numbers begin: others have acknowledged what came before."""
        fresh = self.executor.wait(0, PATIENCE_S)
        assert fresh and [event.seq for event in fresh] == list(range(fresh[0].seq, fresh[0].seq + len(fresh)))
        self.heard += fresh

    def of(self, job: str, kind: type[Kind]) -> list[Kind]:
        """What was heard of a job."""
        return [event for event in self.heard if event.job == job and isinstance(event, kind)]

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        """Listen until something holds."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until_s, f"waited for {what}; heard {self.heard[-8:]}"
            self.listen()

    def wait_for_kind(self, job: str, kind: type[Kind], count: int = 1) -> Kind:
        """Listen until a job has said something so often; its end fails the test."""
        self.wait_for(lambda: len(self.of(job, kind)) >= count or self.ends(job), f"{kind.__name__} of {job}")
        assert len(self.of(job, kind)) >= count, self.heard[-8:]
        return self.of(job, kind)[count - 1]

    def wait_for_step(self, job: str, step: int) -> None:
        """Listen until a job shows this step."""
        self.wait_for(lambda: (now := self.find(job)) is None or now.step >= step, f"step {step} of {job}")

    def ends(self, job: str) -> list[Event]:
        """The last events of a job since it was last started."""
        return [event for event in self.heard[self.began[job] :] if event.job == job and isinstance(event, FINAL)]

    def wait_for_end(self, job: str, kind: type[Kind]) -> Kind:
        """Listen until a job has ended, as it should."""
        self.wait_for(lambda: self.ends(job), f"the end of {job}")
        end = self.ends(job)[-1]
        assert isinstance(end, kind), (end, self.read_log(job))
        return end

    def find(self, job: str) -> Running | None:
        """A job as the executor sees it now."""
        return next((one for one in self.executor.running() if one.job == job), None)

    def pids(self, job: str) -> tuple[int, ...]:
        """The processes of a running job, in no order."""
        found = self.find(job)
        assert found is not None
        return found.pids

    def read_log(self, job: str, rank: int = 0) -> str:
        """What a rank has printed."""
        path = self.folder / job / "logs" / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def hash_weights(self, job: str) -> str:
        """The hash of a job's newest weights."""
        newest = max((self.folder / job / "checkpoints").glob("step-*"))
        return hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()

    def undisturbed(self, *arguments: str) -> str:
        """The hash of the small training's weights when nothing happens; the sleep changes nothing."""
        key = json.dumps(arguments)
        if key not in self.hashes:
            job = self.tiny(*arguments, "--sleep", "0")
            self.wait_for_end(job, FINAL[1])
            self.hashes[key] = self.hash_weights(job)
        return self.hashes[key]

    def marked(self) -> list[psutil.Process]:
        """The processes of this agent, the agent itself left out."""
        return find_marked(make_mark(self.executor.state_dir))


def start_agent(folder: Path, **given: Any) -> RecordedAgent:
    """An agent of its own, not yet started."""
    return RecordedAgent(LocalExecutor(folder / "state", cpu_slots="2", **given), folder)
