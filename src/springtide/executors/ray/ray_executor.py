"""The executor of a Ray cluster: a lead, mostly on this machine, and on every node a host that the keeper has started.

It is the local executor with a lead that listens: what a server asks and is told does not go through Ray.
"""

import contextlib
import importlib.util
import json
import logging
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
from springtide.executors.hosts.host_roll import read_roll
from springtide.executors.hosts.lead_address import HOSTS, KEY, WITNESS, read_lead
from springtide.executors.hosts.lead_executor import LeadExecutor
from springtide.executors.hosts.network_routes import find_route_to
from springtide.executors.local.jobs.places import find_host
from springtide.executors.local.paths import open_private
from springtide.executors.protocol import ExecutorNode

#: How long Ray may take to let us in, and the first hosts to join.
REACH_S = 5.0
PORTS = range(1, 1 << 16)
CONNECT_S = 60.0
JOIN_S = 120.0
#: How long the others are waited for where a lead before this one had hosts: they dial again at once.
AGAIN_S = 15.0
END_S = 20.0
#: How long after the keeper has ended, or Ray was not there, the next one is started.
REVIVE_S = 5.0
#: How long the keeper, which says something every few seconds, may be silent; and how often the head is looked at
#: meanwhile.
SILENT_S = 30.0
LOOK_S = 2.0
LOG = "ray.log"
logger = logging.getLogger("springtide.ray")


def check_address(address: str) -> None:
    """Refuse an address where nobody listens, for which Ray itself would wait for a minute."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        return
    if not colon or not host or not port.isdigit() or int(port) not in PORTS:
        raise InputError(f"the Ray address {address!r} is neither auto nor HOST:PORT, as in 10.0.0.5:6379")
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
    except OSError as error:
        raise ExecutorError(
            f"Ray at {address} cannot be reached ({error}); is its head there, and the port right? (ray status)"
        ) from None


def find_fault(address: str) -> str:
    """Why nobody can be reached at an address; empty if somebody listens."""
    try:
        check_address(address)
    except ExecutorError as error:
        return str(error)
    return ""


class KeeperProcess:
    """The keeper, and what it has said last; one that ends or hangs, as with Ray's head, is followed by another."""

    process: subprocess.Popen[bytes] | None = None

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
        #: What it said when it was connected; empty: it never was.
        self.connection: dict[str, Any] = {}
        #: Why Ray does not answer; empty while it does.
        self.fault = ""

    def connect(self) -> None:
        """Start the process, and keep what it says of its connection, or why there is none."""
        try:
            self.connection = self.start()
        except ExecutorError as error:
            self.fault = str(error)
            raise
        self.fault = ""

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
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def read_line(self) -> dict[str, Any]:
        """Its next line, before it is told to go on; never waited for longer than Ray may take."""
        _, output = self.streams
        has_come = is_readable(output, CONNECT_S)
        try:
            said: dict[str, Any] = json.loads(output.readline() if has_come else b"")
        except ValueError:
            said = {"error": self.explain_silence(has_come)}
        if "error" in said:
            self.end()
            raise ExecutorError(said["error"])
        return said

    def explain_silence(self, has_ended: bool) -> str:
        """What to do where it has said nothing: it has ended, as Ray ends who does not find its sockets, or waits."""
        encrypted = "If the cluster is encrypted, set RAY_USE_TLS and the RAY_TLS_ variables to its own"
        if not has_ended:
            return f"Ray at {self.address} gave no answer within {CONNECT_S:g} s; is it there? (ray status) {encrypted}"
        return (
            f"Ray ended the process that was to speak with it at {self.address}, and {self.log} says why; have a "
            f"raylet of the cluster on this machine, and see its /tmp/ray: a container of its own must share it. "
            f"{encrypted}"
        )

    def go(self) -> None:
        """Have it begin; one that could not be connected, when Ray is there again."""
        self.write("go")
        self.thread = threading.Thread(target=self.listen, name="ray-keeper", daemon=True)
        self.thread.start()

    def listen(self) -> None:
        """Keep what it says last, and have another in its place when it has ended or says nothing any more."""
        while not self.closing.is_set():
            if self.process is not None:
                self.hear()
                self.end()
            self.revive()

    def hear(self) -> None:
        """Keep what it says until it ends, or is silent for too long: it hangs in Ray, as under another head."""
        output, heard_s = self.streams[1], time.monotonic()
        while time.monotonic() - heard_s < SILENT_S:
            # A port that answers is no end of a fault: under another head the keeper still hangs in the old session.
            if not is_readable(output, LOOK_S):
                self.fault = find_fault(self.connection["head"]) or self.fault
                continue
            line = output.readline()
            if not line:
                self.fault = "" if self.closing.is_set() else find_fault(self.connection["head"]) or self.fault
                return
            heard_s = time.monotonic()
            self.fault = find_fault(self.connection["head"])
            with contextlib.suppress(ValueError, KeyError):
                self.hosts = json.loads(line)["hosts"]
        self.fault = self.fault or f"Ray at {self.address} has not answered for {SILENT_S:g} s (ray status)"

    def revive(self) -> None:
        """Start another one when Ray is there again."""
        while not self.closing.wait(REVIVE_S):
            with contextlib.suppress(
                ExecutorError, OSError
            ):  # kept as the fault, or there is no room for a process now
                self.connect()
                self.write("go")
                return

    def end(self) -> None:
        """End the process, and forget it."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.close()
        self.process = None

    def write(self, word: str) -> None:
        """Tell it something, if it is there."""
        process = self.process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):  # the line is broken, or was closed by us
            process.stdin.write(f"{word}\n".encode())
            process.stdin.flush()

    def close(self, word: str = "") -> None:
        """End it; with `dismiss` its actors too."""
        self.closing.set()
        if word:
            self.write(word)
        process = self.process  # which the thread that listens may forget meanwhile
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
        if self.thread is not None:
            self.thread.join()
        self.end()


def is_readable(stream: IO[bytes], seconds: float) -> bool:
    """Whether there is something to read within so many seconds; a server may have more files than `select` takes."""
    poller = select.poll()
    poller.register(stream, select.POLLIN)
    return bool(poller.poll(1000 * seconds))


def list_hosts(nodes: Sequence[ExecutorNode]) -> set[str]:
    """The hosts that are there, each once: one that has several types of devices is several nodes."""
    return {find_host(device) for node in nodes if node.is_there for device in node.devices}


class RayExecutor(LeadExecutor):
    """The jobs of a Ray cluster."""

    def __init__(self, home: Path, address: str = "auto", devices: str | None = None, storage: str = "") -> None:
        super().__init__(home, storage=storage)
        self.keeper = KeeperProcess(address, self.state_dir, devices, ("--send-address",) if storage else ())
        # A lead that works is not waited for: its hosts are there, and one that is not may never come.
        patience_s = 0.0 if self.is_up else AGAIN_S if read_roll(self.state_dir) else JOIN_S
        self.listen = self.find_address()
        try:
            self.hello()
            self.keeper.go()
            self.wait_for_hosts(len(self.keeper.connection.get("nodes", ())), patience_s)
        except BaseException:
            self.keeper.close()
            raise

    def find_address(self) -> str:
        """Where the lead listens: at Ray's address of this machine; a lead that works needs no Ray, and stays."""
        try:
            self.keeper.connect()
        except ExecutorError as error:
            if not ((self.state_dir / HOSTS).exists() and self.is_up):
                raise
            logger.warning("%s; the hosts that are here go on meanwhile", error)
            return find_route_to(read_lead(self.state_dir).host).address
        return str(self.keeper.connection["address"])

    def outage(self) -> str:
        """That Ray does not answer, or nodes whose hosts cannot work; hosts that are here need neither."""
        if fault := self.keeper.fault:
            return f"jobs go on, but no other host can be found or started: {fault}"
        unable = self.list_problems()
        if not unable:
            return ""
        there = list_hosts(self.nodes())
        idle = [f"{name} cannot work ({said})" for name, said in sorted(unable.items()) if name not in there]
        return f"jobs go on, but {'; '.join(idle)}; see springtide doctor --engine ray" if idle else ""

    def wait_for_hosts(self, expected: int, patience_s: float = JOIN_S) -> None:
        """Wait until the hosts of all nodes have joined; with fewer after a while it goes on, with none it does not."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < JOIN_S:
            there, unable = list_hosts(self.nodes()), {**self.list_problems(), **self.list_refused()}
            is_enough = bool(there) and waited_s >= patience_s
            if is_enough or len(there | unable.keys() | self.list_left()) >= max(1, expected):
                break
            time.sleep(0.2)
        if there:
            return
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(unable.items()))
        if not self.keeper.connection:
            raise ExecutorError(
                f"no host is here, and none can be found: {self.keeper.fault}; lead and jobs stay as they are"
            )
        nobody = f"none of {expected} has joined within {JOIN_S:g} s; see {self.keeper.log}"
        why = why or self.keeper.fault or (nobody if expected else "no node has a CPU or GPU")
        self.shutdown()
        raise ExecutorError(f"no host of the Ray cluster can work: {why}")

    def list_refused(self) -> dict[str, str]:
        """Hosts of the nodes that are here which the lead did not take, and why."""
        return {name: why for name, why in self.hello()["refused"].items() if name in self.keeper.hosts}

    def list_left(self) -> set[str]:
        """Hosts that were told to go from nodes which are still here."""
        return {name for name, said in self.keeper.hosts.items() if said.get("has_left")}

    def list_problems(self) -> dict[str, str]:
        """Hosts whose agents do not run, and why."""
        left, hosts = self.list_left(), self.keeper.hosts
        return {name: said["said"] for name, said in hosts.items() if said.get("up") is False and name not in left}

    def shutdown(self, timeout_s: float = 120.0) -> None:
        """End the lead, its hosts and the actors; jobs are stopped with checkpoints."""
        self.keeper.closing.set()
        self.keeper.write("dismiss")
        super().shutdown(timeout_s)
        self.keeper.close()
        for name in (HOSTS, KEY, WITNESS):  # from now on the home is no cluster's
            (self.state_dir / name).unlink(missing_ok=True)
