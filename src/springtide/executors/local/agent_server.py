"""The agent as a server: clients' requests and their answers, one JSON line each, over the socket of the state folder.

Nothing is answered before the journal is on disk. What instructions do is in `agent`.
"""

import contextlib
import socket
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.executors import wire
from springtide.executors.local.agent_requests import (
    AcknowledgeRequest,
    AgentRequest,
    ApplyRequest,
    EventsRequest,
    HelloRequest,
    LeaveRequest,
    RunningRequest,
    read_request,
)
from springtide.executors.local.event_answers import answer_events
from springtide.executors.local.journal import Journal
from springtide.executors.local.json_connections import EventLoop, JsonConnection, Message, listen, read_peer_pid

if TYPE_CHECKING:
    from springtide.executors.local.agent import Agent

LONGEST_WAIT_S = 60.0


@dataclass
class PendingReply:
    """A client that waits for events."""

    connection: JsonConnection
    after: int
    until_s: float


class AgentServer:
    """Clients and their requests."""

    def __init__(self, path: Path, loop: EventLoop, journal: Journal, agent: "Agent") -> None:
        self.path = path
        self.loop = loop
        self.journal = journal
        self.agent = agent
        self.clients: list[JsonConnection] = []
        self.waiters: list[PendingReply] = []
        #: When a client last asked for something.
        self.contact_s = time.monotonic()
        self.listener = listen(path)
        loop.watch(self.listener, self.accept)

    def accept(self) -> None:
        """Take a client's connection."""
        with contextlib.suppress(OSError):
            self.take(self.listener.accept()[0])

    def take(self, sock: socket.socket) -> None:
        """Serve whoever is at the other end."""
        connection = JsonConnection(sock)
        self.clients.append(connection)
        self.loop.watch(connection, lambda: self.serve(connection))

    def list_peers(self) -> set[int]:
        """The processes of the clients, as far as the system tells."""
        return {pid for connection in self.clients if (pid := read_peer_pid(connection.socket)) is not None}

    def serve(self, connection: JsonConnection) -> None:
        """Answer a client's requests."""
        for request in connection.read():
            self.contact_s = time.monotonic()
            self.answer(connection, request)
        if not connection.open:
            self.loop.unwatch(connection)
            connection.close()
            self.clients.remove(connection)
            self.waiters = [waiter for waiter in self.waiters if waiter.connection is not connection]

    def answer(self, connection: JsonConnection, request: Message) -> None:
        """Answer one request; an error is an answer too, and the agent goes on."""
        try:
            reply = self.find_answer(connection, read_request(request))
        except ValueError as error:
            reply = {"error": wire.describe_problem(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"the agent met an error of its own: {error!r}"}
        if reply is not None:
            connection.write(reply if self.journal.sync() else {"error": self.journal.failure})

    def find_answer(self, connection: JsonConnection, request: AgentRequest) -> Message | None:
        """The answer to a request; None if it is to come later."""
        match request:
            case HelloRequest():
                return self.agent.make_hello()
            case ApplyRequest():
                return self.apply(request.instructions)
            case EventsRequest():
                return self.find_events(connection, request)
            case AcknowledgeRequest():
                self.journal.acknowledge(request.upto)
                return {}
            case RunningRequest():
                return {"running": wire.dump_running(self.agent.list_running())}
            case LeaveRequest():
                self.agent.leave(request.reason)
                return {}

    def apply(self, instructions: Sequence[Any]) -> Message:
        """Take instructions; all of them must be readable, or none is taken."""
        if self.agent.leaving is not None:
            return {"error": f"the agent is leaving ({self.agent.leaving})", "again": True}
        for instruction in [wire.load_instruction(data) for data in instructions]:
            self.agent.accept(instruction)
        return {"last": self.journal.outbox.last}

    def find_events(self, connection: JsonConnection, request: EventsRequest) -> Message | None:
        """The events after a number; if there are none, as soon as there is one or the client's patience ends."""
        self.journal.renumber(request.after)
        self.journal.sync()
        events = self.journal.outbox.after(request.after)
        if not events and request.wait_s > 0:
            until_s = time.monotonic() + min(request.wait_s, LONGEST_WAIT_S)
            self.waiters.append(PendingReply(connection, request.after, until_s))
            return None
        return answer_events(events)

    def tick(self) -> None:
        """Answer the clients for whom there is something now, or whose patience has ended; send what is left over."""
        is_safe = self.journal.sync()
        now_s = time.monotonic()
        for waiter in list(self.waiters):
            events = self.journal.outbox.after(waiter.after) if is_safe else ()
            if events or now_s >= waiter.until_s:
                self.waiters.remove(waiter)
                waiter.connection.write(answer_events(events))
        for connection in self.clients:
            connection.flush()

    def close(self) -> None:
        """Hang up on all, and leave no socket behind."""
        self.loop.unwatch(self.listener)
        self.listener.close()
        self.path.unlink(missing_ok=True)
        for connection in self.clients:
            connection.close()
