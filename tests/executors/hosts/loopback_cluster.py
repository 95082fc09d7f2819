"""A cluster on this machine: a lead and the agents of hosts, each with processes of its own, over the loopback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil
from tests.executors.conformance.trials import Behaviour, make_spec

from springtide.executors.hosts.host_messages import BeatTimes
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.jobs.environment import MARK
from springtide.executors.local.paths import make_mark
from springtide.executors.protocol import JobSpec


@dataclass
class LoopbackCluster:
    """A lead and its hosts."""

    folder: Path
    address: str = "127.0.0.1"
    times: BeatTimes = field(default_factory=BeatTimes)
    storage: str = ""
    executor: LocalExecutor = field(init=False)
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.executor = LocalExecutor(self.folder / "home", listen=self.address, storage=self.storage)
        self.executor.hello()

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def state_of(self, host: str) -> Path:
        return self.folder / f"host-{host}"

    def start_host(self, host: str, slots: str = "1", *more: str, home: Path | None = None) -> None:
        """Start the agent of a host; `wait_for_hosts` sees it join."""
        state = self.state_of(host)
        state.mkdir(exist_ok=True)
        command = [*self.enter(host), sys.executable, "-m", "springtide.executors.hosts.host_agent"]
        command += ["--home", str(home or self.home)]
        command += ["--name", host, "--cpu-slots", slots, "--state-dir", str(state)]
        command += ["--times", json.dumps(asdict(self.times)), *more]
        with (state / "agent.log").open("ab") as log:
            self.agents[host] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def enter(self, host: str) -> list[str]:
        """The words before a command that is to run on a host."""
        return []

    def log_of(self, host: str) -> str:
        return (self.state_of(host) / "agent.log").read_text()

    def list_there(self) -> list[str]:
        """The hosts that are there, by the lead's word."""
        return [node.name for node in self.executor.nodes() if node.is_there]

    def wait_for_hosts(self, *hosts: str) -> None:
        """Wait until exactly these hosts are there."""
        wait_until(lambda: self.list_there() == sorted(hosts), lambda: f"{self.executor.hello()}")

    def list_processes(self, host: str) -> list[psutil.Process]:
        """All processes of a host: its agent, and what bears its mark."""
        mark, found = make_mark(self.state_of(host)), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid == self.agents[host].pid or process.environ().get(MARK) == mark:
                    found.append(process)
        return found

    def kill_host(self, host: str) -> None:
        """End all processes of a host at once, as a power cut would."""
        for process in self.list_processes(host):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.agents.pop(host).wait()

    def close(self) -> None:
        """End all."""
        self.executor.shutdown()
        for host, agent in list(self.agents.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(10)
            if agent.poll() is None:
                self.kill_host(host)


def wait_until(condition: Callable[[], bool], tell: Callable[[], str], patience_s: float = 120.0) -> None:
    """Wait until something is so; it must be some time."""
    until_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until_s, tell()
        time.sleep(0.05)


@dataclass
class HostsHarness:
    """Two hosts with one CPU slot each, for the checks of the contract."""

    cluster: LoopbackCluster
    devices: tuple[str, ...] = ("h1/cpu:0", "h2/cpu:0")

    @property
    def executor(self) -> LocalExecutor:
        return self.cluster.executor

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        return replace(make_spec(self.cluster.folder / job, behaviour), threads=1)

    def wait(self, after: int) -> None:
        self.executor.wait(after, 0.3)

    def kill(self, job: str) -> None:
        (found,) = [one for one in self.executor.running() if one.job == job]
        os.kill(found.pids[-1], signal.SIGKILL)
