"""What tests of a Ray cluster share: raylets on this machine, and the processes of our hosts on them."""

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from springtide.executors.hosts.host_folders import make_state_dir
from springtide.executors.local.jobs.environment import MARK
from springtide.executors.local.paths import make_mark

HAS_RAY = importlib.util.find_spec("ray") is not None
BIN = Path(sys.executable).parent
needs_ray = pytest.mark.skipif(
    not HAS_RAY and os.environ.get("SPRINGTIDE_RAY") != "required", reason="Ray is not installed: make test-cluster"
)


@dataclass
class Raylets:
    """A Ray cluster; its head has no devices."""

    cpus: tuple[int, ...] = (1, 1)
    #: The words before the command that starts them, and variables beside ours.
    enter: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] = field(init=False)
    address: str = ""

    def __enter__(self) -> "Raylets":
        command = [*self.enter, sys.executable, "-W", "ignore", "-m", "tests.cluster.raylets", *map(str, self.cpus)]
        environ = {**os.environ, **self.variables}
        self.process = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.address = self.read()["address"]
        return self

    def read(self) -> dict[str, Any]:
        """Its next JSON line; Ray prints others too."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                said: dict[str, Any] = json.loads(line)
                return said
        raise AssertionError("the Ray cluster did not start")

    def tell(self, *words: object) -> None:
        """Have it do something, and wait until it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{' '.join(map(str, words))}\n".encode())
        self.process.stdin.flush()
        self.read()

    def __exit__(self, *exception: object) -> None:
        self.process.communicate()


def list_host_processes(home: Path, host: str) -> list[psutil.Process]:
    """The agent of a host and all that bears its mark."""
    state_dir = make_state_dir(home.resolve(), host)
    mark, found = make_mark(state_dir), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark or str(state_dir) in process.cmdline():
                found.append(process)
    return found


def kill_host(home: Path, host: str) -> None:
    """End the agent of a host and all its processes at once."""
    for process in list_host_processes(home, host):
        with contextlib.suppress(psutil.Error):
            process.kill()


def find_free_port() -> int:
    """A port where nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def make_variables(home: Path, temporary: str) -> dict[str, str]:
    """A token, a home, and a place for the agents of hosts that no other test's `springtide join` looks at.

    Its path is short, as those of sockets must be.
    """
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {**token, "SPRINGTIDE_HOME": str(home), "TMPDIR": temporary, "RAY_TMPDIR": "/tmp"}


@dataclass
class RayHead:
    """`ray start --head` as the guide types it, and the variables of whoever may speak with it."""

    port: int
    variables: dict[str, str]
    host: str = ""
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **self.variables}

    def start(self) -> None:
        """Start it, with no work of its own."""
        command = [str(BIN / "ray"), "start", "--head", "--num-cpus", "0", "--port", str(self.port), "--block"]
        command += ["--include-dashboard", "false", "--disable-usage-stats"]
        self.process = subprocess.Popen(
            command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Local node IP:" in line:
                self.host = line.rpartition(":")[2].strip()
            if "Ray runtime started" in line:
                return
        raise AssertionError("the head did not start")

    def join(self) -> subprocess.Popen[bytes]:
        """`springtide join` with one device, from this machine."""
        command = [str(BIN / "springtide"), "join", self.address, "--devices", "1"]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, env=self.environ, stdout=quiet, stderr=quiet)

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of ours that knows the token, unless `more` says otherwise."""
        command = [str(BIN / "springtide"), *words]
        return subprocess.run(command, env={**self.environ, **more}, capture_output=True, text=True, timeout=120)

    def kill(self) -> None:
        """End it and all that it has started at once, as a power cut would."""
        assert self.process is not None
        family = psutil.Process(self.process.pid)
        for one in (*family.children(recursive=True), family):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.communicate(timeout=60)

    def stop(self) -> None:
        """End it."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
