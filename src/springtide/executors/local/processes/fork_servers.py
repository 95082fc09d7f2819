"""Fork servers as the agent sees them: one per (interpreter, early environment, user), started cold, then warm.

Starting one imports torch and takes seconds, so nothing here waits: `poll` moves a server on, requests are kept until
it answers. A foreign interpreter is asked for its springtide first. A job whose script imports further packages gets a
server of its own, forked from the first, with these imported too. What such a server does is in `fork_server_main`.
"""

import abc
import contextlib
import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict

import psutil

from springtide import __version__
from springtide.executors.local.as_user import do_as, find_user
from springtide.executors.local.jobs.exit_causes import describe_code, is_from_outside
from springtide.executors.local.json_connections import EventLoop, JsonConnection, Message, listen, read_peer_pid
from springtide.executors.local.processes.import_scan import find_imports
from springtide.executors.local.safe_files import OPEN_TO_PASS, make_file_for

#: Run by a fork server as a script, never imported here: the agent has no torch.
SERVER_SCRIPT = Path(__file__).with_name("fork_server_main.py")

ASK_VERSIONS = (
    "import importlib.metadata as m, json, springtide; "
    "print(json.dumps({'springtide': springtide.__version__, 'torch': m.version('torch')}))"
)


@dataclass(frozen=True, slots=True)
class ForkBudget:
    """How many fork servers that nobody uses are kept warm, for how long, and how much memory they may hold.

    The one that most jobs use is kept anyway.
    """

    idle_s: float = 600.0
    idle_servers: int = 2
    idle_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class ForkKey:
    """What makes fork servers different."""

    python: str
    early: tuple[tuple[str, str], ...]
    user: str | None = None


class ForkServerHandle(abc.ABC):
    """Requests to a fork server and its answers."""

    def __init__(self, key: ForkKey, folder: Path) -> None:
        self.key = key
        self.path = folder / "fork"
        self.folder = folder
        #: The server calls us here, where no other user can have put another socket.
        self.listener = listen(self.path)
        if key.user is not None:
            give_to(self.path, key.user)
        self.torch_version = ""
        #: Why it cannot serve; empty while it may.
        self.failure = ""
        #: Whether somebody ended it before it could answer: another one may serve.
        self.lost = False
        self.connection: JsonConnection | None = None
        self.waiting: list[Message] = []
        #: Who is called back for each process, by the name it was requested under; and by its number once it has one.
        self.by_name: dict[str, Callable[[Message], None]] = {}
        self.by_pid: dict[int, str] = {}
        self.used_s = 0.0

    @abc.abstractmethod
    def poll(self) -> bool:
        """Move on if possible; True when it has just begun to answer."""

    def take_call(self) -> bool:
        """Take up the connection if the server has called, and send what has waited; nobody else may call."""
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return False
        server = self.find_process()
        if server is None or read_peer_pid(sock) not in (server.pid, None):
            sock.close()
            return False
        self.connection = JsonConnection(sock)
        for message in self.waiting:
            self.connection.write(message)
        self.waiting.clear()
        return True

    def request(self, message: Message, on_answer: Callable[[Message], None]) -> None:
        """Ask for a process; `on_answer` gets its start and its end."""
        self.by_name[message["process"]] = on_answer
        if self.connection is None:
            self.waiting.append(message)
        else:
            self.connection.write(message)

    def withdraw(self, prefix: str) -> set[str]:
        """Take back the requests that were not sent yet; the names of their processes."""
        taken = [message for message in self.waiting if message["process"].startswith(prefix)]
        for message in taken:
            self.waiting.remove(message)
            del self.by_name[message["process"]]
        return {message["process"] for message in taken}

    def read_answers(self) -> bool:
        """Pass on what the server has said; False when it has gone."""
        assert self.connection is not None
        for message in self.connection.read():
            self.dispatch(message)
        return self.connection.open

    def dispatch(self, message: Message) -> None:
        """Call back the one who asked for a process that it has started or ended."""
        if "pid" in message:
            self.by_pid[message["pid"]] = message["process"]
            self.by_name[message["process"]](message)
        elif (name := self.by_pid.pop(message["exited"], None)) is not None:
            self.by_name.pop(name)(message)

    @property
    def is_waking(self) -> bool:
        """Whether it may begin to answer at any moment."""
        return self.connection is None and not self.failure

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a process here."""
        return not self.by_name

    @abc.abstractmethod
    def find_process(self) -> psutil.Process | None:
        """The server's process, if it is there."""

    @property
    def is_stopped(self) -> bool:
        """Whether its process was stopped (SIGSTOP), so that it will never answer."""
        with contextlib.suppress(psutil.Error):
            process = self.find_process()
            return process is not None and process.status() == psutil.STATUS_STOPPED
        return False

    def measure(self) -> int:
        """The bytes of memory that its process holds; 0 if it has none."""
        with contextlib.suppress(psutil.Error):
            process = self.find_process()
            return int(process.memory_info().rss) if process is not None else 0
        return 0

    def kill(self) -> None:
        """End its process at once; its connection then ends too."""
        with contextlib.suppress(psutil.Error):
            process = self.find_process()
            if process is not None:
                process.kill()

    def close(self) -> None:
        """Hang up, upon which the server ends its children and itself."""
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.connection is not None:
            self.connection.close()


class SharedServerHandle(ForkServerHandle):
    """A fork server for all jobs of one kind."""

    def __init__(self, key: ForkKey, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        super().__init__(key, folder)
        home = {"HOME": find_user(key.user).home} if key.user is not None else {}
        self.environment = {**environment, **home, **dict(key.early)}
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.asking: subprocess.Popen[bytes] | None = None
        if key.python == sys.executable:
            self.accept_versions(find_own_versions())
        else:
            self.asking = self.launch([key.python, "-c", ASK_VERSIONS], subprocess.PIPE)

    def launch(self, command: list[str], output: int | IO[bytes]) -> subprocess.Popen[bytes] | None:
        """Start a process of this server's kind; note the failure if there is no such interpreter."""
        try:
            with self.log.open("ab") as log:
                return subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log if output is not subprocess.PIPE else subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self.folder,
                    **choose_identity(self.key.user),
                )
        except OSError as error:
            self.failure = f"python {self.key.python} cannot be run: {error.strerror}; check the job's `python`"
            return None

    def poll(self) -> bool:
        """Move on if possible; True when it has just begun to answer."""
        if self.asking is not None and self.asking.poll() is not None:
            output = self.asking.communicate()[0].decode(errors="replace")
            self.asking = None
            self.read_versions(output)
        if self.process is None or self.connection is not None or self.failure:
            return False
        code = self.process.poll()
        if code is None:
            return self.take_call()
        self.lost = is_from_outside(code)
        self.failure = f"the fork server of {self.key.python} {describe_code(code)}"
        return False

    def read_versions(self, output: str) -> None:
        """Judge a foreign interpreter by what it has installed."""
        try:
            self.accept_versions(json.loads(output))
        except (ValueError, KeyError, TypeError):
            last = (output.strip().splitlines() or ["it said nothing"])[-1]
            self.failure = (
                f"python {self.key.python} has no springtide with torch ({last}); "
                f"install springtide[train]=={__version__} there"
            )

    def accept_versions(self, versions: Mapping[str, str]) -> None:
        """Start the server if its springtide is ours."""
        if versions["springtide"] != __version__:
            self.failure = (
                f"python {self.key.python} has springtide {versions['springtide']}, this server has {__version__}; "
                f"install springtide=={__version__} there"
            )
            return
        self.torch_version = versions["torch"]
        if not self.torch_version:
            self.failure = f"python {self.key.python} has no torch; install springtide[train] there"
            return
        command = [self.key.python, "-m", "springtide.executors.local.processes.fork_server_main", str(self.path)]
        with self.log.open("ab") as log:
            self.process = self.launch(command, log)

    def find_process(self) -> psutil.Process | None:
        """The server's process, if it is there."""
        return psutil.Process(self.process.pid) if self.process is not None else None

    def close(self) -> None:
        """End the server; its children end with it, or are found by their mark."""
        super().close()
        for process in (self.asking, self.process):
            if process is not None:
                process.kill()
                process.communicate()


class JobServerHandle(ForkServerHandle):
    """A fork server for one job, forked from another, with the job's imports done; if that fails, the other serves."""

    def __init__(
        self, parent: SharedServerHandle, folder: Path, script: Path, modules: Sequence[str], log: Path
    ) -> None:
        super().__init__(parent.key, folder)
        self.parent = parent
        self.torch_version = parent.torch_version
        self.pid: int | None = None
        self.is_unfit = False
        self.name = f"imports/{folder.name}"
        self.order: Message = {
            "process": self.name,
            "script": str(SERVER_SCRIPT),
            "arguments": [str(self.path), str(script.parent), *modules],
            "folder": str(script.parent),
            "stdout": str(log),
            "stderr": str(log),
        }

    def open(self, environment: Mapping[str, str]) -> None:
        """Have it forked, with the job's own environment, which packages may read as they are imported."""
        self.parent.request({**self.order, "environment": dict(environment)}, self.handle_parent_answer)

    def handle_parent_answer(self, message: Message) -> None:
        """It has started, or ended; one that never answered leaves its requests to the parent."""
        if "pid" in message:
            self.pid = message["pid"]
        elif self.connection is None:
            self.is_unfit = True
            for waiting in self.waiting:
                self.parent.request(waiting, self.by_name.pop(waiting["process"]))
            self.waiting.clear()

    def poll(self) -> bool:
        """Move on if possible; True when it has just begun to answer."""
        self.failure = self.parent.failure
        self.torch_version = self.parent.torch_version
        if self.pid is None or self.connection is not None or self.is_unfit:
            return False
        return self.take_call()

    @property
    def is_waking(self) -> bool:
        """Whether it may begin to answer at any moment."""
        return super().is_waking and not self.is_unfit

    def request(self, message: Message, on_answer: Callable[[Message], None]) -> None:
        """Ask for a process, here or of the parent."""
        if self.is_unfit:
            self.parent.request(message, on_answer)
        else:
            super().request(message, on_answer)

    def withdraw(self, prefix: str) -> set[str]:
        """Take back the requests that were not sent yet, here or to the parent."""
        return super().withdraw(prefix) | (self.parent.withdraw(prefix) if self.is_unfit else set())

    def find_process(self) -> psutil.Process | None:
        """The server's process, if it is there."""
        return psutil.Process(self.pid) if self.pid is not None and self.pid in self.parent.by_pid else None

    def close(self) -> None:
        """Hang up, and end it if it was still importing."""
        super().close()
        self.parent.withdraw(self.name)
        self.kill()


def find_own_versions() -> dict[str, str]:
    """What this interpreter has installed, without importing it."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    return {"springtide": __version__, "torch": torch}


class ForkPool:
    """All fork servers of an agent, or of whoever else runs attempts."""

    def __init__(
        self, loop: EventLoop, folder: Path, environment: Mapping[str, str], log: Path, budget: ForkBudget | None = None
    ) -> None:
        self.loop = loop
        self.folder = folder
        self.environment = dict(environment)
        self.log = log
        self.budget = budget or ForkBudget()
        #: The server that most jobs use, which is never dropped for being idle.
        self.kept: ForkKey | None = None
        self.servers: dict[ForkKey, SharedServerHandle] = {}
        self.job_servers: dict[str, JobServerHandle] = {}
        #: Servers dropped since the last poll.
        self.dropped: list[ForkServerHandle] = []
        #: Servers that were stopped (SIGSTOP) when that was last checked.
        self.stopped: list[ForkServerHandle] = []

    def find(self, key: ForkKey) -> SharedServerHandle:
        """The server of a key, started if there is none that may serve."""
        server = self.servers.get(key)
        if server is None or server.failure:
            server = SharedServerHandle(key, self.make_folder(key), self.environment, self.log)
            self.servers[key] = server
        return server

    def find_for_job(self, job: str, key: ForkKey, script: Path, log: Path, own: Mapping[str, str]) -> ForkServerHandle:
        """The server for a job: one of its own if its script imports packages, else that of the key."""
        parent = self.find(key)
        modules = do_as(key.user, lambda: find_imports(script))
        if not modules:
            return parent
        server = self.job_servers.get(job)
        if server is None or server.parent is not parent or server.failure:
            if key.user is not None:
                owner = find_user(key.user)
                make_file_for(log, owner.uid, owner.gid)
            server = self.job_servers[job] = JobServerHandle(parent, self.make_folder(key), script, modules, log)
            server.open({**parent.environment, **own})
        return server

    def make_folder(self, key: ForkKey) -> Path:
        """A folder for a server's socket."""
        folder = Path(tempfile.mkdtemp(prefix="f", dir=self.folder))
        if key.user is not None:
            folder.chmod(OPEN_TO_PASS)
        return folder

    def every(self) -> list[ForkServerHandle]:
        """All servers."""
        return [*self.servers.values(), *self.job_servers.values()]

    def poll(self, now_s: float) -> list[ForkServerHandle]:
        """Listen to servers that have begun to answer; returns those dropped since the last call, with all processes.

        Their processes' ends will never be reported: nobody is there to do so.
        """
        for server in self.every():
            if server.poll() and server.connection is not None:
                self.loop.watch(server.connection, functools.partial(self.read, server))
            if server.lost:
                self.drop(server)
            if not server.is_idle:
                server.used_s = now_s
        dropped, self.dropped = self.dropped, []
        return dropped

    def find_trouble(self) -> str:
        """Why the server that most jobs use cannot serve, so that nothing can be started here; empty while it may."""
        usual = self.servers.get(self.kept) if self.kept is not None else None
        return usual.failure if usual is not None and not usual.lost else ""

    def read(self, server: ForkServerHandle) -> None:
        """Pass on what a server says; drop it if it has gone."""
        if not server.read_answers():
            self.drop(server)

    def drop_unused(self, now_s: float, jobs: Collection[str]) -> None:
        """Drop the servers of jobs that are not among these, and idle ones beyond the budget, longest idle first."""
        for job, job_server in list(self.job_servers.items()):
            if job not in jobs:
                self.drop(job_server)
        parents = {id(server.parent) for server in self.job_servers.values()}
        idle = [
            server
            for key, server in self.servers.items()
            if key != self.kept and server.is_idle and server.connection is not None and id(server) not in parents
        ]
        newest_first = sorted(idle, key=lambda server: server.used_s, reverse=True)
        held = 0
        for number, server in enumerate(newest_first, 1):
            held += server.measure()
            is_old = now_s - server.used_s > self.budget.idle_s
            if is_old or number > self.budget.idle_servers or held > self.budget.idle_bytes:
                self.drop(server)

    def list_pids(self) -> set[int]:
        """The processes that were started here."""
        started = [one for server in self.servers.values() for one in (server.process, server.asking)]
        return {process.pid for process in started if process is not None}

    def kill_stopped(self) -> None:
        """Kill the servers that were stopped (SIGSTOP) at the last call and still are; their jobs start again."""
        stopped = [server for server in self.every() if server.is_stopped]
        for server in stopped:
            if server in self.stopped:
                server.kill()
        self.stopped = stopped

    def drop(self, server: ForkServerHandle) -> None:
        """Forget a server that has gone or is not needed, and those forked from it."""
        dropped: list[ForkServerHandle] = [server, *(one for one in self.job_servers.values() if one.parent is server)]
        self.servers = {key: one for key, one in self.servers.items() if one not in dropped}
        self.job_servers = {job: one for job, one in self.job_servers.items() if one not in dropped}
        for one in dropped:
            if one.connection is not None:
                self.loop.unwatch(one.connection)
            one.close()
        self.dropped += dropped

    def close(self) -> None:
        """End all servers and their children."""
        for server in reversed(self.every()):
            server.close()
        self.servers.clear()
        self.job_servers.clear()


class Identity(TypedDict, total=False):
    """Under whom a process runs, as Popen takes it."""

    user: int
    group: int
    extra_groups: Sequence[int]


def choose_identity(user: str | None) -> Identity:
    """A user with the user's own groups and none of ours; nothing changes for None."""
    if user is None:
        return {}
    found = find_user(user)
    return {"user": found.uid, "group": found.gid, "extra_groups": found.groups}


def give_to(path: Path, user: str) -> None:
    """Make a user the owner of a socket or pipe, which must lie in a folder that stays ours."""
    found = find_user(user)
    os.chown(path, found.uid, found.gid, follow_symlinks=False)
