"""The executor of a Ray cluster: a lead on this machine, and on every node a host that the keeper has started.

It is the local executor with a lead that listens: what a server asks and is told does not go through Ray.
"""

import contextlib
import importlib.util
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from springtide.errors import ExecutorError, InputError
from springtide.executors.hosts.lead_address import HOSTS, WITNESS
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.paths import open_private

#: How long Ray may take to let us in, and the first hosts to join.
REACH_S = 5.0
CONNECT_S = 60.0
JOIN_S = 120.0
END_S = 20.0
#: How long after the keeper has ended, or Ray was not there, the next one is started.
REVIVE_S = 5.0
#: How long the keeper, which says something every few seconds, may be silent.
SILENT_S = 30.0
LOG = "ray.log"


def check_address(address: str) -> None:
    """Refuse an address where nobody listens, for which Ray itself would wait for a minute."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        return
    if not colon or not host or not port.isdigit():
        raise InputError(f"the Ray address {address!r} is neither auto nor HOST:PORT, as in 10.0.0.5:6379")
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ExecutorError(
            f"Ray at {address} cannot be reached ({error}); is its head there, and the port right? (ray status)"
        ) from None


class KeeperProcess:
    """The keeper, and what it has said last; one that ends or hangs, as with Ray's head, is followed by another."""

    def __init__(self, address: str, home: Path, devices: str | None, more: Sequence[str] = ()) -> None:
        if importlib.util.find_spec("ray") is None:
            raise InputError("engine ray needs Ray, which is not installed here: pip install 'springtide[ray]'")
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.command = [sys.executable, "-m", "springtide.executors.ray.ray_keeper", "--address", address]
        self.command += ["--home", str(home), *more]
        self.command += ["--devices", devices] if devices is not None else []
        self.log = home / LOG
        self.address = address
        self.thread: threading.Thread | None = None
        self.hosts: dict[str, Any] = {}
        self.closing = threading.Event()
        self.connection = self.start()

    def start(self) -> dict[str, Any]:
        """Start the process; what it says of its connection."""
        check_address(self.address)
        with open(self.log, "ab", opener=open_private) as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                bufsize=0,  # whether a line has come is asked of the pipe
            )
        return self.read_line()

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """What it reads, and what it prints."""
        assert self.process.stdin is not None and self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def read_line(self) -> dict[str, Any]:
        """Its next line, before it is told to go on; never waited for longer than Ray may take."""
        _, output = self.streams
        ready, _, _ = select.select([output], [], [], CONNECT_S)
        line = output.readline() if ready else b""
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            told = f"Ray at {self.address} gave no answer within {CONNECT_S:g} s; is it there? (ray status)"
            said = {
                "error": f"{told} If the cluster is encrypted, set RAY_USE_TLS and the RAY_TLS_ variables to its own"
            }
        if "error" in said:
            self.process.kill()
            self.process.communicate()
            raise ExecutorError(said["error"])
        return said

    def go(self) -> None:
        """Have it begin."""
        self.write("go")
        self.thread = threading.Thread(target=self.listen, name="ray-keeper", daemon=True)
        self.thread.start()

    def listen(self) -> None:
        """Keep what it says last, and have another in its place when it has ended or says nothing any more."""
        while not self.closing.is_set():
            self.hear()
            self.revive()

    def hear(self) -> None:
        """Keep what it says until it ends; one that is silent hangs in Ray, as under another head, and is ended."""
        output = self.streams[1]
        while select.select([output], [], [], SILENT_S)[0]:
            line = output.readline()
            if not line:
                return
            with contextlib.suppress(ValueError, KeyError):
                self.hosts = json.loads(line)["hosts"]
        self.process.kill()

    def revive(self) -> None:
        """Start another one when Ray is there again."""
        while not self.closing.wait(REVIVE_S):
            self.let_go()
            with contextlib.suppress(ExecutorError):
                self.connection = self.start()
                self.write("go")
                return

    def let_go(self) -> None:
        """Forget a process that has ended."""
        self.process.wait()
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.close()

    def write(self, word: str) -> None:
        """Tell it something, if it is there."""
        with contextlib.suppress(OSError, ValueError):  # the line is broken, or was closed by us
            self.streams[0].write(f"{word}\n".encode())
            self.streams[0].flush()

    def close(self, word: str = "") -> None:
        """End it; with `dismiss` its actors too."""
        self.closing.set()
        if word:
            self.write(word)
        with contextlib.suppress(OSError):
            self.streams[0].close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.thread is not None:
            self.thread.join()
        self.streams[1].close()


class RayExecutor(LocalExecutor):
    """The jobs of a Ray cluster."""

    def __init__(self, home: Path, address: str = "auto", devices: str | None = None, storage: str = "") -> None:
        self.keeper = KeeperProcess(address, home.resolve(), devices, ("--send-address",) if storage else ())
        super().__init__(home, listen=str(self.keeper.connection["address"]), storage=storage)
        try:
            self.hello()
            self.keeper.go()
            self.wait_for_hosts(len(self.keeper.connection["nodes"]))
        except BaseException:
            self.keeper.close()
            raise

    def wait_for_hosts(self, expected: int) -> None:
        """Wait until the hosts of all nodes have joined; with fewer after a while it goes on, with none it does not."""
        until_s = time.monotonic() + JOIN_S
        while time.monotonic() < until_s:
            said = self.hello()
            there = [node for node in said["nodes"] if node["is_there"]]
            settled = len(there) + len(said["refused"]) + len(self.list_problems())
            if there and settled >= expected:
                return
            if expected and not there and settled >= expected:
                break
            time.sleep(0.2)
        if there:
            return
        told = {**self.list_problems(), **said["refused"]}
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(told.items())) or "no node has a CPU or GPU"
        self.shutdown()
        raise ExecutorError(f"no host of the Ray cluster can work: {why}")

    def list_problems(self) -> dict[str, str]:
        """Hosts whose agents do not run, and why."""
        return {name: said["said"] for name, said in self.keeper.hosts.items() if said.get("up") is False}

    def shutdown(self, timeout_s: float = 120.0) -> None:
        """End the lead, its hosts and the actors; jobs are stopped with checkpoints."""
        self.keeper.closing.set()
        self.keeper.write("dismiss")
        super().shutdown(timeout_s)
        self.keeper.close()
        for name in (HOSTS, WITNESS):  # from now on the home is no cluster's
            (self.state_dir / name).unlink(missing_ok=True)
