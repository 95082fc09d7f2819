"""Where the processes of jobs run, apart from what they do: the seam between this machine and hosts that have joined.

An attempt asks a `ProcessPlace` for the processes of one start and talks to them through `JobProcesses`.
`LocalPlace` is this machine; the hosts of a cluster are `executors.hosts`, which use a `LocalPlace` each.
"""

import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from springtide.executors.local.discovery import Device, choose_kernels, choose_visible
from springtide.executors.local.jobs import environment
from springtide.executors.local.json_connections import EventLoop, Message
from springtide.executors.local.processes.cgroups import ControlGroups
from springtide.executors.local.processes.fork_servers import ForkKey, ForkPool, ForkServerHandle
from springtide.executors.local.processes.worker_processes import Processes, WorkerProcess
from springtide.executors.protocol import CheckpointPolicy, JobSpec


@dataclass(frozen=True, slots=True)
class ProcessHandlers:
    """Who is called for what processes say and print, when they end, and when they say what is no message."""

    on_message: Callable[[WorkerProcess, Message], None]
    on_output: Callable[[WorkerProcess, bytes], None]
    on_end: Callable[[WorkerProcess], None]
    on_nonsense: Callable[[WorkerProcess, str], None]


class JobProcesses(Protocol):
    """The processes of one start of a job, wherever they run."""

    by_name: dict[str, WorkerProcess]

    @property
    def failure(self) -> str:
        """Why no process can be started; empty while one may."""

    @property
    def host_failure(self) -> str:
        """Why no process can be started on one of its hosts, though on others it may; empty while one may."""

    @property
    def torch_version(self) -> str:
        """The torch that they have."""

    def connect_handlers(self, handlers: ProcessHandlers) -> None:
        """Say who is called."""

    def start_store(self) -> None:
        """Start the process that holds the store; it says `store` when it serves."""

    def start(self, name: str, device: str, variables: Mapping[str, str], visible: Sequence[str]) -> None:
        """Start a process on a device, with these variables for it; it sees the `visible` devices of its host."""

    def write(self, name: str, message: Message) -> None:
        """Send a command to a process, if it is connected."""

    @property
    def in_use(self) -> set[str]:
        """The devices on which processes may be alive."""

    def alive(self) -> list[WorkerProcess]:
        """The processes that have not ended, the store's left out."""

    def kill_all(self) -> None:
        """End every process at once, the store's too."""

    @property
    def are_gone(self) -> bool:
        """Whether no process is left, nor any that they have started where that can be known."""

    def has_fork(self, servers: Collection[ForkServerHandle]) -> bool:
        """Whether one of these forked the processes."""

    def lose_fork(self) -> None:
        """The fork server has gone: end its children, and count them as killed."""

    def close(self) -> None:
        """Let go of every file and connection."""


class ProcessPlace(Protocol):
    """Where jobs may run."""

    def open(self, job: str, spec: JobSpec) -> JobProcesses:
        """What a new start of a job has: no process yet."""

    def can_reach(self, devices: Collection[str]) -> bool:
        """Whether the hosts of these devices are there now, and none of them is about to go."""


def find_host(device: str) -> str:
    """The host in the name of a device (`HOST/gpu:0`); empty: this machine."""
    return device.rpartition("/")[0]


def find_key(spec: JobSpec, python: str) -> ForkKey:
    """Which fork server a job needs."""
    early = environment.choose_early(spec)
    return ForkKey(spec.python or python, tuple(sorted(early.items())), spec.run_as)


#: A job that asks for nothing: it uses the fork server that most jobs use.
PLAIN_JOB = JobSpec(("python",), "", CheckpointPolicy(""), "", "")

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """This machine: its fork servers, its control groups, and a folder for sockets and pipes."""

    loop: EventLoop
    forks: ForkPool
    #: Its path is short.
    folder: Path
    devices: Mapping[str, Device]
    #: What of our environment workers may have, and the mark.
    environment: Mapping[str, str]
    python: str
    #: Where each start of a job gets a control group of its own; None: nowhere.
    groups: ControlGroups | None = None
    #: What processes are told about this machine's network; nothing where all peers are on it.
    network: Mapping[str, str] = field(default_factory=dict)

    def open(self, job: str, spec: JobSpec) -> "LocalProcesses":
        """What a new start of a job has: no process yet."""
        return self.open_with(job, spec, environment.read_private(spec, os.environ))

    def open_with(self, job: str, spec: JobSpec, private: Mapping[str, str]) -> "LocalProcesses":
        """The same, for a job whose secrets were brought here."""
        return LocalProcesses(self, job, spec, self.find_fork(job, spec, private), private)

    def open_for_store(self, job: str, spec: JobSpec) -> "LocalProcesses":
        """What a start has whose other processes are elsewhere: nothing of the script is imported here."""
        return LocalProcesses(self, job, spec, self.forks.find(find_key(spec, self.python)), {})

    def can_reach(self, devices: Collection[str]) -> bool:
        """This machine is always there."""
        return True

    def find_fork(self, job: str, spec: JobSpec, private: Mapping[str, str]) -> ForkServerHandle:
        """The fork server for a job's processes."""
        key = find_key(spec, self.python)
        script = environment.find_script(spec)
        # Ranks of a gang import for themselves: packages ask at their import which rank they are in (Lightning does).
        if script is None or not spec.elastic:
            return self.forks.find(key)
        own = {**environment.choose_own(spec), **private}
        log = Path(spec.log_dir) / "imports.log"
        return self.forks.find_for_job(job, key, Path(spec.folder) / script[0], log, own)

    def find_device_variables(self, device: str, visible: Sequence[str]) -> dict[str, str]:
        """The variables by which a process is of its device's type, and sees these devices."""
        return {**choose_kernels(self.devices[device]), **choose_visible([self.devices[name] for name in visible])}


class LocalProcesses(Processes):
    """The processes of one start on this machine, with all that their environment holds."""

    def __init__(
        self, place: LocalPlace, job: str, spec: JobSpec, fork: ForkServerHandle, private: Mapping[str, str]
    ) -> None:
        self.place = place
        self.spec = spec
        self.job = job
        self.private = private
        number = next(_numbers)
        group = place.groups.make(f"job-{number}", spec.memory_bytes) if place.groups is not None else None
        super().__init__(place.loop, fork, place.folder / f"j{number}", f"{job}/{number}", group)
        self.environment = {**place.environment, **environment.find_home(spec), **dict(fork.key.early)}

    @property
    def failure(self) -> str:
        """Why the fork server cannot serve; empty while it may."""
        return self.fork.failure

    @property
    def host_failure(self) -> str:
        """Nothing: there is no other machine."""
        return ""

    @property
    def torch_version(self) -> str:
        """The torch of the fork server."""
        return self.fork.torch_version

    def connect_handlers(self, handlers: ProcessHandlers) -> None:
        """Say who is called."""
        self.on_message, self.on_output = handlers.on_message, handlers.on_output
        self.on_end, self.on_nonsense = handlers.on_end, handlers.on_nonsense

    def start_store(self) -> None:
        """Start the process that holds the store; it says `store` when it serves."""
        self.spawn_store({**self.environment, **self.place.network})

    def start(self, name: str, device: str, variables: Mapping[str, str], visible: Sequence[str]) -> None:
        """Start a process on a device, with these variables for it."""
        own = {
            **self.environment,
            **self.place.network,
            **environment.choose_own(self.spec),
            **self.private,
            **self.place.find_device_variables(device, visible),
            **variables,
            "SPRINGTIDE_CONTROL": self.address,
        }
        self.spawn(WorkerProcess(name, device), self.spec, own)

    def has_fork(self, servers: Collection[ForkServerHandle]) -> bool:
        """Whether one of these forked the processes."""
        return self.fork in servers
