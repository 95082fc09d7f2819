"""An executor without processes: jobs run at given speeds on a clock that moves when it is told to.

Shipped, and used wherever a control plane is tested. It keeps the whole contract (generations, keys, events until
acknowledged, probes, restarts from the last checkpoint) and is deterministic: the same calls give the same events.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from springtide.executors.delivery import EventFields, Freshness, Outbox, SeenGenerations, refuse
from springtide.executors.protocol import (
    Cancel,
    Checkpointed,
    Event,
    Failed,
    Faulted,
    Finished,
    Ignored,
    Instruction,
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
        self.ledger = SeenGenerations()
        self.courses: dict[str, FakeRun] = {}
        #: Step of the last checkpoint of every job ever started.
        self.checkpoints: dict[str, int] = {}

    def apply(self, instructions: Sequence[Instruction]) -> None:
        """Take instructions in order."""
        for instruction in instructions:
            verdict = self.ledger.judge(instruction)
            if verdict is Freshness.NEW:
                self.ledger.enter(instruction)
                self.obey(instruction)
            elif verdict is Freshness.STALE:
                seen = self.ledger.generation_of(instruction.job)
                self.tell(
                    Ignored(job=instruction.job, generation=instruction.generation, key=instruction.key, seen=seen)
                )

    def events(self, after: int) -> tuple[Event, ...]:
        """The events with numbers greater than `after`."""
        return self.outbox.after(after)

    def acknowledge(self, upto: int) -> None:
        """Forget the events up to this number."""
        self.outbox.acknowledge(upto)

    def running(self) -> tuple[Running, ...]:
        """The jobs that hold devices, by name."""
        return tuple(
            Running(
                job=name,
                generation=course.generation,
                devices=course.devices,
                state=course.state,
                step=int(course.step),
                total_steps=course.behaviour.total_steps if course.announced else None,
            )
            for name, course in sorted(self.courses.items())
        )

    def advance(self, seconds: float) -> None:
        """Move the clock, and every job with it; each running job reports its progress at the end."""
        until_s = self.now_s + seconds
        told: list[tuple[float, Event]] = []
        for name in sorted(self.courses):
            told += FakeClockStep(self, name, until_s).events()
        for at_s, event in sorted(told, key=lambda entry: entry[0]):
            self.outbox.add(event, at_s)
        self.now_s = until_s

    def kill(self, job: str) -> None:
        """Lose a job's processes: it starts again from its last checkpoint."""
        course = self.courses[job]
        self.tell(
            Faulted(
                job=job,
                generation=course.generation,
                cause="killed",
                reason="killed by the test",
                step=int(course.step),
            )
        )
        self.restart(course, self.now_s)

    def lose_node(self, node: str, devices: Sequence[str]) -> None:
        """Lose a node with these devices: jobs that had any of them are gone, and only the loss is told."""
        for name in [name for name, course in self.courses.items() if set(course.devices) & set(devices)]:
            del self.courses[name]
        self.tell(NodeLost(job="", generation=0, node=node, reason="lost by the test"))

    def restart(self, course: FakeRun, at_s: float) -> None:
        """Put a job back to its last checkpoint, starting."""
        course.step = course.checkpoint
        course.starting = True
        course.resizing = False
        course.ready_s = at_s + course.behaviour.startup_s

    def obey(self, instruction: Instruction) -> None:
        """Carry out an instruction that is new, or say why not."""
        course = self.courses.get(instruction.job)
        refused = refuse(instruction, course is not None, self.devices)
        if refused is not None:
            self.courses.pop(instruction.job, None)
            self.tell(refused)
            return
        match instruction:
            case Start() | Probe():
                self.courses[instruction.job] = self.begin(instruction)
            case Resize() if course is not None:
                self.resize(course, instruction)
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

    def resize(self, course: FakeRun, order: Resize) -> None:
        """Give a running job other devices after a pause; a starting one simply starts there."""
        course.generation, course.devices, course.workers = order.generation, order.devices, order.workers
        if not course.starting:
            course.resizing = True
            course.ready_s = self.now_s + course.behaviour.pause_s

    def end(self, order: Stop | Cancel) -> None:
        """Checkpoint a job and take its devices."""
        course = self.courses.pop(order.job)
        step = int(course.step)
        if isinstance(course.order, Start):
            self.checkpoints[order.job] = step
        self.tell(
            Stopped(
                job=order.job,
                generation=order.generation,
                step=step,
                reason=order.reason,
                cancelled=isinstance(order, Cancel),
            )
        )

    def tell(self, event: Event) -> None:
        """Note an event of this instant."""
        self.outbox.add(event, self.now_s)


class FakeClockStep:
    """One job's way through one call of `advance`."""

    def __init__(self, executor: FakeExecutor, name: str, until_s: float) -> None:
        self.executor = executor
        self.name = name
        self.until_s = until_s
        self.course = executor.courses[name]
        self.told: list[tuple[float, Event]] = []

    def events(self) -> list[tuple[float, Event]]:
        """What happens to the job up to the end of the call, with its instants."""
        at_s = self.executor.now_s
        while self.name in self.executor.courses and at_s < self.until_s:
            at_s = self.go(at_s)
        course = self.course
        if self.name in self.executor.courses and not course.starting and not course.resizing:
            self.report(self.until_s)
        return self.told

    def go(self, at_s: float) -> float:
        """Go on to the next thing that happens, and return its instant."""
        course = self.course
        if course.ready_s > at_s:
            if course.ready_s <= self.until_s:
                self.get_ready(course.ready_s)
            return min(course.ready_s, self.until_s)
        if course.starting or course.resizing:
            self.get_ready(at_s)
        speed = course.speed
        end_s = at_s + (course.end - course.step) / speed if speed > 0 else self.until_s + 1
        if end_s > self.until_s:
            self.walk_to(course.step + speed * (self.until_s - at_s), self.until_s)
            return self.until_s
        self.walk_to(course.end, end_s)
        self.reach_end(end_s)
        return end_s

    def get_ready(self, at_s: float) -> None:
        """The script has started, or the pause is over."""
        course, common = self.course, self.common()
        if course.starting:
            self.tell(at_s, Started(**common, devices=course.devices, step=int(course.step)))
            self.announce(at_s)
        else:
            pause_s = course.behaviour.pause_s
            self.tell(at_s, Resized(**common, devices=course.devices, step=int(course.step), pause_s=pause_s))
        course.starting = course.resizing = False

    def announce(self, at_s: float) -> None:
        """Say once what the script says of itself."""
        if self.course.announced:
            return
        self.course.announced = True
        behaviour = self.course.behaviour
        self.tell(
            at_s,
            ScriptInfo(
                **self.common(),
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
        course = self.course
        course.step = step
        every = course.behaviour.checkpoint_every
        passed = int(step) // every * every
        if passed > course.checkpoint and isinstance(course.order, Start):
            course.checkpoint = self.executor.checkpoints[self.name] = passed
            self.tell(at_s, Checkpointed(**self.common(), step=passed))

    def reach_end(self, at_s: float) -> None:
        """The last step was made, or the one at which the code crashes."""
        course = self.course
        if course.behaviour.crashes_at == course.end:
            self.crash(at_s)
        elif isinstance(course.order, Probe):
            self.finish_probe(at_s, course.order)
        else:
            self.report(at_s)
            self.leave(at_s, Finished(**self.common(), step=course.end))

    def finish_probe(self, at_s: float, order: Probe) -> None:
        """The probe's points: share 1, and share 2 if two devices were given."""
        behaviour = self.course.behaviour
        steps = self.course.end // len(order.devices)
        points = tuple(
            SpeedPoint(share, steps, behaviour.speed(order.devices[:share]))
            for share in range(1, min(2, len(order.devices)) + 1)
        )
        pause_s = behaviour.pause_s if len(points) > 1 else None
        self.leave(at_s, Probed(**self.common(), points=points, startup_s=behaviour.startup_s, pause_s=pause_s))

    def crash(self, at_s: float) -> None:
        """The user's code has crashed: start again while retries are left."""
        course, common = self.course, self.common()
        reason, step = f"the code crashed after step {course.end}", int(course.step)
        if course.retries >= course.order.spec.retries:
            self.leave(at_s, Failed(**common, step=step, exit_code=1, reason=reason, user_fault=True))
            return
        course.retries += 1
        self.tell(at_s, Faulted(**common, cause="crashed", reason=reason, step=step, user_fault=True))
        self.executor.restart(course, at_s)

    def leave(self, at_s: float, event: Event) -> None:
        """End the job with its last event."""
        self.tell(at_s, event)
        del self.executor.courses[self.name]

    def report(self, at_s: float) -> None:
        """Say how far the job is."""
        course = self.course
        step, share = int(course.step), len(course.devices)
        self.tell(
            at_s,
            Progressed(
                **self.common(),
                step=step,
                total_steps=course.behaviour.total_steps,
                epoch=step // course.behaviour.steps_per_epoch,
                steps_per_s=course.speed,
                outside_s=0.0,
                share=share,
            ),
        )

    def common(self) -> EventFields:
        """The fields of every event."""
        return {"job": self.name, "generation": self.course.generation}

    def tell(self, at_s: float, event: Event) -> None:
        """Note an event and its instant."""
        self.told.append((at_s, event))
