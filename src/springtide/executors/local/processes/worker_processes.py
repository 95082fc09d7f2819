"""The processes of one start of one job: forked, connected, listened to, signalled and cleared away.

Mechanics only: names, pipes, connections and signals. What messages mean, and when to start again, is in `jobs`; each
start has processes, a control socket and a store of its own, so that nothing of an earlier start can reach a later one.
"""

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from springtide.executors.local.jobs.environment import MARK, find_script, is_python
from springtide.executors.local.jobs.hangs import ProcessSample
from springtide.executors.local.jobs.worker_logs import Pipe
from springtide.executors.local.jobs.worker_messages import MESSAGE_BYTES
from springtide.executors.local.json_connections import EventLoop, JsonConnection, Message, listen, read_peer_pid
from springtide.executors.local.processes.cgroups import ControlGroup
from springtide.executors.local.processes.fork_servers import ForkServerHandle, give_to
from springtide.executors.local.safe_files import OPEN_TO_PASS, PRIVATE
from springtide.executors.protocol import JobSpec

STORE = "store"
#: How long processes that were killed are waited for.
REAP_S = 10.0
#: How often a connection is read after its process has ended, a megabyte at a time.
DRAIN_TURNS = 64
#: Lines of processes that are not known (yet) that one start may hold open.
MOST_UNCLAIMED = 64
LAST_MESSAGES = ("finished", "done", "left", "terminated")
#: Run as scripts by the fork server, never imported here: the agent has no torch.
STORE_SCRIPT = Path(__file__).with_name("store_main.py")
COMMAND_SCRIPT = Path(__file__).with_name("exec_main.py")


@dataclass
class WorkerProcess:
    """One process."""

    name: str
    device: str = ""
    forked_s: float | None = None
    pipe: Pipe | None = None
    pid: int | None = None
    handle: psutil.Process | None = None
    connection: JsonConnection | None = None
    #: Whether it has called `springtide.init`.
    connected: bool = False
    #: Whether it has said that its part is over: its steps are done, or it has handed over.
    done: bool = False
    #: Whether it has said that it is in the user's code between epochs, not in a step.
    outside: bool = False
    #: What it has said it waits for (`run.busy`); empty: for nothing that it knows of.
    busy: str = ""
    code: int | None = None
    #: Whether it was ended because its job passed its memory, which the code does not tell.
    is_starved: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether it was asked for and has not ended."""
        return self.code is None

    @property
    def is_listening(self) -> bool:
        """Whether a command would reach it."""
        return self.connection is not None

    @property
    def is_suspicious(self) -> bool:
        """Whether its end must be explained although others are alive."""
        return self.code != 0 or self.name == STORE or (self.connected and not self.done)

    def is_late(self, now_s: float, init_s: float) -> bool:
        """Whether it should have called `springtide.init` by now."""
        started_s = self.forked_s
        return self.is_alive and not self.connected and started_s is not None and now_s - started_s >= init_s

    def note(self, message: Message) -> None:
        """Remember whether it has said its last word."""
        self.done = self.done or str(message.get("event")) in LAST_MESSAGES

    def signal(self, number: int) -> None:
        """Send a signal, never to another process that has taken over the number."""
        if self.handle is not None and self.is_alive:
            with contextlib.suppress(psutil.Error):
                self.handle.send_signal(number)

    def kill(self) -> None:
        """End it at once, and what it has started."""
        if self.handle is None or not self.is_alive:
            return
        with contextlib.suppress(psutil.Error):
            for child in self.handle.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
        self.signal(signal.SIGKILL)

    def sample(self) -> ProcessSample | None:
        """Its state and the processor time it has used; None if it has gone."""
        if self.handle is None or not self.is_alive:
            return None
        try:
            times = self.handle.cpu_times()
            stopped = self.handle.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return None
        used_s = times.user + times.system + times.children_user + times.children_system
        return ProcessSample(self.name, stopped, used_s)


class Processes:
    """The processes of one start."""

    def __init__(
        self, loop: EventLoop, fork: ForkServerHandle, folder: Path, label: str, group: ControlGroup | None = None
    ) -> None:
        self.loop = loop
        #: The control group that holds them and all that they start, where there is one.
        self.group = group
        self.fork = fork
        self.folder = folder
        self.label = label
        self.by_name: dict[str, WorkerProcess] = {}
        #: Lines of processes whose number is not known yet.
        self.unclaimed: dict[int, JsonConnection] = {}
        self.killed = False
        self.is_held = False
        self.on_message: Callable[[WorkerProcess, Message], None] = lambda process, message: None
        self.on_output: Callable[[WorkerProcess, bytes], None] = lambda process, data: None
        self.on_end: Callable[[WorkerProcess], None] = lambda process: None
        self.on_nonsense: Callable[[WorkerProcess, str], None] = lambda process, said: None
        # The folder stays ours: in it a job's user can neither replace nor add anything.
        folder.mkdir(mode=OPEN_TO_PASS if fork.key.user is not None else PRIVATE)
        self.control = folder / "c"
        self.listener = listen(self.control)
        if fork.key.user is not None:
            give_to(self.control, fork.key.user)
        loop.watch(self.listener, self.accept)

    @property
    def address(self) -> str:
        """The control socket, as the training runtime writes it."""
        return f"unix:{self.control}"

    def spawn_store(self, environment: Mapping[str, str]) -> None:
        """Start the process that holds the store; it says `store` when it serves."""
        own = {**environment, "SPRINGTIDE_CONTROL": self.address}
        self.request(WorkerProcess(STORE), str(STORE_SCRIPT), (), self.folder, own)

    def spawn(self, process: WorkerProcess, spec: JobSpec, environment: Mapping[str, str]) -> None:
        """Start a process of the job."""
        script = find_script(spec)
        if script is None:
            argv = (self.fork.key.python, *spec.argv[1:]) if is_python(spec.argv[0]) else spec.argv
            script = str(COMMAND_SCRIPT), argv
        more = {**self.list_protected(spec), **self.note_unlimited(spec)}
        self.request(process, *script, Path(spec.folder), environment, more)

    def note_unlimited(self, spec: JobSpec) -> Message:
        """What a process says first whose job cannot be held to its memory here."""
        if spec.memory_bytes is None or (self.group is not None and self.group.holds_memory):
            return {}
        return {"notice": "this job is not held to its memory: the machine gives us no memory controller (cgroup v2)"}

    def list_protected(self, spec: JobSpec) -> Message:
        """What the fork server is told of a job with inputs: what must be read-only, and what of its own must not."""
        if spec.preparation is None or not spec.preparation.inputs:
            return {}
        inputs = [str(Path(spec.preparation.inputs_dir, name)) for name in spec.preparation.inputs]
        own = [spec.folder, spec.output_dir, spec.log_dir, spec.checkpoint.dir, str(self.folder)]
        return {"read_only": inputs, "own": [path for path in own if path]}

    def request(
        self,
        process: WorkerProcess,
        script: str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        more: Message | None = None,
    ) -> None:
        """Have a process forked, with a pipe for what it prints; the fork server is told what else concerns it."""
        self.by_name[process.name] = process
        pipe = process.pipe = Pipe(self.folder / f"{process.name}.out")
        if self.fork.key.user is not None:
            give_to(pipe.path, self.fork.key.user)
        message = {
            "process": f"{self.label}/{process.name}",
            "script": script,
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "stdout": str(pipe.path),
            "stderr": str(pipe.path),
            **(more or {}),
        }
        self.fork.request(message, lambda answer: self.handle_fork_answer(process, answer))

    def handle_fork_answer(self, process: WorkerProcess, message: Message) -> None:
        """A process has started or ended."""
        if "pid" in message:
            process.pid = message["pid"]
            process.forked_s = time.monotonic()
            with contextlib.suppress(psutil.Error):
                process.handle = psutil.Process(process.pid)
            if self.killed:
                process.kill()
            self.let_go(process)
            connection = self.unclaimed.pop(message["pid"], None)
            if connection is not None:
                self.attach_connection(process, connection)
            return
        self.drain(process)
        process.code = message["code"]
        process.is_starved = process.code == -signal.SIGKILL and self.group is not None and self.group.has_passed_memory
        self.on_end(process)

    def let_go(self, process: WorkerProcess) -> None:
        """Put a new process into the group, and only then open the pipe for its output, for which it waits."""
        if self.group is not None and process.pid is not None:
            self.group.add(process.pid)
        if process.pipe is not None:
            process.pipe.start()
            if not self.is_held:
                self.watch_output(process, process.pipe)

    def accept(self) -> None:
        """Take the connection of a process that calls."""
        with contextlib.suppress(OSError):
            sock, _ = self.listener.accept()
            connection, pid = JsonConnection(sock, MESSAGE_BYTES), read_peer_pid(sock)
            process = next((one for one in self.by_name.values() if one.pid == pid and pid is not None), None)
            if process is not None:
                self.attach_connection(process, connection)
            elif pid is not None and pid not in self.unclaimed and len(self.unclaimed) < MOST_UNCLAIMED:
                self.unclaimed[pid] = connection
            else:
                connection.close()

    def attach_connection(self, process: WorkerProcess, connection: JsonConnection) -> None:
        """Listen to a process."""
        process.connected = True
        if process.connection is not None:
            self.close_connection(process)
        process.connection = connection
        self.loop.watch(connection, lambda: self.read_messages(process))
        self.read_messages(process)

    def read_messages(self, process: WorkerProcess) -> None:
        """Pass on what a process says."""
        connection = process.connection
        if connection is None:
            return
        for message in connection.read():
            process.note(message)
            self.on_message(process, message)
        if connection.nonsense:
            self.on_nonsense(process, connection.nonsense)
        if not connection.open and process.connection is connection:
            self.close_connection(process)

    def close_connection(self, process: WorkerProcess) -> None:
        """Let go of a process's connection."""
        if process.connection is not None:
            self.loop.unwatch(process.connection)
            process.connection.close()
            process.connection = None

    def read_output(self, process: WorkerProcess) -> None:
        """Pass on what a process prints."""
        if process.pipe is None:
            return
        data = process.pipe.read()
        if data:
            self.on_output(process, data)
        if not process.pipe.open:
            self.close_pipe(process)

    def hold_output(self, held: bool) -> None:
        """Leave what processes print in their pipes, which makes them wait, or take it again."""
        if held == self.is_held:
            return
        self.is_held = held
        for process in self.by_name.values():
            if process.pipe is not None and process.pipe.handle is not None:
                self.loop.unwatch(process.pipe)
                if not held:
                    self.watch_output(process, process.pipe)

    def watch_output(self, process: WorkerProcess, pipe: Pipe) -> None:
        """Call `read_output` when there is something to read."""
        self.loop.watch(pipe, lambda: self.read_output(process))

    def close_pipe(self, process: WorkerProcess) -> None:
        """Let go of the pipe of what a process prints."""
        if process.pipe is not None:
            self.loop.unwatch(process.pipe)
            process.pipe.close()
            process.pipe = None

    def drain(self, process: WorkerProcess) -> None:
        """Take in all that a process said before it ended."""
        for _ in range(DRAIN_TURNS):  # a child of it may hold the connection and never stop
            self.read_messages(process)
            if process.connection is None or not process.connection.has_more:
                break
        self.read_output(process)

    def write(self, name: str, message: Message) -> None:
        """Send a command to a process, if it is connected."""
        connection = self.by_name[name].connection
        if connection is not None:
            connection.write(message)

    @property
    def in_use(self) -> set[str]:
        """The devices on which processes may be alive."""
        return {process.device for process in self.by_name.values() if process.is_alive and process.device}

    def alive(self) -> list[WorkerProcess]:
        """The processes that have not ended, the store's left out."""
        return [process for process in self.by_name.values() if process.is_alive and process.name != STORE]

    def kill_all(self) -> None:
        """End every process at once, the store's too; those only asked for are never started."""
        self.killed = True
        withdrawn = self.fork.withdraw(f"{self.label}/")
        for process in self.by_name.values():
            if f"{self.label}/{process.name}" in withdrawn:
                process.code = -int(signal.SIGKILL)
            process.kill()
        if self.group is not None:
            self.group.kill()

    @property
    def are_gone(self) -> bool:
        """Whether no process is left, the store's included, nor any that they have started where that can be known."""
        if any(process.is_alive for process in self.by_name.values()):
            return False
        return self.group is None or self.group.is_empty

    def lose_fork(self) -> None:
        """The fork server has gone, so nobody will say how its children end: end them, and count them as killed."""
        for process in self.by_name.values():
            if process.is_alive:
                process.kill()
                self.drain(process)
                process.code = -int(signal.SIGKILL)
        if self.group is not None:
            self.group.kill()

    def close(self) -> None:
        """Let go of every file."""
        self.loop.unwatch(self.listener)
        self.listener.close()
        for process in self.by_name.values():
            self.close_connection(process)
            self.close_pipe(process)
        for connection in self.unclaimed.values():
            connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.group is not None:
            self.group.remove()


def find_marked(mark: str) -> list[psutil.Process]:
    """Every process in whose first environment MARK has this value, but for this one.

    A forked child keeps its parent's first environment, whatever it makes of its own.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != psutil.Process().pid and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def reap(mark: str) -> int:
    """End every marked process and wait until they are gone; how many there were at first."""
    leftovers = find_marked(mark)
    count = len(leftovers)
    until_s = time.monotonic() + REAP_S
    while leftovers and time.monotonic() < until_s:
        for process in leftovers:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)
        leftovers = find_marked(mark)
    return count
