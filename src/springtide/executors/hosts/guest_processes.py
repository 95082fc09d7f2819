"""The processes of one start on hosts that have joined, as the lead's attempt sees them.

The same words as for processes of this machine (`places.JobProcesses`); what they do, say and print comes over the
connections of their hosts.
"""

import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from springtide.executors.hosts.checkpoint_receipts import keep_receipt
from springtide.executors.hosts.host_messages import (
    CheckpointReceipt,
    EndStart,
    Exited,
    Forked,
    ListeningChanged,
    Nonsense,
    OpenStart,
    PassCommand,
    Printed,
    Said,
    Sampled,
    SendSignal,
    SpawnWorker,
    StartState,
)
from springtide.executors.hosts.own_disk import drop_folders, drop_paths, find_obstacle
from springtide.executors.local.jobs.environment import read_portable, read_private
from springtide.executors.local.jobs.hangs import ProcessSample
from springtide.executors.local.jobs.places import ProcessHandlers, find_host
from springtide.executors.local.json_connections import Message
from springtide.executors.local.processes.fork_servers import ForkServerHandle
from springtide.executors.local.processes.worker_processes import STORE, WorkerProcess
from springtide.executors.protocol import JobSpec

if TYPE_CHECKING:
    from springtide.executors.hosts.host_hub import HostHub

KILLED = -int(signal.SIGKILL)
GuestReport = Forked | ListeningChanged | Said | Nonsense | Printed | Exited | Sampled | StartState | CheckpointReceipt


@dataclass
class Guest(WorkerProcess):
    """A process on a host."""

    host: str = ""
    start: str = ""
    hub: "HostHub | None" = None
    listening: bool = False
    seen: ProcessSample | None = None

    @property
    def is_listening(self) -> bool:
        """Whether a command would reach it."""
        return self.listening and self.is_alive

    def signal(self, number: int) -> None:
        """Have a signal sent."""
        if self.is_alive and self.hub is not None:
            self.hub.send(self.host, SendSignal("signal", self.start, self.name, number))

    def kill(self) -> None:
        """End it at once, and what it has started."""
        self.signal(signal.SIGKILL)

    def sample(self) -> ProcessSample | None:
        """The last sample that its host has sent."""
        return self.seen if self.is_alive else None


@dataclass
class LastStart:
    """A start, and the last step of which the lead heard: what rank 0 recorded until then has come before it."""

    name: str
    heard: int = 0
    #: The one before it, whose copies are the newest as long as this one has made no step.
    past: "LastStart | None" = None

    def note(self, message: Message) -> None:
        """Remember how far the job is."""
        step = message.get("step")
        if message.get("event") == "progressed" and isinstance(step, int):
            self.heard = max(self.heard, step)


@dataclass
class HostPart:
    """What a start has on one host."""

    torch_version: str = ""
    failure: str = ""
    #: Whether that is the host's own trouble.
    is_hosts: bool = False
    gone: bool = False
    #: When what is left of it there has ended at the latest, if the host is lost.
    cleared_s: float | None = None

    def is_gone(self, now_s: float) -> bool:
        """Whether nothing of it is left."""
        return self.gone if self.cleared_s is None else now_s >= self.cleared_s


class GuestProcesses:
    """The processes of one start, on hosts."""

    def __init__(self, hub: "HostHub", job: str, spec: JobSpec, own: LastStart, before: LastStart | None) -> None:
        self.hub = hub
        self.job = job
        self.spec = spec
        self.name = own.name
        self.own, self.before = own, before or LastStart("")
        self.by_name: dict[str, WorkerProcess] = {}
        self.parts: dict[str, HostPart] = {}
        #: The store is the lead's: whichever hosts a job leaves, it stays.
        self.store = hub.local.open_for_store(job, spec)
        self.handlers: ProcessHandlers | None = None
        self.killed = False
        #: For hosts that see the home, and for those with a disk of their own.
        self.private, self.portable = read_private(spec, os.environ), read_portable(spec, os.environ)

    @property
    def failure(self) -> str:
        """Why no process can be started on a host, and on no other; empty while one may."""
        return self.find_failure(is_hosts=False) or self.store.failure

    @property
    def host_failure(self) -> str:
        """Why no process can be started on a host, though on another it may; empty while one may."""
        return self.find_failure(is_hosts=True)

    def find_failure(self, is_hosts: bool) -> str:
        """The first failure of a host that is the host's own, or that is none of it."""
        failed = ((host, part) for host, part in self.parts.items() if part.failure and part.is_hosts == is_hosts)
        return next((f"host {host}: {part.failure}" for host, part in failed), "")

    @property
    def torch_version(self) -> str:
        """The torch of the first host that has said."""
        return next((part.torch_version for part in self.parts.values() if part.torch_version), "")

    def connect_handlers(self, handlers: ProcessHandlers) -> None:
        """Say who is called."""
        self.handlers = handlers
        self.store.connect_handlers(handlers)

    def open_on(self, host: str) -> None:
        """Have a host ready for processes of this start; one that does not see the home is sent the code's digest."""
        part = self.parts.get(host)
        if not self.hub.is_here(host):
            self.parts[host] = part or HostPart(gone=True)
            return
        if part is not None and part.cleared_s is None and (part.failure or not part.gone):
            return  # one that was lost or away, and is back, knows of no start
        sees_home, obstacle = self.hub.sees_home(host), find_obstacle(self.spec)
        if not sees_home and obstacle:
            self.parts[host] = HostPart(failure=f"it does not see the server's home, and {obstacle}", gone=True)
            return
        self.parts[host] = HostPart()
        code = "" if sees_home else self.hub.code.pack(self.spec.folder)
        spec, private = (self.spec, self.private) if sees_home else (drop_paths(self.spec), self.portable)
        before = self.before
        self.hub.send(host, OpenStart("open", self.name, self.job, spec, private, code, before.name, before.heard))

    def add(self, name: str, device: str, host: str) -> None:
        """Know of a process that is asked for; one on a host that has just been lost has ended."""
        code = None if self.hub.is_here(host) else KILLED
        self.by_name[name] = Guest(name, device, host=host, start=self.name, hub=self.hub, code=code)
        self.open_on(host)

    def start_store(self) -> None:
        """Start the process that holds the store."""
        self.store.start_store()
        self.by_name[STORE] = self.store.by_name[STORE]

    def start(self, name: str, device: str, variables: Mapping[str, str], visible: Sequence[str]) -> None:
        """Start a process on a device, with these variables for it."""
        host = find_host(device)
        self.add(name, device, host)
        shown = tuple(other.removeprefix(f"{host}/") for other in visible)
        local = device.removeprefix(f"{host}/")
        own = dict(variables) if self.hub.sees_home(host) else drop_folders(variables)
        self.hub.send(host, SpawnWorker("spawn", self.name, name, local, own, shown))

    def hear(self, host: str, report: GuestReport) -> None:
        """Act on what a host tells of its part."""
        if isinstance(report, StartState):
            part = self.parts[host]
            part.torch_version, part.failure, part.is_hosts = report.torch_version, report.failure, report.is_hosts
            part.gone = part.gone or report.gone
        elif isinstance(report, CheckpointReceipt):
            self.keep_receipt(report)
        elif isinstance(report, Sampled):
            for name, (is_stopped, cpu_s) in report.samples.items():
                self.find(host, name).seen = ProcessSample(name, is_stopped, cpu_s)
        else:
            self.hear_of(self.find(host, report.process), report)

    def keep_receipt(self, report: CheckpointReceipt) -> None:
        """Keep the receipt of a checkpoint; the checkpoint itself is saved, whatever becomes of this."""
        policy = self.spec.checkpoint
        try:
            keep_receipt(Path(policy.dir), report.name, report.manifest, policy.keep)
        except OSError as error:
            print(f"the receipt of {report.name} of {self.job} cannot be kept: {error}", flush=True)

    def find(self, host: str, name: str) -> Guest:
        """A process of a host; nobody speaks for those of others."""
        guest = self.by_name.get(name)
        if not isinstance(guest, Guest) or guest.host != host:
            raise ValueError(f"a report on process {name!r}, which is not there")
        return guest

    def hear_of(self, guest: Guest, report: Forked | ListeningChanged | Said | Nonsense | Printed | Exited) -> None:
        """Act on what a host tells of one process."""
        if self.handlers is None or not guest.is_alive:
            return
        match report:
            case Forked(pid=pid):
                guest.pid, guest.forked_s = pid, time.monotonic()
            case ListeningChanged(listening=listening):
                guest.listening = listening
                guest.connected = guest.connected or listening
            case Said(message=message):
                guest.connected = True
                guest.note(message)
                self.own.note(message)
                self.handlers.on_message(guest, message)
            case Printed():
                self.handlers.on_output(guest, report.content)
            case Nonsense(text=text):
                self.handlers.on_nonsense(guest, text)
            case Exited(code=code, starved=starved):
                guest.code, guest.is_starved = code, starved
                self.handlers.on_end(guest)

    def lose_host(self, host: str, cleared_s: float) -> None:
        """A host is gone, and with it its guests; that they have ended is sure from `cleared_s` on."""
        part = self.parts.get(host)
        if part is None:
            return
        part.cleared_s = cleared_s
        for guest in list(self.by_name.values()):
            if isinstance(guest, Guest) and guest.host == host and guest.is_alive:
                guest.code = KILLED
                if self.handlers is not None:
                    self.handlers.on_end(guest)

    def write(self, name: str, message: Message) -> None:
        """Send a command to a process."""
        guest = self.by_name[name]
        if isinstance(guest, Guest):
            self.hub.send(guest.host, PassCommand("write", self.name, name, message))

    @property
    def in_use(self) -> set[str]:
        """The devices on which processes may be alive."""
        return {process.device for process in self.by_name.values() if process.is_alive and process.device}

    def alive(self) -> list[WorkerProcess]:
        """The processes that have not ended, the store's left out."""
        return [process for process in self.by_name.values() if process.is_alive and process.name != STORE]

    def kill_all(self) -> None:
        """End every process at once, the store's too."""
        self.killed = True
        self.store.kill_all()
        for host in self.parts:
            self.hub.send(host, EndStart("kill", self.name))

    @property
    def are_gone(self) -> bool:
        """Whether each host has said that nothing is left, or is lost for so long that it has ended everything."""
        now_s = time.monotonic()
        return self.store.are_gone and all(part.is_gone(now_s) for part in self.parts.values())

    def has_fork(self, servers: Collection[ForkServerHandle]) -> bool:
        """Whether one of these forked the store; a host that loses its own tells of its processes' ends."""
        return self.store.has_fork(servers)

    def lose_fork(self) -> None:
        """The store has gone with its fork server."""
        self.store.lose_fork()

    def close(self) -> None:
        """Have the hosts let go of this start."""
        for host in self.parts:
            self.hub.send(host, EndStart("close", self.name))
        self.store.close()
        self.hub.starts.pop(self.name, None)
