"""A job run in this process under a script of sizes and kills, by the local executor's own runner and attempts.

What `verify`, tests and experiments use to disturb a run at exact steps: the job holds after each step named in
`settings.hold_at`, so a schedule is followed however fast the steps are. There is no agent and no journal; starting,
resizing, restarting and judging exits is `executors.local.jobs`.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from springtide.core.checkpoint_names import parse_name
from springtide.errors import JobError, RescaleError, TrainingError
from springtide.executors.local.discovery import Device
from springtide.executors.local.jobs.attempt import AgentContext, Attempt, AttemptOptions
from springtide.executors.local.jobs.hangs import Patience
from springtide.executors.local.jobs.places import LocalPlace
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.json_connections import EventLoop, Message
from springtide.executors.local.processes.fork_servers import ForkPool
from springtide.executors.local.processes.worker_processes import STORE, WorkerProcess
from springtide.executors.protocol import CheckpointPolicy, Event, Failed, JobSpec, Start
from springtide.training.settings import Settings
from springtide.training.state.checkpoints import MANIFEST
from springtide.verification.cases import WorkerCounts

#: Nobody waits for a deadline here, and a job that holds is no job that hangs.
UNHURRIED = AttemptOptions(patience=Patience(idle_s=3600.0, silent_s=3600.0), init_s=3600.0)
SLOTS = 64
TURN_S = 0.02


@dataclass(frozen=True, slots=True)
class ScriptedJob:
    """What to run: a script as `python script arguments`, in a folder, with settings of its own."""

    script: Path
    arguments: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path.cwd)
    settings: Settings = field(default_factory=Settings)
    #: Variables of devices that differ, by their names (`slot:0`, ...).
    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Variables of all its processes.
    variables: Mapping[str, str] = field(default_factory=dict)


def name_slots(count: int, first: int = 0) -> tuple[str, ...]:
    """The names of so many devices."""
    return tuple(f"slot:{number}" for number in range(first, first + count))


class OpenPlace(LocalPlace):
    """This machine, whose processes see all devices that we see."""

    def find_device_variables(self, device: str, visible: Sequence[str]) -> dict[str, str]:
        """None: what differs is the job's own to say."""
        return {}


class Host:
    """What jobs of this process share: an event loop, warm fork servers, and a folder for sockets and logs."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.environment = environment
        self.folder = Path(tempfile.mkdtemp(prefix="springtide-"))
        self.loop = EventLoop()
        self.forks = ForkPool(self.loop, self.folder, environment, self.folder / "fork-servers.log")
        self.runs = 0

    def make_context(self, emit: Callable[[Event], None], options: AttemptOptions) -> AgentContext:
        """What a runner needs; its workers have the whole environment, as a script started by hand has."""
        devices = {name: Device(name, "cpu") for name in name_slots(SLOTS)}
        place = OpenPlace(self.loop, self.forks, self.folder, devices, self.environment, sys.executable)
        return AgentContext(place, devices, emit, lambda job, devices: True, options)

    def name_devices(self, count: int) -> tuple[str, ...]:
        """So many devices."""
        return name_slots(count)

    def kill(self, run: "ScriptedRun", rank: int) -> None:
        """Lose the process of a rank."""
        run.kill(rank)

    def tick(self, now_s: float) -> None:
        """Do what time calls for beside the runs; nothing here."""

    def make_folder(self) -> Path:
        """A new folder for the logs of one run."""
        self.runs += 1
        return self.folder / f"run-{self.runs}"

    def close(self) -> None:
        """End everything that was started here."""
        self.forks.close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class ScriptedAttempt(Attempt):
    """One start of a scripted job: its runtime is told the job's own settings, and its devices see all that we see."""

    def __init__(self, job: ScriptedJob, context: AgentContext, assigned: AssignedJob, restarts: int) -> None:
        self.scripted = job
        super().__init__(context, assigned, restarts)

    def make_settings(self) -> Settings:
        """The job's settings; a start writes its traces apart, so that none follows a line that a kill cut short."""
        settings = self.scripted.settings
        return replace(settings, trace_dir=settings.trace_dir and settings.trace_dir / f"start-{self.restarts}")

    def find_variables(self, device: str) -> dict[str, str]:
        """Those of a device that differs too."""
        return {**super().find_variables(device), **self.scripted.devices.get(device, {})}


class ScriptedRun(JobRunner):
    """One run of a job, moved on by whoever waits for something; it decides nothing about sizes, its caller does."""

    def __init__(self, job: ScriptedJob, host: Host, counts: WorkerCounts, options: AttemptOptions = UNHURRIED) -> None:
        self.scripted = job
        self.host = host
        #: What the processes said, each with the moment it was heard (`at_s`).
        self.events: list[dict[str, Any]] = []
        #: Exit codes of the processes in the order in which they ended.
        self.codes: list[int | None] = []
        #: The step after which rank 0 waits, if it does.
        self.held: int | None = None
        self.failure: Failed | None = None
        order = Start(job=str(job.script), generation=1, key="", spec=self.make_spec(sum(counts)), devices=())
        assigned = AssignedJob(order, 1, host.name_devices(len(counts)), workers=counts)
        super().__init__(host.make_context(self.keep_event, options), assigned)

    def make_spec(self, logical_workers: int) -> JobSpec:
        """The job as the executor knows jobs; a script that fails is not started again."""
        job, folder = self.scripted, self.host.make_folder()
        return JobSpec(
            argv=("python", str(job.script.resolve()), *job.arguments),
            folder=str(job.folder),
            checkpoint=CheckpointPolicy(str(job.settings.checkpoint_dir or folder / "checkpoints")),
            output_dir=str(job.folder),
            log_dir=str(folder),
            logical_workers=logical_workers,
            threads=job.settings.threads,
            env=dict(job.variables),
            retries=0,
        )

    def make_attempt(self) -> ScriptedAttempt:
        """New processes for the job."""
        return ScriptedAttempt(self.scripted, self.context, self.assigned, self.restarts.count)

    def keep_event(self, event: Event) -> None:
        """Remember why the job has failed."""
        self.failure = event if isinstance(event, Failed) else self.failure

    def handle_message(self, process: WorkerProcess, message: Message) -> None:
        """Keep what a process says, and act on it."""
        self.events.append({**message, "at_s": time.monotonic()})
        if message.get("event") == "held":
            self.held = message["step"]
        super().handle_message(process, message)

    def handle_exit(self, process: WorkerProcess) -> None:
        """Keep the code of a process that has ended, and act on it."""
        if process.name != STORE:
            self.codes.append(process.code)
        super().handle_exit(process)

    def clear(self, last: Event | None) -> None:
        """Kill what is left; what was held is no more."""
        self.held = None
        super().clear(last)

    # For the caller.

    @property
    def counts(self) -> WorkerCounts:
        """Logical workers per process, in rank order."""
        return self.attempt.roster.counts if self.attempt is not None else ()

    def resize(self, counts: WorkerCounts, devices: Sequence[str] | None = None) -> None:
        """Ask for other processes, in place: those on devices that stay run on. `wait_for_resize` sees it done."""
        if self.phase != "running":
            raise RescaleError(f"the job is {self.phase}; it can be resized while it runs, one change after another")
        names = self.host.name_devices(len(counts)) if devices is None else tuple(devices)
        self.assigned = replace(
            self.assigned, generation=self.assigned.generation + 1, devices=names, workers=tuple(counts)
        )
        self.tick(time.monotonic())  # rank 0 has the command before anything that is sent to it after this

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of a rank."""
        assert self.attempt is not None
        self.attempt.ranked[rank].signal(number)

    def go(self) -> None:
        """Let a held job go on."""
        assert self.attempt is not None
        self.held = None
        self.attempt.command({"do": "go"})

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        """Move the job on until a condition holds; raise when the job has failed or it takes too long."""
        until_s = time.monotonic() + timeout_s
        while self.failure is None and not condition():
            if time.monotonic() >= until_s:
                raise TrainingError(f"{self.scripted.script.name} did not get there within {timeout_s:g} s")
            self.turn()
        if self.failure is not None:
            raise TrainingError(self.failure.reason)

    def turn(self) -> None:
        """Handle what has happened, waiting for something for a moment."""
        self.host.loop.turn(TURN_S)
        now_s = time.monotonic()
        self.host.tick(now_s)
        dropped = self.host.forks.poll(now_s)
        if self.attempt is not None and self.attempt.processes.has_fork(dropped):
            self.lose_fork()
        self.tick(now_s)

    def wait(self, timeout_s: float = 120.0) -> None:
        """Move the job on until it has finished and every process has ended; raise when it has failed."""
        self.wait_for(lambda: self.is_over, timeout_s)

    def wait_for_step(self, step: int, timeout_s: float = 120.0) -> None:
        """Move the job on until a global step has been completed, or the job has finished."""
        self.wait_for(lambda: self.is_over or self.progress.step >= step, timeout_s)

    def wait_for_resize(self, timeout_s: float = 120.0) -> None:
        """Move the job on until no change of processes is under way, or the job has finished."""
        self.wait_for(lambda: self.is_over or self.phase != "resizing", timeout_s)

    def wait_for_hold(self, timeout_s: float = 120.0) -> int | None:
        """Move the job on until rank 0 holds at one of `settings.hold_at`, and return the step; None at the end."""
        self.wait_for(lambda: self.is_over or self.held is not None, timeout_s)
        return self.held

    def wait_for_restart(self, restarts: int) -> None:
        """Move the job on until it was started again more often than that."""
        self.wait_for(lambda: self.restarts.count > restarts)

    def wait_for_checkpoint(self, step: int, timeout_s: float = 120.0) -> None:
        """Wait until a step is on disk; it is written while the job holds."""
        folder = self.scripted.settings.checkpoint_dir
        self.wait_for(lambda: folder is not None and step in list_saved(folder), timeout_s)

    @property
    def resumed(self) -> tuple[int, ...]:
        """The steps that starts of this run went on from."""
        return tuple(event["step"] for event in self.events if event["event"] == "resumed")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What processes of this run have warned of, each once."""
        return tuple(dict.fromkeys(event["text"] for event in self.events if event["event"] == "warned"))

    def close(self) -> None:
        """End what is left of the job."""
        if not self.is_over:
            self.abandon()
        while not self.is_over:
            self.turn()
        self.logs.close()

    def __enter__(self) -> "ScriptedRun":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def list_saved(folder: Path) -> list[int]:
    """The steps whose checkpoints are whole on disk."""
    return sorted(find_saved(folder))


def find_saved(folder: Path) -> dict[int, Path]:
    """The checkpoints that are whole on disk by their steps; of several of one step the newest."""
    named = [(parse_name(path.parent.name), path.parent) for path in folder.glob(f"step-*/{MANIFEST}")]
    return {name.step: path for name, path in sorted((name, path) for name, path in named if name is not None)}


def find_due(settings: Settings, step: int) -> int:
    """The last step before that one whose checkpoint is asked for by number; 0 if there is none."""
    every = settings.checkpoint_every_steps if settings.checkpoint_dir is not None else 0
    return (step - 1) // every * every if every else 0


def follow(
    job: ScriptedJob,
    sizes: Sequence[tuple[int, WorkerCounts]],
    kills: Sequence[int] = (),
    timeout_s: float = 300.0,
    host: Host | None = None,
) -> ScriptedRun:
    """Run a job to its end under a schedule, and return its closed run with all events.

    `sizes` are (step, logical workers per process), the first from step 0 on; `kills` are steps after which the
    last process gets SIGKILL, once each. A job that saves after every so many steps is killed once the last of them is
    on disk, so that it resumes from the same step on any machine; any other may start from step 0 again.
    """
    if not sizes or sizes[0][0] != 0:
        raise JobError("a schedule needs a size from step 0 on")
    if host is None:
        with Host() as own:
            return follow(job, sizes, kills, timeout_s, own)
    changes, left = dict(sizes[1:]), list(kills)
    holds = ",".join(str(step) for step in sorted({*changes, *kills}))
    held = replace(job, settings=replace(job.settings, hold_at=holds))
    with ScriptedRun(held, host, sizes[0][1]) as run:
        while (step := run.wait_for_hold(timeout_s)) is not None:
            if step in left:
                left.remove(step)
                restarts = run.restarts.count
                if due := find_due(job.settings, step):
                    run.wait_for_checkpoint(due)
                host.kill(run, -1)
                run.wait_for_restart(restarts)
                continue
            if step in changes:
                run.resize(changes.pop(step))
            run.go()
            run.wait_for_resize(timeout_s)
    return run
