"""An executor without processes: jobs run at given speeds on a clock that moves when it is emitted to.

Shipped, and used wherever a control plane is tested. It keeps the whole contract (generations, keys, events until
acknowledged, probes, restarts from the last checkpoint) and is deterministic: the same calls give the same events.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from springtide.executors.delivery import EventFields, Freshness, Outbox, SeenGenerations, refuse
from springtide.executors.protocol import (
    Cancel,
    Checkpointed,
    Event,
    ExecutorNode,
    Failed,
    Faulted,
    Finished,
    Instruction,
    MachineLoaded,
    NodeLost,
    Probe,
    Probed,
    Progressed,
    Resize,
    Resized,
    Running,
    ScriptInfo,
    SpeedPoint,
    Start,
    Started,
    Stop,
    Stopped,
)


@dataclass(frozen=True, slots=True)
class FakeJob:
    """How a job behaves: its speed at each share (the largest share not above the given one counts), and its ends."""

    total_steps: int = 100
    speeds: Mapping[int, float] = field(default_factory=lambda: {1: 10.0})
    logical_workers: int = 8
    steps_per_epoch: int = 10
    startup_s: float = 1.0
    pause_s: float = 0.1
    #: Steps between checkpoints.
    checkpoint_every: int = 10
    #: The step after which the user's code crashes, every time it gets there.
    crashes_at: int | None = None
    #: Seconds of one worker's mini-batch by device type (a device is named TYPE:NUMBER), instead of speeds by share.
    seconds: Mapping[str, float] = field(default_factory=dict)

    def speed(self, devices: Sequence[str], workers: Sequence[int] = ()) -> float:
        """Steps per second on these devices, with so many logical workers on each (none given: spread evenly)."""
        if not self.seconds:
            fitting = [known for known in self.speeds if known <= len(devices)]
            return self.speeds[max(fitting)] if fitting else 0.0
        counts = workers or [-(-self.logical_workers // len(devices))] * len(devices)
        return 1.0 / max(n * self.seconds[name.split(":")[0]] for name, n in zip(devices, counts, strict=True))


@dataclass
class FakeRun:
    """Where one job stands on the fake clock."""

    order: Start | Probe
    behaviour: FakeJob
    generation: int
    devices: tuple[str, ...]
    #: No step is made before this instant: the script is starting, or a rescale pauses it.
    ready_s: float
    step: float = 0.0
    checkpoint: int = 0
    announced: bool = False
    starting: bool = True
    resizing: bool = False
    retries: int = 0
    #: Logical workers on each device; empty: spread evenly.
    workers: tuple[int, ...] = ()

    @property
    def common(self) -> EventFields:
        """The fields of every event."""
        return {"job": self.order.job, "generation": self.generation}

    @property
    def speed(self) -> float:
        """Steps per second."""
        return self.behaviour.speed(self.devices, self.workers)

    @property
    def state(self) -> str:
        """As in `Running`."""
        return "starting" if self.starting else "resizing" if self.resizing else "running"

    @property
    def end(self) -> int:
        """The step at which something happens: the last one, the probe's last one, or a crash."""
        limits = [self.behaviour.total_steps]
        if isinstance(self.order, Probe):
            limits.append(max(1, self.order.max_steps))
        elif self.order.spec.steps is not None:
            limits.append(self.order.spec.steps)
        if self.behaviour.crashes_at is not None:
            limits.append(self.behaviour.crashes_at)
        return min(limits)


class FakeExecutor:
    """Jobs on a fake clock; what is not described runs like `FakeJob()`. `devices` are those it has; None: any."""

    def __init__(
        self,
        behaviours: Mapping[str, FakeJob] | None = None,
        now_s: float = 0.0,
        devices: Collection[str] | None = None,
    ) -> None:
        self.behaviours = dict(behaviours or {})
        self.now_s = now_s
        self.devices = devices
        self.outbox = Outbox()
        self.generations = SeenGenerations()
        self.runs: dict[str, FakeRun] = {}
        #: Step of the last checkpoint of every job ever started.
        self.checkpoints: dict[str, int] = {}
        #: How many times longer steps take on devices whose machine others use too.
        self.slowdowns: dict[str, float] = {}
        #: What it says that it cannot do.
        self.lacks = ""

    def apply(self, instructions: Sequence[Instruction]) -> None:
        """Take instructions in order."""
        for instruction in instructions:
            freshness = self.generations.judge(instruction)
            if freshness is Freshness.NEW:
                self.generations.record(instruction)
                self.obey(instruction)
            elif freshness is Freshness.STALE:
                self.emit(self.generations.make_ignored(instruction))

    def events(self, after: int) -> tuple[Event, ...]:
        """The events with numbers greater than `after`."""
        return self.outbox.after(after)

    def acknowledge(self, upto: int) -> None:
        """Forget the events up to this number."""
        self.outbox.acknowledge(upto)

    def nodes(self) -> tuple[ExecutorNode, ...]:
        """One machine, as one node for each type of device; none if it takes whichever device it is told."""
        names = self.devices or ()
        types = dict.fromkeys(name.partition(":")[0] for name in names)
        return tuple(
            ExecutorNode(f"node-{number}", one, tuple(name for name in names if name.partition(":")[0] == one))
            for number, one in enumerate(types)
        )

    def running(self) -> tuple[Running, ...]:
        """The jobs that hold devices, by name."""
        return tuple(
            Running(
                **run.common,
                devices=run.devices,
                state=run.state,
                step=int(run.step),
                total_steps=run.behaviour.total_steps if run.announced else None,
            )
            for _, run in sorted(self.runs.items())
        )

    def outage(self) -> str:
        """What it was told to lack."""
        return self.lacks

    def advance(self, seconds: float) -> None:
        """Move the clock, and every job with it; each running job reports its progress at the end."""
        until_s = self.now_s + seconds
        emitted: list[tuple[float, Event]] = []
        for name in sorted(self.runs):
            emitted += FakeClockStep(self, name, until_s).events()
        for at_s, event in sorted(emitted, key=lambda entry: entry[0]):
            self.outbox.add(event, at_s)
        self.now_s = until_s

    def kill(self, job: str) -> None:
        """Lose a job's processes: it starts again from its last checkpoint."""
        run = self.runs[job]
        self.emit(Faulted(**run.common, cause="killed", reason="killed by the test", step=int(run.step)))
        self.restart(run, self.now_s)

    def lose_node(self, node: str, devices: Sequence[str]) -> None:
        """Lose a node with these devices: jobs that had any of them are gone, and only the loss is emitted."""
        for name in [name for name, run in self.runs.items() if set(run.devices) & set(devices)]:
            del self.runs[name]
        self.emit(NodeLost(job="", generation=0, node=node, reason="lost by the test"))

    def load_machine(self, load: MachineLoaded, slowdown: float | None = None) -> None:
        """Let others use a machine: steps on its devices take so much longer (None: as long as the load says)."""
        self.slowdowns |= dict.fromkeys(load.devices, load.slowdown if slowdown is None else slowdown)
        self.emit(load)

    def find_speed(self, run: FakeRun) -> float:
        """Steps per second of a job, beside others on its machines."""
        return run.speed / self.find_slowdown(run.devices)

    def find_slowdown(self, devices: Iterable[str]) -> float:
        """How much longer steps on these devices take."""
        return max((self.slowdowns.get(name, 1.0) for name in devices), default=1.0)

    def restart(self, run: FakeRun, at_s: float) -> None:
        """Put a job back to its last checkpoint, starting."""
        run.step = run.checkpoint
        run.starting = True
        run.resizing = False
        run.ready_s = at_s + run.behaviour.startup_s

    def obey(self, instruction: Instruction) -> None:
        """Carry out an instruction that is new, or say why not."""
        run = self.runs.get(instruction.job)
        refused = refuse(instruction, run is not None, self.devices)
        if refused is not None:
            self.runs.pop(instruction.job, None)
            self.emit(refused)
            return
        match instruction:
            case Start() | Probe():
                self.runs[instruction.job] = self.begin(instruction)
            case Resize() if run is not None:
                self.resize(run, instruction)
            case Stop() | Cancel():
                self.end(instruction)

    def begin(self, order: Start | Probe) -> FakeRun:
        """A job at its last checkpoint; a probe at step 0."""
        behaviour = self.behaviours.get(order.job, FakeJob())
        step = 0 if isinstance(order, Probe) else self.checkpoints.get(order.job, 0)
        ready_s = self.now_s + behaviour.startup_s
        workers = order.workers if isinstance(order, Start) else ()
        return FakeRun(
            order, behaviour, order.generation, order.devices, ready_s, step=step, checkpoint=step, workers=workers
        )

    def resize(self, run: FakeRun, order: Resize) -> None:
        """Give a running job other devices after a pause; a starting one simply starts there."""
        run.generation, run.devices, run.workers = order.generation, order.devices, order.workers
        if not run.starting:
            run.resizing = True
            run.ready_s = self.now_s + run.behaviour.pause_s

    def end(self, order: Stop | Cancel) -> None:
        """Checkpoint a job and take its devices."""
        run = self.runs.pop(order.job)
        run.generation, step = order.generation, int(run.step)
        if isinstance(run.order, Start):
            self.checkpoints[order.job] = step
        self.emit(Stopped(**run.common, step=step, reason=order.reason, cancelled=isinstance(order, Cancel)))

    def emit(self, event: Event) -> None:
        """Add an event of this instant."""
        self.outbox.add(event, self.now_s)


class FakeClockStep:
    """One job's way through one call of `advance`."""

    def __init__(self, executor: FakeExecutor, name: str, until_s: float) -> None:
        self.executor = executor
        self.name = name
        self.until_s = until_s
        self.run = executor.runs[name]
        self.emitted: list[tuple[float, Event]] = []

    def events(self) -> list[tuple[float, Event]]:
        """What happens to the job up to the end of the call, with its instants."""
        at_s = self.executor.now_s
        while self.name in self.executor.runs and at_s < self.until_s:
            at_s = self.go(at_s)
        run = self.run
        if self.name in self.executor.runs and not run.starting and not run.resizing:
            self.report(self.until_s)
        return self.emitted

    def go(self, at_s: float) -> float:
        """Go on to the next thing that happens, and return its instant."""
        run = self.run
        if run.ready_s > at_s:
            if run.ready_s <= self.until_s:
                self.get_ready(run.ready_s)
            return min(run.ready_s, self.until_s)
        if run.starting or run.resizing:
            self.get_ready(at_s)
        speed = self.executor.find_speed(run)
        end_s = at_s + (run.end - run.step) / speed if speed > 0 else self.until_s + 1
        if end_s > self.until_s:
            self.walk_to(run.step + speed * (self.until_s - at_s), self.until_s)
            return self.until_s
        self.walk_to(run.end, end_s)
        self.reach_end(end_s)
        return end_s

    def get_ready(self, at_s: float) -> None:
        """The script has started, or the pause is over."""
        run, common = self.run, self.run.common
        if run.starting:
            self.emit(at_s, Started(**common, devices=run.devices, step=int(run.step)))
            self.announce(at_s)
        else:
            pause_s = run.behaviour.pause_s
            self.emit(at_s, Resized(**common, devices=run.devices, step=int(run.step), pause_s=pause_s))
        run.starting = run.resizing = False

    def announce(self, at_s: float) -> None:
        """Say once what the script says of itself."""
        if self.run.announced:
            return
        self.run.announced = True
        behaviour = self.run.behaviour
        self.emit(
            at_s,
            ScriptInfo(
                **self.run.common,
                logical_workers=behaviour.logical_workers,
                total_steps=behaviour.total_steps,
                steps_per_epoch=behaviour.steps_per_epoch,
                device_type="fake",
                torch_version="0",
                startup_s=behaviour.startup_s,
            ),
        )

    def walk_to(self, step: float, at_s: float) -> None:
        """Take steps, and a checkpoint if one was passed."""
        run = self.run
        run.step = step
        every = run.behaviour.checkpoint_every
        passed = int(step) // every * every
        if passed > run.checkpoint and isinstance(run.order, Start):
            run.checkpoint = self.executor.checkpoints[self.name] = passed
            self.emit(at_s, Checkpointed(**self.run.common, step=passed))

    def reach_end(self, at_s: float) -> None:
        """The last step was made, or the one at which the code crashes."""
        run = self.run
        if run.behaviour.crashes_at == run.end:
            self.crash(at_s)
        elif isinstance(run.order, Probe):
            self.finish_probe(at_s, run.order)
        else:
            self.report(at_s)
            self.leave(at_s, Finished(**self.run.common, step=run.end))

    def finish_probe(self, at_s: float, order: Probe) -> None:
        """The probe's points: share 1, and share 2 if two devices were given."""
        behaviour = self.run.behaviour
        steps = self.run.end // len(order.devices)
        points = tuple(
            SpeedPoint(
                share, steps, behaviour.speed(given := order.devices[:share]) / self.executor.find_slowdown(given)
            )
            for share in range(1, min(2, len(order.devices)) + 1)
        )
        pause_s = behaviour.pause_s if len(points) > 1 else None
        self.leave(at_s, Probed(**self.run.common, points=points, startup_s=behaviour.startup_s, pause_s=pause_s))

    def crash(self, at_s: float) -> None:
        """The user's code has crashed: start again while retries are left."""
        run, common = self.run, self.run.common
        reason, step = f"the code crashed after step {run.end}", int(run.step)
        if run.retries >= run.order.spec.retries:
            self.leave(at_s, Failed(**common, step=step, exit_code=1, reason=reason, user_fault=True))
            return
        run.retries += 1
        self.emit(at_s, Faulted(**common, cause="crashed", reason=reason, step=step, user_fault=True))
        self.executor.restart(run, at_s)

    def leave(self, at_s: float, event: Event) -> None:
        """End the job with its last event."""
        self.emit(at_s, event)
        del self.executor.runs[self.name]

    def report(self, at_s: float) -> None:
        """Say how far the job is."""
        run = self.run
        progressed = Progressed(
            **run.common,
            step=int(run.step),
            total_steps=run.behaviour.total_steps,
            epoch=int(run.step) // run.behaviour.steps_per_epoch,
            steps_per_s=self.executor.find_speed(run),
            outside_s=0.0,
            share=len(run.devices),
        )
        self.emit(at_s, progressed)

    def emit(self, at_s: float, event: Event) -> None:
        """Add an event and its instant."""
        self.emitted.append((at_s, event))


class RealTimeFake(FakeExecutor):
    """The fake executor on real time: its clock moves as the wall's does, whenever it is asked for events."""

    def __init__(self, usual: FakeJob | None = None, devices: Collection[str] | None = None) -> None:
        super().__init__(now_s=time.time(), devices=devices)
        self.usual = usual or FakeJob()
        self.last_s = time.monotonic()

    def begin(self, order: Start | Probe) -> FakeRun:
        """A job that behaves as usual."""
        self.behaviours.setdefault(order.job, self.usual)
        return super().begin(order)

    def events(self, after: int) -> tuple[Event, ...]:
        """What happened up to now."""
        now_s = time.monotonic()
        self.advance(now_s - self.last_s)
        self.last_s = now_s
        return super().events(after)
