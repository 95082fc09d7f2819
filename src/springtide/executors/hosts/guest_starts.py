"""A start of a job on this host, for a lead elsewhere: processes of this machine, and what the lead is told of them.

What they say and print goes to the lead as it comes. What changes in between (numbers, ends, samples) is told once per
turn of the loop, after it, so that a process's last words come before its end.
"""

from dataclasses import dataclass, field
from pathlib import Path

from springtide.executors.hosts.beating_connections import BeatingConnection
from springtide.executors.hosts.checkpoint_receipts import ReceiptWatch
from springtide.executors.hosts.host_messages import (
    CheckpointReceipt,
    Exited,
    Forked,
    ListeningChanged,
    Nonsense,
    OpenStart,
    Printed,
    Said,
    Sampled,
    StartState,
    encode,
)
from springtide.executors.hosts.own_disk import find_variables
from springtide.executors.local.jobs.places import LocalPlace, LocalProcesses, ProcessHandlers
from springtide.executors.local.json_connections import Message
from springtide.executors.local.processes.worker_processes import WorkerProcess


@dataclass
class KnownOfProcess:
    """What the lead knows of a process."""

    pid: int | None = None
    listening: bool = False
    ended: bool = False


@dataclass
class GuestStart:
    """The processes of one start on this host."""

    name: str
    processes: LocalProcesses
    connection: BeatingConnection
    known: dict[str, KnownOfProcess] = field(default_factory=dict)
    state: StartState | None = None
    #: Whether the lead has ended it: when nothing is left, that is told too.
    killed: bool = False
    sampled_s: float = 0.0
    #: Where the lead does not see this host's disk: the receipts that it is sent, and the folders here.
    receipts: ReceiptWatch | None = None
    variables: dict[str, str] = field(default_factory=dict)
    #: What could not be done for it here, if something could not, and whether that is the host's own trouble.
    failure: str = ""
    is_hosts: bool = False

    def fail(self, failure: str, is_hosts: bool) -> None:
        """Something could not be done for it: the lead is told, now and with all that it is told after this."""
        if not self.failure:
            self.failure, self.is_hosts = failure, is_hosts

    def send_message(self, process: WorkerProcess, message: Message) -> None:
        """Pass on what a process says."""
        self.send_changes(process)
        self.connection.send(Said("said", self.name, process.name, message))

    def send_output(self, process: WorkerProcess, data: bytes) -> None:
        """Pass on what a process prints."""
        self.connection.send(Printed("printed", self.name, process.name, encode(data)))

    def send_nonsense(self, process: WorkerProcess, text: str) -> None:
        """Pass on that a process says what is no message."""
        self.connection.send(Nonsense("nonsense", self.name, process.name, text))

    def kill(self) -> None:
        """End all of it at once."""
        self.killed = True
        self.processes.kill_all()

    def tick(self, now_s: float, sample_s: float, is_unfit: bool) -> None:
        """Tell what has changed; where the host is unfit, no failure is the job's."""
        self.processes.hold_output(self.connection.is_crowded)
        for process in list(self.processes.by_name.values()):
            self.send_changes(process)
        if now_s - self.sampled_s >= sample_s:
            self.sampled_s = now_s
            self.send_samples()
            self.send_receipts()
        gone = self.killed and self.processes.are_gone
        failure, version = self.failure or self.processes.failure, self.processes.torch_version
        is_hosts = bool(failure) and (self.is_hosts or is_unfit)
        state = StartState("state", self.name, version, failure, gone, is_hosts)
        if state != self.state:
            self.state = state
            self.connection.send(state)

    def send_changes(self, process: WorkerProcess) -> None:
        """Tell of a process what the lead does not know yet."""
        known = self.known.setdefault(process.name, KnownOfProcess())
        if process.pid is not None and known.pid is None:
            known.pid = process.pid
            self.connection.send(Forked("forked", self.name, process.name, process.pid))
        if process.is_listening != known.listening:
            known.listening = process.is_listening
            self.connection.send(ListeningChanged("line", self.name, process.name, known.listening))
        if process.code is not None and not known.ended:
            known.ended = True
            self.send_receipts()  # of what it saved last, before its end is judged
            self.connection.send(Exited("exited", self.name, process.name, process.code, process.is_starved))

    def send_samples(self) -> None:
        """Send what a look at the processes shows."""
        found = [sample for process in self.processes.alive() if (sample := process.sample()) is not None]
        if found:
            samples = {sample.name: (sample.is_stopped, sample.cpu_s) for sample in found}
            self.connection.send(Sampled("sampled", self.name, samples))

    def send_receipts(self) -> None:
        """Send the receipts of checkpoints that are new."""
        for name, manifest in self.receipts.list_new() if self.receipts is not None else ():
            self.connection.send(CheckpointReceipt("saved", self.name, name, manifest))


def open_start(
    place: LocalPlace, order: OpenStart, connection: BeatingConnection, on_own_disk: bool = False
) -> GuestStart:
    """Be ready for processes of a start."""
    start = GuestStart(order.start, place.open_with(order.job, order.spec, order.private), connection)
    if on_own_disk:
        start.receipts = ReceiptWatch(Path(order.spec.checkpoint.dir))
        start.variables = find_variables(order.spec)
    start.processes.connect_handlers(
        ProcessHandlers(start.send_message, start.send_output, lambda process: None, start.send_nonsense)
    )
    return start
