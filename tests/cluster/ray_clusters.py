"""What tests of a Ray cluster share: raylets on this machine, and the processes of our hosts on them."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from springtide.executors.hosts.host_agent import make_state_dir
from springtide.executors.local.jobs.environment import MARK
from springtide.executors.local.paths import make_mark

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(
    not HAS_RAY and os.environ.get("SPRINGTIDE_RAY") != "required", reason="Ray is not installed: make test-cluster"
)


@dataclass
class Raylets:
    """A Ray cluster; its head has no devices."""

    cpus: tuple[int, ...] = (1, 1)
    process: subprocess.Popen[bytes] = field(init=False)
    address: str = ""

    def __enter__(self) -> "Raylets":
        command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.raylets", *map(str, self.cpus)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
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
