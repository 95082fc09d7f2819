"""What a control plane and an executor say to each other: instructions down, events up, all plain frozen values.

The contract of every executor is here; how one keeps it is in `local` (processes of this machine) and `fake` (a
virtual clock). How the values become JSON is in `wire`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from springtide.executors.message_fields import ExitCode, Number, Seconds, Slowdown, StepCount, WorkerCount


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Where a job's checkpoints go, how often they are written, and how many are kept."""

    dir: str
    every_s: float = 300.0
    keep: Number = 2
    #: Whether the job's user has named the folder: it is then made and touched only as that user.
    is_given: bool = False
    #: Object storage that holds them (`s3://bucket/folder`); `dir` is then for receipts. Empty: `dir` holds them.
    url: str = ""
    #: The number of this start where an earlier one could still write unseen; 0: none could.
    generation: Number = 0
    #: The step that is known to be saved: a start that finds no checkpoint must not begin at 0.
    saved_step: StepCount = 0
    #: Object storage to which the output folder is copied when the job ends; empty: none.
    output_url: str = ""


@dataclass(frozen=True, slots=True)
class JobPreparation:
    """What is done before a job's processes start: `setup` once in a copy of `source`, which is then its `folder`.

    Inputs are put under their names into `inputs_dir`; what is fetched is kept in `cache_dir`.
    """

    source: str
    inputs_dir: str
    cache_dir: str
    setup: tuple[str, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that a worker needs to know about a job; fixed for the job's life.

    Paths are absolute. `folder` is the snapshot of the user's code, and the working directory.
    """

    argv: tuple[str, ...]
    folder: str
    checkpoint: CheckpointPolicy
    output_dir: str
    #: One `rank-K.log` per rank, rotated, with its times; `metrics.jsonl` and `attempts.jsonl` beside them.
    log_dir: str
    #: The folder of the platform's own in which `output_dir`, `log_dir` and, unless the user has named it, the
    #: checkpoints lie; None: the one above `log_dir`.
    home_dir: str | None = None
    #: The interpreter; None: the executor's own.
    python: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    #: A JSON object of names and values in a file of mode 0600; read at every start, written nowhere else.
    secrets_file: str | None = None
    #: None: what the script passes to `springtide.init`.
    logical_workers: Number | None = None
    #: What an earlier run of the same code passed: all devices are used from the start if that is still so.
    expected_workers: Number | None = None
    determinism: str = "D1"
    #: False: a gang of fixed size, with torchrun's variables; it needs no `springtide.init`.
    elastic: bool = True
    #: Stop after this many global steps; None: what the script says.
    steps: Number | None = None
    threads: Number = 1
    #: Restarts after crashes of the user's code; faults of ours do not count.
    retries: Number = 3
    #: Run under this user; needs an executor that is root.
    run_as: str | None = None
    #: How long the job may stand still between steps before it counts as hung; None: what its own pauses have taught.
    patience_s: Seconds | None = None
    allow_code_change: bool = False
    preparation: JobPreparation | None = None
    #: Names or patterns in `output_dir` without which the job has failed.
    outputs: tuple[str, ...] = ()
    #: What its processes may use together on one machine; None: as much as there is.
    memory_bytes: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInstruction:
    """What every instruction carries.

    An executor acts on an instruction only if its generation is greater than any it has seen for the job; so each
    instruction for a job takes the next number. `key` says whether a number seen twice is the same instruction sent
    again (ignored without a word) or another one (ignored with an `Ignored` event).
    """

    job: str
    generation: Number
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(JobInstruction):
    """Run a job on these devices, from its last checkpoint if it has one."""

    kind: Literal["start"] = "start"
    spec: JobSpec
    devices: tuple[str, ...]
    #: Logical workers on each of the devices, more on faster ones; empty: spread evenly.
    workers: tuple[WorkerCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize(JobInstruction):
    """Go on with other devices, or other workers on the same ones, in place: processes on devices that stay run on."""

    kind: Literal["resize"] = "resize"
    devices: tuple[str, ...]
    #: As in `Start`.
    workers: tuple[WorkerCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(JobInstruction):
    """Write a checkpoint and give all devices back; a later Start goes on from there."""

    kind: Literal["stop"] = "stop"
    reason: str = "preempted"
    #: Seconds for the checkpoint before all is killed; None: as many as the executor thinks fit.
    grace_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(JobInstruction):
    """End a job for good; its last checkpoint stays."""

    kind: Literal["cancel"] = "cancel"
    reason: str = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(JobInstruction):
    """Measure the speed of an unknown job: at share 1, then at share 2 if a second device is given, then end.

    Bounded by `max_steps` or `max_s` after the first step, over all shares. Checkpoints go to the spec's folder,
    which should be scratch. Ends with `Probed`, or `Failed`.
    """

    kind: Literal["probe"] = "probe"
    spec: JobSpec
    devices: tuple[str, ...]
    max_steps: StepCount = 30
    max_s: Seconds = 15.0


Instruction: TypeAlias = Start | Resize | Stop | Cancel | Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """What every event carries: its number in the executor's sequence, and when it happened (Unix time).

    `generation` is that of the instruction the job was carrying out.
    """

    seq: Number = 0
    at_s: Seconds = 0.0
    #: The same moment on the steady counter of a machine (`boot_clock`), and which boot of which machine that was; two
    #: such moments can be compared only where the boots are the same.
    steady_s: Seconds | None = None
    boot: str = ""
    #: How old it was when it was read, by the clocks of the machine where it happened; None: nobody there said.
    age_s: Seconds | None = None
    job: str
    generation: Number

    @property
    def moment_s(self) -> float:
        """The moment on the best clock there is, to take differences of one job's events."""
        return self.at_s if self.steady_s is None else self.steady_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(JobEvent):
    """The job's processes run; `step` is where they begin, not 0 after a checkpoint."""

    kind: Literal["started"] = "started"
    devices: tuple[str, ...]
    step: StepCount = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptInfo(JobEvent):
    """What the script has said of itself, before its first step; None where it has not."""

    kind: Literal["script_info"] = "script_info"
    logical_workers: WorkerCount | None
    total_steps: StepCount | None
    steps_per_epoch: StepCount | None
    device_type: str
    torch_version: str
    #: Seconds from the start of the processes to this point.
    startup_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(JobEvent):
    """How far the job is; sent about once a second, not per step."""

    kind: Literal["progressed"] = "progressed"
    step: StepCount
    total_steps: StepCount | None
    epoch: StepCount
    #: Over the steps since the last report at this share, time outside steps left out; None if there were none.
    steps_per_s: Seconds | None
    #: Seconds outside steps (evaluation, checkpoints, user code) since the processes started.
    outside_s: Seconds
    share: WorkerCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized(JobEvent):
    """The job goes on with these devices after a pause."""

    kind: Literal["resized"] = "resized"
    devices: tuple[str, ...]
    step: StepCount
    pause_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed(JobEvent):
    """A checkpoint of this step is on disk; ends `CheckpointFailing`."""

    kind: Literal["checkpointed"] = "checkpointed"
    step: StepCount


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailing(JobEvent):
    """Checkpoints cannot be written; training goes on."""

    kind: Literal["checkpoint_failing"] = "checkpoint_failing"
    step: StepCount
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(JobEvent):
    """Something that the user should know and that ends nothing: a damaged checkpoint that was passed over, say."""

    kind: Literal["warned"] = "warned"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lagging(JobEvent):
    """The process on a device takes so many times as long for its turns as the others, who wait for it at every step.

    An empty device: they are at one pace again. After a start or a resize nothing is known.
    """

    kind: Literal["lagging"] = "lagging"
    device: str
    factor: Slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsSeen(JobEvent):
    """What a job's inputs hold, by name, as fingerprints: at every start, and when it has changed."""

    kind: Literal["inputs_seen"] = "inputs_seen"
    fingerprints: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted(JobEvent):
    """Processes were lost or hung, or the user's code crashed with retries left; the job starts again by itself.

    `cause` is one of killed, hung, stopped (SIGSTOP), crashed, unsaved (its last checkpoint, which is the result, could
    not be written), unexpected (perhaps not as many logical workers as in earlier runs), fork_server_lost, agent_lost,
    host_failed (a host has no room for it, or no Python that works; another may).
    `step` is the last one reported; the `Started` that follows says where the job goes on.
    """

    kind: Literal["faulted"] = "faulted"
    cause: str
    reason: str
    step: StepCount
    user_fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(JobEvent):
    """All devices are given back, by a Stop or Cancel or because the lease ran out; `step` is in a checkpoint."""

    kind: Literal["stopped"] = "stopped"
    step: StepCount
    reason: str
    #: By Cancel: the job will not go on.
    cancelled: bool = False
    #: False if the grace ran out, or the last checkpoint could not be written: steps since the one before are lost.
    clean: bool = True
    #: How many, of those that were reported, where that is known; another start may find a newer copy in memory.
    lost: StepCount = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(JobEvent):
    """The script ended with code 0 after its last step, or after `run.stop(reason)`."""

    kind: Literal["finished"] = "finished"
    step: StepCount
    reason: str | None = None
    #: The SHA-256 of the file of weights in the last checkpoint, in hexadecimal; empty if there is none.
    weights: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(JobEvent):
    """The job has failed for good; `reason` is meant for the user."""

    kind: Literal["failed"] = "failed"
    step: StepCount
    exit_code: ExitCode | None
    reason: str
    #: Whether the user's code is to blame; otherwise nothing on this side could be done.
    user_fault: bool
    #: A word for programs: crashed, out_of_memory (it passed the job's own), no_init, early_exit, no_script,
    #: no_secrets, no_folder, wrong_version, bad_devices, no_progress, bad_message (its processes told the agent what
    #: cannot be), bad_event (the agent told us such), agent_error.
    code: str = "crashed"


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """A measured speed at a share."""

    share: WorkerCount
    steps: StepCount
    steps_per_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed(JobEvent):
    """A probe has ended; its devices are free."""

    kind: Literal["probed"] = "probed"
    points: tuple[SpeedPoint, ...]
    startup_s: Seconds
    #: Pause of the change from share 1 to share 2, if there was one.
    pause_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored(JobEvent):
    """An instruction was too old: the executor has seen generation `seen` of this job under another key."""

    kind: Literal["ignored"] = "ignored"
    key: str
    seen: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(JobEvent):
    """A machine with all its devices is gone; `job` is empty, and jobs there report nothing more."""

    kind: Literal["node_lost"] = "node_lost"
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeForgotten(JobEvent):
    """A machine that was lost long ago, and that no job waits for, is in no list any more; `job` is empty."""

    kind: Literal["node_forgotten"] = "node_forgotten"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(JobEvent):
    """A machine is there with these devices, for the first time or again; nothing runs on it. `job` is empty."""

    kind: Literal["node_joined"] = "node_joined"
    node: str
    device_type: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeaving(JobEvent):
    """A machine is about to go; jobs have so many seconds to leave it. `job` is empty."""

    kind: Literal["node_leaving"] = "node_leaving"
    node: str
    grace_s: Seconds
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoaded(JobEvent):
    """What others take of a machine's processors is now this much. `job` is empty."""

    kind: Literal["machine_loaded"] = "machine_loaded"
    #: The host; empty: the executor's own machine.
    machine: str
    #: All of its devices, on whichever nodes.
    devices: tuple[str, ...]
    cores: Seconds
    #: Cores' worth of work that others ask for.
    outside: Seconds
    #: How many times longer work on all its devices takes than without the others.
    slowdown: Slowdown


Event: TypeAlias = (
    Started
    | ScriptInfo
    | Progressed
    | Resized
    | Checkpointed
    | CheckpointFailing
    | Warned
    | Lagging
    | InputsSeen
    | Faulted
    | Stopped
    | Finished
    | Failed
    | Probed
    | Ignored
    | NodeLost
    | NodeJoined
    | NodeLeaving
    | NodeForgotten
    | MachineLoaded
)

#: After one of these a job holds no device until the next Start.
FINAL = (Stopped, Finished, Failed, Probed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job that holds devices, as the executor sees it now.

    `state` is one of starting, running, resizing, recovering, stopping. `devices` are those it was told to use.
    """

    job: str
    generation: Number
    devices: tuple[str, ...]
    state: str
    step: StepCount = 0
    total_steps: StepCount | None = None
    pids: tuple[Number, ...] = ()
    #: The device of each of `pids`.
    pid_devices: tuple[str, ...] = ()
    #: By device, what CUDA_VISIBLE_DEVICES calls it; empty for a CPU slot.
    uuids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutorNode:
    """A machine, or the part of one that has devices of one type, by the executor's own names."""

    name: str
    device_type: str
    devices: tuple[str, ...]
    #: False: it has been lost, and may come back.
    is_there: bool = True


class Executor(Protocol):
    """Starts and stops jobs where devices are. Every method returns at once."""

    def apply(self, instructions: Sequence[Instruction]) -> None:
        """Take instructions in order, each of them at most once; they are kept before this returns."""

    def events(self, after: int) -> Sequence[Event]:
        """The events with numbers greater than `after`, ascending, as many as are there."""

    def acknowledge(self, upto: int) -> None:
        """Forget the events up to this number: they are stored elsewhere."""

    def running(self) -> Sequence[Running]:
        """The jobs that hold devices, by name."""

    def nodes(self) -> Sequence[ExecutorNode]:
        """The machines and their devices; later changes are told as events."""

    def outage(self) -> str:
        """What it cannot do now while jobs go on, as to find further machines, and why; empty: nothing."""
