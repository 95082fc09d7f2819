"""Fork servers as the agent sees them: one per (interpreter, early environment, user), started cold, then warm.

Starting one imports torch and takes seconds, so nothing here waits: `poll` moves a server on, requests are kept until
it answers. A foreign interpreter is asked for its springtide first. What a fork server does is in
`training.forkserver`.
"""

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from springtide import __version__
from springtide.executors.lines import Lines, Message, connect

ASK_VERSIONS = (
    "import importlib.metadata as m, json, springtide; "
    "print(json.dumps({'springtide': springtide.__version__, 'torch': m.version('torch')}))"
)


@dataclass(frozen=True, slots=True)
class ForkKey:
    """What makes fork servers different."""

    python: str
    early: tuple[tuple[str, str], ...]
    user: str | None = None


class ForkServer:
    """The agent's side of one fork server."""

    def __init__(self, key: ForkKey, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self.key = key
        self.folder = folder
        self.environment = {**environment, **dict(key.early)}
        self.log = log
        self.torch_version = ""
        #: Why it cannot serve; empty while it may.
        self.failure = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.asking: subprocess.Popen[bytes] | None = None
        self.lines: Lines | None = None
        self.waiting: list[Message] = []
        #: Who hears of each process, by the name it was requested under; and by its number once it has one.
        self.by_name: dict[str, Callable[[Message], None]] = {}
        self.by_pid: dict[int, str] = {}
        self.used_s = 0.0
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
                    user=self.key.user,
                    cwd=self.folder,
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
        if self.process is None or self.lines is not None or self.failure:
            return False
        if self.process.poll() is not None:
            self.failure = f"the fork server of {self.key.python} ended with code {self.process.returncode}"
            return False
        return self.try_connect()

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
        self.path = self.folder / "fork"
        command = [self.key.python, "-m", "springtide.training.forkserver", "--socket", str(self.path)]
        with self.log.open("ab") as log:
            self.process = self.launch(command, log)

    def try_connect(self) -> bool:
        """Take up the line if the server listens, and send what has waited."""
        try:
            self.lines = Lines(connect(self.path))
        except OSError:
            return False
        for message in self.waiting:
            self.lines.write(message)
        self.waiting.clear()
        return True

    def request(self, message: Message, hear: Callable[[Message], None]) -> None:
        """Ask for a process; `hear` gets its start and its end."""
        self.by_name[message["process"]] = hear
        if self.lines is None:
            self.waiting.append(message)
        else:
            self.lines.write(message)

    def withdraw(self, prefix: str) -> None:
        """Take back requests that were not sent yet."""
        for message in [one for one in self.waiting if one["process"].startswith(prefix)]:
            self.waiting.remove(message)
            del self.by_name[message["process"]]

    def pump(self) -> bool:
        """Pass on what the server has said; False when it has gone."""
        assert self.lines is not None
        for message in self.lines.read():
            self.pass_on(message)
        return self.lines.open

    def pass_on(self, message: Message) -> None:
        """Tell the one who asked for a process that it has started or ended."""
        if "pid" in message:
            self.by_pid[message["pid"]] = message["process"]
            self.by_name[message["process"]](message)
        elif (name := self.by_pid.pop(message["exited"], None)) is not None:
            self.by_name.pop(name)(message)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a process here."""
        return not self.by_name

    def close(self) -> None:
        """Hang up, upon which the server ends its children and itself; without children it is simply ended."""
        if self.lines is not None:
            self.lines.close()
        for process in (self.asking, self.process):
            if process is not None:
                if self.by_pid:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(5)
                process.kill()
                process.wait()


def find_own_versions() -> dict[str, str]:
    """What this interpreter has installed, without importing it."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    return {"springtide": __version__, "torch": torch}


class ForkPool:
    """All fork servers of an agent."""

    def __init__(self, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self.log = log
        self.servers: dict[ForkKey, ForkServer] = {}

    def find(self, key: ForkKey) -> ForkServer:
        """The server of a key, started if there is none that may serve."""
        server = self.servers.get(key)
        if server is None or server.failure:
            folder = Path(tempfile.mkdtemp(prefix="f", dir=self.folder))
            if key.user is not None:
                give_to(folder, key.user)
            server = self.servers[key] = ForkServer(key, folder, self.environment, self.log)
        return server

    def drop(self, server: ForkServer) -> None:
        """Forget a server that has gone."""
        if self.servers.get(server.key) is server:
            del self.servers[server.key]
        server.close()

    def close(self) -> None:
        """End all servers and their children."""
        for server in self.servers.values():
            server.close()
        self.servers.clear()


def give_to(path: Path, user: str) -> None:
    """Make a user the owner of a folder."""
    import pwd

    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, entry.pw_gid)
