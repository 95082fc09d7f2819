"""The agent: one process per machine that owns the jobs' processes, apart from the server, which comes and goes.

`python -m springtide.executors.agent --state-dir DIR` listens on `DIR/agent.sock` (mode 0600) for JSON lines. One
thread, one loop. What it was told and what it has to tell is in a journal, so a killed agent's successor ends what is
left of the old processes and goes on from the jobs' checkpoints. Without word from a server for the lease it stops all
jobs, with checkpoints, and ends.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from springtide import __version__
from springtide.executors import wire
from springtide.executors.attempts import House, Options, find_key
from springtide.executors.crews import Crew
from springtide.executors.devices import discover
from springtide.executors.environments import MARK, allow
from springtide.executors.forks import ForkPool, ForkServer
from springtide.executors.journals import Journal
from springtide.executors.lines import Lines, Message, listen
from springtide.executors.outboxes import Verdict
from springtide.executors.processes import Selector, reap
from springtide.executors.protocol import (
    Cancel,
    CheckpointPolicy,
    Event,
    Failed,
    Faulted,
    Ignored,
    Instruction,
    JobSpec,
    Probe,
    Resize,
    Start,
    Stop,
    Stopped,
)

SOCKET = "agent.sock"
LOCK = "agent.lock"
JOURNAL = "agent.journal"
LOG = "agent.log"
PLACE = "agent.json"
LOG_BYTES = 10 << 20
#: Longest path of the folder for sockets, so that theirs stay within the kernel's 108 characters.
FOLDER_LIMIT = 80
#: Seconds a fork server without processes is kept, but for the one of our own interpreter.
IDLE_S = 600.0
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is started with."""

    state_dir: Path
    cpu_slots: int | None = None
    lease_s: float = 600.0
    #: Import torch at once, so that the first job starts fast.
    warm: bool = False
    options: Options = field(default_factory=Options)


@dataclass
class Waiter:
    """A client that waits for events."""

    lines: Lines
    after: int
    until_s: float


class Agent:
    """The jobs of this machine and the clients that ask for them."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self.state_dir = settings.state_dir
        self.loop = Selector()
        self.mark = make_mark(self.state_dir)
        self.leaving: str | None = None
        self.contact_s = time.monotonic()
        self.clients: list[Lines] = []
        self.waiters: list[Waiter] = []
        self.crews: dict[str, Crew] = {}
        self.leftovers = reap(self.mark, MARK)
        self.folder = make_runtime_folder(self.state_dir)
        environment = {**allow(os.environ), MARK: self.mark}
        self.forks = ForkPool(self.folder, environment, self.state_dir / LOG)
        self.discovery = discover(settings.cpu_slots)
        self.house = House(
            loop=self.loop,
            forks=self.forks,
            folder=self.folder,
            devices={device.name: device for device in self.discovery.devices},
            environment=environment,
            python=sys.executable,
            tell=self.tell,
            may_take=self.may_take,
            options=settings.options,
        )
        self.journal = Journal(self.state_dir / JOURNAL)
        self.recover()
        self.listener = listen(self.state_dir / SOCKET)
        self.loop.watch(self.listener, self.accept)
        if settings.warm:
            self.warm()

    def recover(self) -> None:
        """Take up the jobs of an agent that was killed."""
        for job, standing in list(self.journal.jobs.items()):
            if standing.ending is None:
                reason = "the agent was lost, and the job's processes were ended with it"
                self.tell(
                    Faulted(
                        job=job, generation=standing.generation, cause="agent_lost", reason=reason, step=standing.step
                    )
                )
        self.journal.sync()

    def warm(self) -> None:
        """Start the fork server that most jobs use."""
        plain = JobSpec(("python",), "", CheckpointPolicy(""), "", "")
        self.forks.find(find_key(plain, sys.executable))

    # Jobs.

    def tell(self, event: Event) -> None:
        """Put an event into the journal, and let its job's crew know what follows from it."""
        self.journal.tell(event, time.time())
        self.refresh(event.job)

    def refresh(self, job: str) -> None:
        """Show a crew its job as the journal has it."""
        crew, standing = self.crews.get(job), self.journal.jobs.get(job)
        if crew is not None and standing is not None and crew.standing.order == standing.order:
            crew.standing = standing

    def take(self, instruction: Instruction) -> None:
        """Write an instruction down if it is new; crews act on it in their next turn."""
        known = instruction.job in self.journal.jobs
        verdict = self.journal.take(instruction)
        common: dict[str, Any] = {"job": instruction.job, "generation": instruction.generation}
        if verdict is Verdict.STALE:
            seen = self.journal.ledger.generation_of(instruction.job)
            self.tell(Ignored(**common, key=instruction.key, seen=seen))
        elif verdict is Verdict.NEW:
            self.refresh(instruction.job)
            self.refuse(instruction, known, common)

    def refuse(self, instruction: Instruction, known: bool, common: dict[str, Any]) -> None:
        """Answer at once what cannot be carried out."""
        match instruction:
            case Start() | Probe() | Resize() if problem := self.find_problem(instruction.devices):
                self.tell(
                    Failed(**common, step=0, exit_code=None, reason=problem, user_fault=False, code="bad_devices")
                )
            case Stop() | Cancel() if not known:
                cancelled = isinstance(instruction, Cancel)
                self.tell(Stopped(**common, step=0, reason=instruction.reason, cancelled=cancelled))
            case Resize() if not known:
                self.tell(Stopped(**common, step=0, reason="the job was not running", clean=False))

    def find_problem(self, devices: Sequence[str]) -> str:
        """What is wrong with a list of devices; empty if nothing is."""
        unknown = [name for name in devices if name not in self.house.devices]
        if unknown or not devices or len(set(devices)) < len(devices):
            return (
                f"devices {', '.join(devices) or '(none)'} cannot be given; this machine has "
                f"{', '.join(self.house.devices)}, each at most once"
            )
        return ""

    def may_take(self, job: str, devices: Sequence[str]) -> bool:
        """Whether no other job that is about to leave one of these devices is still there.

        Two jobs that wait for each other both go ahead.
        """
        mine = self.crews[job].in_use
        for name, crew in self.crews.items():
            leaving = crew.in_use - set() if crew.is_ending or crew.phase == "over" else crew.in_use - set(crew.wanted)
            is_mutual = bool(set(crew.wanted) & mine) and not crew.is_ending
            if name != job and leaving & set(devices) and not is_mutual:
                return False
        return True

    def tick(self) -> None:
        """Move every job on."""
        now_s = time.monotonic()
        self.poll_forks(now_s)
        for job, standing in self.journal.jobs.items():
            crew = self.crews.get(job)
            if crew is None:
                self.crews[job] = Crew(self.house, standing)
            elif crew.standing.order != standing.order and not crew.abandoned:
                crew.abandon()
        for job, crew in list(self.crews.items()):
            if job not in self.journal.jobs and not crew.is_over and not crew.abandoned:
                crew.abandon()
            crew.leaving = self.leaving
            self.move(crew, now_s)
            if crew.is_over:
                del self.crews[job]
        self.check_lease(now_s)

    def move(self, crew: Crew, now_s: float) -> None:
        """Give a crew its turn; a mistake of ours ends its job, and no other."""
        try:
            crew.tick(now_s)
        except Exception as error:
            traceback.print_exc()
            reason = f"the agent met an error of its own: {error!r}; see {self.state_dir / LOG}"
            crew.fail("agent_error", reason, user_fault=False)

    def check_lease(self, now_s: float) -> None:
        """Stop all work if no server has asked for too long."""
        if self.leaving is None and now_s - self.contact_s >= self.settings.lease_s:
            self.leave("lease")

    def leave(self, reason: str) -> None:
        """Stop all jobs, with checkpoints, and then end."""
        if self.leaving is None:
            print(f"agent {os.getpid()} leaves: {reason}", flush=True)
            self.leaving = reason

    def poll_forks(self, now_s: float) -> None:
        """Take up fork servers that have begun to answer, and let go of those long unused."""
        for server in list(self.forks.servers.values()):
            if server.poll() and server.lines is not None:
                self.loop.watch(server.lines, self.make_pump(server))
            if not server.is_idle:
                server.used_s = now_s
            elif server.lines is not None and server.key.python != sys.executable and now_s - server.used_s > IDLE_S:
                self.loop.unwatch(server.lines)
                self.forks.drop(server)

    def make_pump(self, server: ForkServer) -> Callable[[], None]:
        """What to do when a fork server has said something, or gone."""

        def pump() -> None:
            if server.pump():
                return
            self.loop.unwatch(server.lines)
            self.forks.drop(server)
            for crew in self.crews.values():
                if crew.attempt is not None and crew.attempt.processes.fork is server:
                    crew.lose_fork()

        return pump

    # Clients.

    def accept(self) -> None:
        """Take a client's line."""
        with contextlib.suppress(BlockingIOError):
            line, _ = self.listener.accept()
            lines = Lines(line)
            self.clients.append(lines)
            self.loop.watch(lines, lambda: self.serve_client(lines))

    def serve_client(self, lines: Lines) -> None:
        """Answer a client's requests."""
        for request in lines.read():
            self.contact_s = time.monotonic()
            self.answer(lines, request)
        if not lines.open:
            self.loop.unwatch(lines)
            lines.close()
            self.clients.remove(lines)
            self.waiters = [waiter for waiter in self.waiters if waiter.lines is not lines]

    def answer(self, lines: Lines, request: Message) -> None:
        """Answer one request; an error is an answer too."""
        answers: dict[str, Callable[[Message], Message | None]] = {
            "hello": self.answer_hello,
            "apply": self.answer_apply,
            "events": lambda asked: self.answer_events(lines, asked),
            "acknowledge": self.answer_acknowledge,
            "running": lambda asked: {"running": wire.dump_running(self.list_running())},
            "leave": self.answer_leave,
        }
        try:
            if request.get("do") not in answers:
                raise ValueError(f"request {request.get('do')!r} is unknown; there are {', '.join(answers)}")
            reply = answers[request["do"]](request)
        except (KeyError, TypeError, ValueError) as error:
            reply = {"error": str(error)}
        if reply is not None:
            self.journal.sync()
            lines.write(reply)

    def answer_hello(self, request: Message) -> Message:
        """Who this is, and what devices there are."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "lease_s": self.settings.lease_s,
            "devices": [asdict(device) for device in self.discovery.devices],
            "notes": list(self.discovery.notes),
            "leftovers": self.leftovers,
            "leaving": self.leaving,
        }

    def answer_apply(self, request: Message) -> Message:
        """Take instructions; all of them must be readable, or none is taken."""
        if self.leaving is not None:
            raise ValueError(f"the agent is leaving ({self.leaving}); start another when it has gone")
        for instruction in [wire.load_instruction(data) for data in request["instructions"]]:
            self.take(instruction)
        return {"last": self.journal.outbox.last}

    def answer_events(self, lines: Lines, request: Message) -> Message | None:
        """The events after a number; if there are none, as soon as there is one or the client's patience ends."""
        after, wait_s = int(request["after"]), min(float(request.get("wait_s", 0.0)), LONGEST_WAIT_S)
        self.journal.sync()
        events = self.journal.outbox.after(after)
        if not events and wait_s > 0:
            self.waiters.append(Waiter(lines, after, time.monotonic() + wait_s))
            return None
        return {"events": [wire.dump_event(event) for event in events]}

    def answer_waiters(self) -> None:
        """Answer the clients for whom there is something, or whose patience has ended."""
        now_s = time.monotonic()
        for waiter in list(self.waiters):
            events = self.journal.outbox.after(waiter.after)
            if events or now_s >= waiter.until_s:
                self.waiters.remove(waiter)
                waiter.lines.write({"events": [wire.dump_event(event) for event in events]})

    def answer_acknowledge(self, request: Message) -> Message:
        """Forget events."""
        self.journal.acknowledge(int(request["upto"]))
        return {}

    def answer_leave(self, request: Message) -> Message:
        """Begin to end."""
        self.leave(str(request.get("reason", "shutdown")))
        return {}

    def list_running(self) -> list[Any]:
        """The jobs that hold devices, by name."""
        return [crew.describe() for _, crew in sorted(self.crews.items())]

    # Life.

    @property
    def wait_s(self) -> float:
        """How long a turn may wait for something to happen."""
        restless = any(crew.phase != "running" for crew in self.crews.values())
        warming = any(server.lines is None for server in self.forks.servers.values())
        return 0.02 if restless or warming or self.leaving else 0.1 if self.crews else 0.5

    def serve(self) -> None:
        """Go on until everything has been left."""
        print(f"agent {os.getpid()} serves {self.state_dir}, {len(self.house.devices)} devices", flush=True)
        while self.leaving is None or self.crews or self.journal.jobs:
            self.loop.turn(self.wait_s)
            self.tick()
            self.journal.sync()
            self.answer_waiters()
            for lines in self.clients:
                lines.flush()

    def close(self) -> None:
        """End everything that was started, and leave only the journal and the log."""
        self.loop.unwatch(self.listener)
        self.listener.close()
        (self.state_dir / SOCKET).unlink(missing_ok=True)
        self.forks.close()
        reap(self.mark, MARK)
        self.journal.close()
        for lines in self.clients:
            lines.close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.state_dir / PLACE).unlink(missing_ok=True)


def make_mark(state_dir: Path) -> str:
    """The name by which processes of this state folder's agents know each other."""
    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]


def make_runtime_folder(state_dir: Path) -> Path:
    """A new folder for sockets and pipes with a short path; that of an agent before us is removed."""
    place = state_dir / PLACE
    with contextlib.suppress(OSError, ValueError, KeyError):
        shutil.rmtree(json.loads(place.read_text())["folder"], ignore_errors=True)
    near = state_dir.resolve() / "run"
    short = len(os.fsencode(near)) <= FOLDER_LIMIT
    if short:
        near.mkdir(mode=0o711, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="springtide-", dir=near if short else None))
    folder.chmod(0o711)
    place.write_text(json.dumps({"pid": os.getpid(), "folder": str(folder), "version": __version__}))
    return folder


def take_lock(state_dir: Path) -> socket.socket | Any:
    """Hold the state folder for this agent alone; None if another one has it."""
    file = (state_dir / LOCK).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def run(settings: AgentSettings, on_ready: Callable[[], None] = lambda: None) -> int:
    """Serve until told to leave; 0, or 3 if another agent has the state folder."""
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = take_lock(settings.state_dir)
    if lock is None:
        return 3
    agent = Agent(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: agent.leave("shutdown"))
    on_ready()
    try:
        agent.serve()
    finally:
        agent.close()
        lock.close()
    return 0


def detach(settings: AgentSettings) -> int:
    """Serve in a process of its own, apart from this one's session; returns when it answers."""
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setsid()
        if os.fork() == 0:
            os._exit(serve_detached(settings, write_end))
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end, "rb") as ready:
        said = ready.read()
    return said[0] if said else 1


def serve_detached(settings: AgentSettings, ready: int) -> int:
    """In the detached process: output to the log, then serve."""
    log = settings.state_dir / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    redirect(log)
    code = 1

    def say_ready() -> None:
        os.write(ready, bytes([0]))
        os.close(ready)

    try:
        code = run(settings, say_ready)
        if code:
            os.write(ready, bytes([code]))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def redirect(log: Path) -> None:
    """Send standard output and error to a file, and take nothing in."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (handle, 1), (handle, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(handle)


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description="Own the training processes of this machine.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--cpu-slots", type=int)
    parser.add_argument("--lease-s", type=float, default=600.0)
    parser.add_argument("--warm", action="store_true", help="import torch at once")
    parser.add_argument("--detach", action="store_true", help="return as soon as it answers")
    parser.add_argument("--options", type=TypeAdapter(Options).validate_json, default=Options(), help="as JSON")
    given = parser.parse_args()
    settings = AgentSettings(given.state_dir.resolve(), given.cpu_slots, given.lease_s, given.warm, given.options)
    raise SystemExit(detach(settings) if given.detach else run(settings))


if __name__ == "__main__":
    main()
