"""The executor of this machine: a client of its agent, which it starts if there is none.

Each call is one request and one answer over the agent's socket. A connection that breaks is taken up again; if the
agent is gone, another is started on the same state folder, which goes on from its journal.
"""

import contextlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from springtide.errors import ExecutorError
from springtide.executors import wire
from springtide.executors.local.agent_notes import load_devices, read_noted_devices
from springtide.executors.local.daemon import is_alive, start_detached
from springtide.executors.local.discovery import Device
from springtide.executors.local.event_answers import read_events
from springtide.executors.local.jobs.attempt import AttemptOptions
from springtide.executors.local.json_connections import connect, read_peer_pid
from springtide.executors.local.paths import AGENT_NOTES, LOCK, LOG, SOCKET, try_lock
from springtide.executors.protocol import Event, ExecutorNode, Instruction, Running

START_S = 60.0
#: How long an answer may take, and how often the agent's process is looked at meanwhile: a stopped one never answers.
ANSWER_S = 15.0
LOOK_S = 2.0
#: Seconds before each next connection is tried after one that broke.
PAUSES_S = (0.0, 0.05, 0.2, 1.0)
logger = logging.getLogger("springtide.executor")


class SilentAgentError(ExecutorError):
    """An agent that is there and does not answer: stopped, or held up by something. Its jobs go on."""


class AgentConnection:
    """One connection to an agent: a request, then its answer."""

    def __init__(self, sock: socket.socket, pid: int | None) -> None:
        self.socket = sock
        #: The agent's process; None: it is on another machine, or the system does not tell.
        self.pid = pid
        self.received = b""

    @property
    def is_here(self) -> bool:
        """Whether the agent is on this machine."""
        return self.socket.family == socket.AF_UNIX

    def ask(self, request: dict[str, Any], patience_s: float = ANSWER_S) -> dict[str, Any]:
        """The answer to a request; OSError if the connection breaks, SilentAgentError at once if the agent is stopped.

        Every wait is bounded, that for room to send in included.
        """
        until_s = time.monotonic() + patience_s
        self.check_agent()
        self.socket.settimeout(patience_s)
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self.received:
            self.receive(until_s)
        answer, _, self.received = self.received.partition(b"\n")
        data = json.loads(answer)
        if not isinstance(data, dict):
            raise ConnectionResetError("the agent's answer is no JSON object")
        return data

    def receive(self, until_s: float) -> None:
        """Take in what comes, looking at the agent now and then."""
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        self.socket.settimeout(min(LOOK_S, left_s))
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            self.check_agent()
            return
        if not data:
            raise ConnectionResetError("the agent hung up")
        self.received += data

    def check_agent(self) -> None:
        """Refuse to wait for an agent that is stopped (SIGSTOP)."""
        with contextlib.suppress(psutil.Error):
            if self.pid is not None and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                raise SilentAgentError(
                    f"the agent (process {self.pid}) is stopped (SIGSTOP) and answers nothing; its jobs go on. "
                    f"Let it go on: kill -CONT {self.pid}"
                )

    def wait_for_end(self, timeout_s: float) -> None:
        """Wait until the agent hangs up."""
        until_s = time.monotonic() + timeout_s
        with contextlib.suppress(ConnectionError):
            while True:
                self.receive(until_s)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


class LocalExecutor:
    """The agent on this machine, as an executor. Safe to use from several threads."""

    def __init__(
        self,
        state_dir: Path,
        cpu_slots: str | None = None,
        lease_s: float = 600.0,
        warm: bool = True,
        options: AttemptOptions | None = None,
        listen: str | None = None,
        storage: str = "",
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.cpu_slots = cpu_slots
        self.lease_s = lease_s
        self.warm = warm
        self.options = options
        #: An address of this machine at which hosts join; None: this machine's own devices are used.
        self.listen = listen
        #: Object storage for what jobs leave: hosts that join need not see the state folder then.
        self.storage = storage
        self.lock = threading.Lock()
        self.connection: AgentConnection | None = None
        self.waiting: AgentConnection | None = None

    def apply(self, instructions: Sequence[Instruction]) -> None:
        """Have instructions taken; they are in the agent's journal when this returns."""
        self.ask({"do": "apply", "instructions": [wire.dump_instruction(one) for one in instructions]})

    def events(self, after: int) -> tuple[Event, ...]:
        """The events with numbers greater than `after`."""
        return read_events(self.ask({"do": "events", "after": after}))

    def wait(self, after: int, timeout_s: float = 10.0) -> tuple[Event, ...]:
        """The events after a number, as soon as there is one; empty when the time is up. For one thread at a time."""
        request = {"do": "events", "after": after, "wait_s": timeout_s}
        try:
            if self.waiting is None:
                self.waiting = self.open()
            return read_events(self.waiting.ask(request, timeout_s + ANSWER_S))
        except (OSError, ExecutorError):
            if self.waiting is not None:
                self.waiting.close()
                self.waiting = None
            return self.events(after)

    def acknowledge(self, upto: int) -> None:
        """Let the agent forget events."""
        self.ask({"do": "acknowledge", "upto": upto})

    def running(self) -> tuple[Running, ...]:
        """The jobs that hold devices, by name."""
        return wire.load_running(self.ask({"do": "running"})["running"])

    def devices(self) -> tuple[Device, ...]:
        """The devices of this machine, as the agent found them when it began; one that is silent wrote them down."""
        try:
            listed = self.hello()["devices"]
        except SilentAgentError as error:
            noted = read_noted_devices(self.state_dir)
            if noted is None:
                raise
            logger.warning("%s Meanwhile its devices are taken from its own notes", error)
            return noted
        return load_devices(listed)

    def nodes(self) -> tuple[ExecutorNode, ...]:
        """The hosts that have joined; or this machine, as one node for each type of device."""
        said = self.hello()
        if self.listen is not None:
            return tuple(ExecutorNode(**{**node, "devices": tuple(node["devices"])}) for node in said["nodes"])
        types = dict.fromkeys(device["type"] for device in said["devices"])
        return tuple(
            ExecutorNode(
                f"node-{number}", one, tuple(device["name"] for device in said["devices"] if device["type"] == one)
            )
            for number, one in enumerate(types)
        )

    def outage(self) -> str:
        """Nothing: an agent that answers can do all that it is asked."""
        return ""

    def hello(self) -> dict[str, Any]:
        """What the agent says of itself: version, pid, devices, lease."""
        return self.ask({"do": "hello"})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The agent's answer, from a new agent if need be. Every request may be asked twice."""
        with self.lock:
            until_s = time.monotonic() + START_S
            try:
                answer = self.ask_with_retries(request)
                while answer.get("again") and time.monotonic() < until_s:
                    time.sleep(0.1)
                    answer = self.ask_with_retries(request)
            except TimeoutError as error:
                raise SilentAgentError(f"the agent of {self.state_dir} does not answer: {error!r}; end it") from error
            except OSError as error:
                raise ExecutorError(f"the agent of {self.state_dir} does not answer: {error!r}; end it") from error
            except ValueError as error:
                self.drop_connection()
                raise ExecutorError(f"the agent of {self.state_dir} answers what cannot be read: {error}") from error
        if "error" in answer:
            raise ExecutorError(f"the agent of {self.state_dir} refused {request['do']}: {answer['error']}")
        return answer

    def ask_with_retries(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer over the connection there is, or over new ones while they break.

        More than one new one: a killed agent's socket takes connections for a moment longer, and then breaks them.
        """
        for pause_s in PAUSES_S:
            try:
                return self.find_connection().ask(request)
            except ConnectionError:
                self.drop_connection()
                time.sleep(pause_s)
            except (TimeoutError, ExecutorError):
                self.drop_connection()  # its answer may still come, and would be taken for the next one's
                raise
            except OSError:
                self.drop_connection()
                break
        return self.find_connection().ask(request)

    def drop_connection(self) -> None:
        """Let go of a connection that is broken."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def find_connection(self) -> AgentConnection:
        """The connection to the agent."""
        if self.connection is None:
            self.connection = self.open()
        return self.connection

    def dial(self) -> AgentConnection:
        """A new connection to the agent; OSError if nobody answers."""
        sock = connect(self.state_dir / SOCKET, LOOK_S)
        return AgentConnection(sock, read_peer_pid(sock))

    def open(self) -> AgentConnection:
        """A new connection to the agent, which is started if nobody answers."""
        try:
            return self.dial()
        except TimeoutError:
            raise SilentAgentError(
                f"the agent of {self.state_dir} takes no more connections: it is stopped (SIGSTOP) or hangs; its jobs "
                f"go on. Its process is named in {self.state_dir / AGENT_NOTES}; let it go on, or end it"
            ) from None
        except OSError:
            self.start()
            return self.dial()

    def start(self) -> None:
        """Start the agent, detached from us; one that is just ending or starting is waited for."""
        command = [sys.executable, "-m", "springtide.executors.local.agent", "--detach"]
        command += ["--state-dir", str(self.state_dir), "--lease-s", str(self.lease_s)]
        command += ["--cpu-slots", self.cpu_slots] if self.cpu_slots is not None else []
        command += ["--warm"] if self.warm else []
        command += ["--listen", self.listen] if self.listen is not None else []
        command += ["--storage", self.storage] if self.storage else []
        command += ["--options", json.dumps(asdict(self.options))] if self.options is not None else []
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        until_s, failures = time.monotonic() + START_S, 0
        while time.monotonic() < until_s:
            pid = start_detached(command, self.state_dir / LOG)
            while pid is not None and is_alive(pid) and time.monotonic() < until_s:
                if self.has_begun:
                    return
                time.sleep(0.02)
            # It has ended: because another one holds the lock, or, if nobody does, by an error. The other may have
            # ended just now, so an error is believed at its second time.
            lock = try_lock(self.state_dir / LOCK)
            if lock is not None:
                lock.close()
                failures += 1
            if failures > 1:
                raise ExecutorError(f"the agent did not start; {self.state_dir / LOG} says why")
            time.sleep(0.1)
        raise ExecutorError(f"another agent holds {self.state_dir / LOCK} and does not answer; end it and try again")

    def shutdown(self, timeout_s: float = 120.0) -> None:
        """End the agent and every process it has started; jobs are stopped with checkpoints. No agent, no effect."""
        try:
            connection = self.dial()
            pid = int(connection.ask({"do": "hello"})["pid"])
            process = psutil.Process(pid) if connection.is_here else None
            connection.ask({"do": "leave", "reason": "shutdown"})
            if process is None:
                connection.wait_for_end(timeout_s)
            connection.close()
            if process is not None:
                process.wait(timeout_s)
        except TimeoutError as error:
            raise SilentAgentError(f"the agent of {self.state_dir} was not ended: {error}; end it") from error
        except (OSError, psutil.NoSuchProcess):
            pass
        except psutil.TimeoutExpired:
            raise ExecutorError(f"the agent (process {pid}) did not end within {timeout_s:g} s") from None
        self.close()

    def close(self) -> None:
        """Hang up; the agent goes on."""
        for connection in (self.connection, self.waiting):
            if connection is not None:
                connection.close()
        self.connection = self.waiting = None

    @property
    def has_begun(self) -> bool:
        """Whether an agent of this machine answers."""
        try:
            connect(self.state_dir / SOCKET, LOOK_S).close()
        except OSError:
            return False
        return True

    @property
    def is_up(self) -> bool:
        """Whether an agent answers, without starting one."""
        try:
            self.dial().close()
        except OSError:
            return False
        return True
