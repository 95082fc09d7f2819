"""The processes of one start of one job: forked, connected, heard, signalled and cleared away.

Mechanics only: names, pipes, lines and signals. What events mean, and when to start again, is in `crews`; each start
has processes, a control socket and a store of its own, so that nothing of an earlier start can reach a later one.
"""

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from springtide.executors.local.jobs.environment import find_script, is_python
from springtide.executors.local.jobs.hangs import ProcessSample
from springtide.executors.local.jobs.worker_logs import Pipe
from springtide.executors.local.json_lines import EventLoop, JsonLines, Message, listen, read_peer_pid
from springtide.executors.local.processes.fork_servers import ForkLine, give_to
from springtide.executors.protocol import JobSpec

STORE = "store"
LAST_WORDS = ("finished", "done", "left", "terminated")
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
    process: psutil.Process | None = None
    lines: JsonLines | None = None
    #: Whether it has called `springtide.init`.
    connected: bool = False
    #: Whether it has said that its part is over: its steps are done, or it has handed over.
    done: bool = False
    code: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it was asked for and has not ended."""
        return self.code is None

    @property
    def is_suspicious(self) -> bool:
        """Whether its end calls for a verdict although others are alive."""
        return self.code != 0 or self.name == STORE or (self.connected and not self.done)

    def is_late(self, now_s: float, init_s: float) -> bool:
        """Whether it should have called `springtide.init` by now."""
        started_s = self.forked_s
        return self.is_alive and not self.connected and started_s is not None and now_s - started_s >= init_s

    def signal(self, number: int) -> None:
        """Send a signal, never to a stranger that has taken over the number."""
        if self.process is not None and self.is_alive:
            with contextlib.suppress(psutil.Error):
                self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once, and what it has started."""
        if self.process is None or not self.is_alive:
            return
        with contextlib.suppress(psutil.Error):
            for child in self.process.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
        self.signal(signal.SIGKILL)

    def look(self) -> ProcessSample | None:
        """Its state and the processor time it has used; None if it has gone."""
        if self.process is None or not self.is_alive:
            return None
        try:
            times = self.process.cpu_times()
            stopped = self.process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return None
        used_s = times.user + times.system + times.children_user + times.children_system
        return ProcessSample(self.name, stopped, used_s)


class Processes:
    """The processes of one start."""

    def __init__(self, loop: EventLoop, fork: ForkLine, folder: Path, label: str) -> None:
        self.loop = loop
        self.fork = fork
        self.folder = folder
        self.label = label
        self.members: dict[str, WorkerProcess] = {}
        #: Lines of processes whose number is not known yet.
        self.strangers: dict[int, JsonLines] = {}
        self.killed = False
        self.on_message: Callable[[WorkerProcess, Message], None] = lambda member, message: None
        self.on_output: Callable[[WorkerProcess, bytes], None] = lambda member, data: None
        self.on_end: Callable[[WorkerProcess], None] = lambda member: None
        folder.mkdir(mode=0o700)
        if fork.key.user is not None:
            give_to(folder, fork.key.user)
        self.control = folder / "c"
        self.listener = listen(self.control)
        if fork.key.user is not None:
            give_to(self.control, fork.key.user)
        loop.watch(self.listener, self.accept)

    @property
    def address(self) -> str:
        """The control socket, as the training runtime writes it."""
        return f"unix:{self.control}"

    def listen_to(
        self,
        on_message: Callable[[WorkerProcess, Message], None],
        on_output: Callable[[WorkerProcess, bytes], None],
        on_end: Callable[[WorkerProcess], None],
    ) -> None:
        """Say who hears what processes say and print, and of their ends."""
        self.on_message, self.on_output, self.on_end = on_message, on_output, on_end

    def spawn_store(self, environment: Mapping[str, str]) -> None:
        """Start the process that holds the store; it says `store` when it serves."""
        own = {**environment, "SPRINGTIDE_CONTROL": self.address}
        self.request(WorkerProcess(STORE), str(STORE_SCRIPT), (), self.folder, own)

    def spawn(self, member: WorkerProcess, spec: JobSpec, environment: Mapping[str, str]) -> None:
        """Start a process of the job."""
        script = find_script(spec)
        if script is None:
            argv = (self.fork.key.python, *spec.argv[1:]) if is_python(spec.argv[0]) else spec.argv
            script = str(COMMAND_SCRIPT), argv
        self.request(member, *script, Path(spec.folder), environment)

    def request(
        self, member: WorkerProcess, script: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Have a process forked, with a pipe for what it prints."""
        self.members[member.name] = member
        pipe = member.pipe = Pipe(self.folder / f"{member.name}.out")
        if self.fork.key.user is not None:
            give_to(pipe.path, self.fork.key.user)
        self.loop.watch(pipe, lambda: self.read_output(member))
        message = {
            "process": f"{self.label}/{member.name}",
            "script": script,
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "stdout": str(pipe.path),
            "stderr": str(pipe.path),
        }
        self.fork.request(message, lambda said: self.hear_fork(member, said))

    def hear_fork(self, member: WorkerProcess, message: Message) -> None:
        """A process has started or ended."""
        if "pid" in message:
            member.pid = message["pid"]
            member.forked_s = time.monotonic()
            with contextlib.suppress(psutil.Error):
                member.process = psutil.Process(member.pid)
            if self.killed:
                member.kill()
            stranger = self.strangers.pop(message["pid"], None)
            if stranger is not None:
                self.introduce(member, stranger)
            return
        self.drain(member)
        member.code = message["code"]
        self.on_end(member)

    def accept(self) -> None:
        """Take the line of a process that calls."""
        with contextlib.suppress(BlockingIOError):
            line, _ = self.listener.accept()
            lines, pid = JsonLines(line), read_peer_pid(line)
            member = next((one for one in self.members.values() if one.pid == pid and pid is not None), None)
            if member is not None:
                self.introduce(member, lines)
            elif pid is not None:
                self.strangers[pid] = lines

    def introduce(self, member: WorkerProcess, lines: JsonLines) -> None:
        """Listen to a process on its line."""
        member.connected = True
        if member.lines is not None:
            self.hang_up(member)
        member.lines = lines
        self.loop.watch(lines, lambda: self.hear(member))
        self.hear(member)

    def hear(self, member: WorkerProcess) -> None:
        """Pass on what a process says."""
        lines = member.lines
        if lines is None:
            return
        for message in lines.read():
            member.done = member.done or message.get("event") in LAST_WORDS
            self.on_message(member, message)
        if not lines.open and member.lines is lines:
            self.hang_up(member)

    def hang_up(self, member: WorkerProcess) -> None:
        """Let go of a process's line."""
        if member.lines is not None:
            self.loop.unwatch(member.lines)
            member.lines.close()
            member.lines = None

    def read_output(self, member: WorkerProcess) -> None:
        """Pass on what a process prints."""
        if member.pipe is None:
            return
        data = member.pipe.read()
        if data:
            self.on_output(member, data)
        if not member.pipe.open:
            self.loop.unwatch(member.pipe)
            member.pipe.close()
            member.pipe = None

    def drain(self, member: WorkerProcess) -> None:
        """Take in all that a process said before it ended."""
        self.hear(member)
        while member.lines is not None and member.lines.has_more:
            self.hear(member)
        self.read_output(member)

    def write(self, name: str, message: Message) -> bool:
        """Send a command to a process; False if it has no line."""
        lines = self.members[name].lines
        if lines is None:
            return False
        lines.write(message)
        return True

    @property
    def in_use(self) -> set[str]:
        """The devices on which processes may be alive."""
        return {member.device for member in self.members.values() if member.is_alive and member.device}

    def alive(self) -> list[WorkerProcess]:
        """The processes that have not ended, the store's left out."""
        return [member for member in self.members.values() if member.is_alive and member.name != STORE]

    def kill_all(self) -> None:
        """End every process at once, the store's too; those only asked for are never started."""
        self.killed = True
        withdrawn = self.fork.withdraw(f"{self.label}/")
        for member in self.members.values():
            if f"{self.label}/{member.name}" in withdrawn:
                member.code = -int(signal.SIGKILL)
            member.kill()

    @property
    def are_gone(self) -> bool:
        """Whether no process is left, the store's included."""
        return not any(member.is_alive for member in self.members.values())

    def lose_fork(self) -> None:
        """The fork server has gone, so nobody will say how its children end: end them, and count them as killed."""
        for member in self.members.values():
            if member.is_alive:
                member.kill()
                self.drain(member)
                member.code = -int(signal.SIGKILL)

    def close(self) -> None:
        """Let go of every file."""
        self.loop.unwatch(self.listener)
        self.listener.close()
        for member in self.members.values():
            self.hang_up(member)
            if member.pipe is not None:
                self.loop.unwatch(member.pipe)
                member.pipe.close()
                member.pipe = None
        for lines in self.strangers.values():
            lines.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def find_marked(mark: str, name: str) -> list[psutil.Process]:
    """Every process in whose first environment the variable `name` has this value, but for this one.

    A forked child keeps its parent's first environment, whatever it makes of its own.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != psutil.Process().pid and process.environ().get(name) == mark:
                found.append(process)
    return found


def reap(mark: str, name: str, patience_s: float = 10.0) -> int:
    """End every marked process and wait until they are gone; how many there were at first."""
    leftovers = find_marked(mark, name)
    count = len(leftovers)
    until_s = time.monotonic() + patience_s
    while leftovers and time.monotonic() < until_s:
        for process in leftovers:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)
        leftovers = find_marked(mark, name)
    return count
