"""The supervisor of one job's training processes: starts, rescales, kills and restarts them, and hears their events.

Used by tests and `verify` in their own process, and by executors across a process boundary through `launch`. One
thread: everything happens in `pump`. It decides nothing about sizes; its caller does.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from springtide.errors import RescaleError, TrainingError
from springtide.training.group import groups
from springtide.training.group.rosters import Roster, make_roster
from springtide.training.settings import Settings, write_settings

Event = dict[str, Any]

#: A process that fails may only have lost a peer that was killed; the news of that kill is awaited this long.
COLLATERAL_S = 0.5


@dataclass(frozen=True, slots=True)
class ScriptedJob:
    """What to run: a script as `python script arguments`, in a folder, with settings and variables of its own."""

    script: Path
    arguments: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path.cwd)
    settings: Settings = field(default_factory=Settings)
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Where devices differ: variables of each, taken in turn by the processes in the order they are started.
    devices: tuple[Mapping[str, str], ...] = ()
    #: Restarts from the last checkpoint after processes that were killed; a script that fails is not restarted.
    restarts: int = 20


class SupervisorLines:
    """Whole JSON lines out of a stream socket."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.rest = b""
        self.open = True

    def read(self) -> list[Event]:
        """The lines that have come in; at the end of the stream `open` becomes False."""
        try:
            data = self.line.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.open = bool(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def write(self, message: Event) -> None:
        """Send one line; a peer that has gone is noticed when reading."""
        with contextlib.suppress(OSError):
            self.line.sendall(json.dumps(message).encode() + b"\n")


def start_server(path: Path, threads: int = 1, script: Path | None = None) -> subprocess.Popen[bytes]:
    """A fork server that will answer on this socket, and ends when its last requester has gone.

    It has imported torch, and what a script imports if one is given.
    """
    command = [sys.executable, "-m", "springtide.training.forking.forkserver", "--socket", str(path)]
    command += [] if script is None else ["--script", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def connect_server(path: Path, process: subprocess.Popen[bytes] | None) -> socket.socket:
    """A line to the fork server on this socket, as soon as it answers."""
    while True:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(str(path))
            return line
        except (FileNotFoundError, ConnectionRefusedError):
            line.close()
            if process is None or process.poll() is not None:
                raise TrainingError(f"no fork server answers on {path}") from None
            time.sleep(0.02)


class Supervisor:
    """The processes of one job."""

    def __init__(self, job: ScriptedJob, work_dir: Path | None = None, fork_socket: Path | None = None) -> None:
        self.job = job
        self.process: subprocess.Popen[bytes] | None = None
        self.temporary = tempfile.TemporaryDirectory(prefix="springtide-") if work_dir is None else None
        self.work_dir = Path(self.temporary.name) if self.temporary else work_dir or Path()
        self.store, self.store_address = groups.host_store()
        self.selector = selectors.DefaultSelector()
        self.listener = self.open_listener()
        self.server = self.connect_server(fork_socket)
        self.accepted: list[socket.socket] = []
        self.lines: dict[str, SupervisorLines] = {}
        self.pids: dict[str, int] = {}
        self.codes: dict[str, int] = {}
        self.events: list[Event] = []
        self.roster = Roster(())
        self.next_roster: Roster | None = None
        self.generation = 0
        self.named = 0
        self.first = 0
        self.restarted = 0
        self.last_step = 0
        self.left: set[str] = set()
        self.suspects: dict[str, float] = {}
        self.held: int | None = None
        self.finished = False
        self.failure: str | None = None

    def open_listener(self) -> socket.socket:
        """The socket that processes connect to."""
        self.control_path = self.work_dir / "control"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.control_path))
        listener.listen()
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        return listener

    def connect_server(self, fork_socket: Path | None) -> SupervisorLines:
        """The fork server: a warm one if given, else one of our own, which takes seconds to import torch."""
        if fork_socket is None:
            fork_socket = self.work_dir / "fork"
            self.process = start_server(fork_socket, self.job.settings.threads)
        line = connect_server(fork_socket, self.process)
        self.selector.register(line, selectors.EVENT_READ, lambda _: self.hear_server())
        return SupervisorLines(line)

    def start(self, counts: Sequence[int]) -> None:
        """Start processes with these logical workers each; from the last checkpoint if there is one."""
        self.first = self.named
        self.roster = make_roster(counts, [self.new_name() for _ in counts])
        for name in self.roster.names:
            self.spawn(name, self.roster, joining=False)

    def new_name(self) -> str:
        """A name no process of this job has had."""
        self.named += 1
        return f"p{self.named - 1}"

    def spawn(self, name: str, roster: Roster, joining: bool) -> None:
        """Fork a process into a roster."""
        settings = replace(
            self.job.settings,
            process=name,
            roster=str(roster),
            generation=self.generation,
            joining=joining,
            store=self.store_address,
            control=f"unix:{self.control_path}",
        )
        request = {
            "process": name,
            "script": str(self.job.script),
            "arguments": list(self.job.arguments),
            "folder": str(self.job.folder),
            "environment": {**os.environ, **self.job.environment, **write_settings(settings), **self.device_of(name)},
            "stdout": str(self.work_dir / f"{name}.out"),
            "stderr": str(self.work_dir / f"{name}.err"),
        }
        self.server.write(request)

    def device_of(self, name: str) -> Mapping[str, str]:
        """The variables of the device that a process runs on."""
        devices = self.job.devices
        return devices[(int(name[1:]) - self.first) % len(devices)] if devices else {}

    def rescale(self, counts: Sequence[int]) -> None:
        """Ask for other processes, in place; survivors keep theirs. Complete when `resized` is heard."""
        if self.next_roster is not None:
            raise RescaleError("a rescale is under way; wait for its `resized` event before asking for the next")
        self.generation += 1
        kept = list(self.roster.names[: len(counts)])
        joiners = [self.new_name() for _ in range(len(counts) - len(kept))]
        self.next_roster = make_roster(counts, kept + joiners)
        for name in joiners:
            self.spawn(name, self.next_roster, joining=True)
        self.command(do="rescale", generation=self.generation, roster=str(self.next_roster))

    def command(self, **message: Any) -> None:
        """Send a command to the process of rank 0."""
        self.wait_for(lambda: self.roster.names[0] in self.lines)
        self.lines[self.roster.names[0]].write(message)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of a rank."""
        os.kill(self.pids[self.roster.names[rank]], number)

    def pump(self, timeout_s: float | None = None) -> None:
        """Handle what has happened, waiting for something for at most this long."""
        for key, _ in self.selector.select(timeout_s):
            key.data(key.fileobj)
        for name, since_s in list(self.suspects.items()):
            if time.monotonic() - since_s > COLLATERAL_S:
                self.fail(f"process {name} ended with code {self.codes[name]}: {self.tail(name)}")

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        """Handle events until a condition holds; raise when the job fails or it takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self.check()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TrainingError(f"{self.job.script.name} did not get there within {timeout_s:g} s")
            self.pump(min(left_s, 1.0))

    def check(self) -> None:
        """Raise if the job has failed."""
        if self.failure is not None:
            raise TrainingError(self.failure)

    def wait(self, timeout_s: float = 120.0) -> None:
        """Handle events until every process has ended; raise when the job has failed."""
        self.wait_for(lambda: self.finished and self.alive() == [], timeout_s)

    def wait_for_step(self, step: int, timeout_s: float = 120.0) -> None:
        """Handle events until a global step has been completed, or the job has finished."""
        self.wait_for(lambda: self.finished or self.step() >= step, timeout_s)

    def wait_for_rescale(self, timeout_s: float = 120.0) -> None:
        """Handle events until no rescale is under way, or the job has finished."""
        self.wait_for(lambda: self.finished or self.next_roster is None, timeout_s)

    def wait_for_hold(self, timeout_s: float = 120.0) -> int | None:
        """Handle events until rank 0 holds at one of `settings.hold_at`, and return the step; None at the end."""
        self.wait_for(lambda: self.finished or self.held is not None, timeout_s)
        return self.held

    def go(self) -> None:
        """Let a held job go on."""
        self.held = None
        self.command(do="go")

    def step(self) -> int:
        """The last global step heard of."""
        return self.last_step

    def alive(self) -> list[str]:
        """Names of the processes that have not ended."""
        return [name for name in self.pids if name not in self.codes]

    def accept(self, listener: socket.socket) -> None:
        """Take a process's line; its first event says which process it is."""
        line, _ = listener.accept()
        lines = SupervisorLines(line)
        self.accepted.append(line)
        self.selector.register(line, selectors.EVENT_READ, lambda _: self.hear(lines))

    def hear(self, lines: SupervisorLines) -> None:
        """Note a process's events."""
        for event in lines.read():
            self.lines[event["process"]] = lines
            self.note(event)
        if not lines.open:
            self.selector.unregister(lines.line)
            lines.line.close()
            for name in self.roster.names:
                self.judge_exit(name)

    def note(self, event: Event) -> None:
        """Keep an event and what it changes."""
        self.events.append({**event, "at_s": time.monotonic()})
        self.last_step = event.get("step", self.last_step)
        if event["event"] == "resized" and self.next_roster is not None:
            self.roster, self.next_roster = self.next_roster, None
        elif event["event"] in ("left", "done"):
            self.left.add(event["process"])
        elif event["event"] == "held":
            self.held = event["step"]
        elif event["event"] in ("finished", "terminated"):
            self.finished = True

    def hear_server(self) -> None:
        """Note which processes have started and ended."""
        for message in self.server.read():
            if "pid" in message:
                self.pids[message["process"]] = message["pid"]
            else:
                name = next(name for name, pid in self.pids.items() if pid == message["exited"])
                self.codes[name] = message["code"]
                self.note_end(name, message["code"])

    def note_end(self, name: str, code: int) -> None:
        """A process has ended: as it should, by its own fault, or killed, which calls for a restart."""
        roster = self.next_roster or self.roster
        if self.finished or name not in {*roster.names, *self.roster.names}:
            return
        if code == 0:
            self.judge_exit(name)
        elif code > 0:
            self.suspects[name] = time.monotonic()
        elif self.restarted >= self.job.restarts:
            self.fail(f"process {name} was lost (code {code}) and {self.restarted} restarts are used up")
        else:
            self.restart()

    def judge_exit(self, name: str) -> None:
        """Fail the job if a process has ended well, said all it had to say, and not said that the job is done."""
        line = self.lines.get(name)
        silent = line is None or not line.open
        if self.codes.get(name) == 0 and silent and not self.finished and name not in self.left:
            when = "without a call of springtide.init" if line is None else f"after step {self.last_step}"
            self.fail(
                f"process {name} ended {when}, before the last step; a script that wants to end early calls "
                "run.stop(reason)"
            )

    def fail(self, text: str) -> None:
        """Note why the job has failed, and end what is left of it."""
        self.failure = self.failure or text
        self.suspects.clear()
        self.kill_all()

    def restart(self) -> None:
        """End what is left of the present generation and start it again from the last checkpoint."""
        self.restarted += 1
        self.held = None
        self.suspects.clear()
        counts = (self.next_roster or self.roster).counts
        lost = self.alive()
        self.roster, self.next_roster = Roster(()), None
        self.kill_all()
        self.wait_for(lambda: not set(lost) & set(self.alive()))
        self.generation += 1
        self.events.append({"event": "restarted", "process": "", "generation": self.generation})
        self.start(counts)

    def kill_all(self) -> None:
        """End every process at once."""
        for name in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[name], signal.SIGKILL)

    def tail(self, name: str, lines: int = 5) -> str:
        """The last lines a process wrote to standard error."""
        path = self.work_dir / f"{name}.err"
        text = path.read_text(errors="replace") if path.exists() else ""
        return " | ".join(text.strip().splitlines()[-lines:]) or "it said nothing"

    def close(self) -> None:
        """End everything this supervisor started."""
        self.kill_all()
        self.server.line.close()
        if self.process is not None:
            self.process.wait(timeout=30)
        self.listener.close()
        self.selector.close()
        for line in self.accepted:
            line.close()
        if self.temporary is not None:
            self.temporary.cleanup()

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
