"""The connections of HTTP clients, bounded: in number, and in how long one may take to ask, and to take its answer.

Silent connections make way for new ones, the oldest first: a client that opens a thousand and says nothing
crowds out itself. Where all are in use, or too new to have asked, others wait unread until one is done. How long a body
may take is the guard's business, because it knows how long it may be.
"""

import asyncio
import json
import select
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from springtide.control.api.entrance.refusals import write_error
from springtide.control.api.job_data.kernel_copies import offer_kernel_copies
from springtide.control.daemon_threads import DaemonThreads

HEAD_S = (
    10.0  # until a head has ended, from when its connection is first read, or from its first byte if it comes later
)
WAIT_S = 30.0  # that a connection may wait until it is read
FRESH_S = 1.0  # that a connection may be silent and not make way for another: what it asks may be on its way
LINGER_S = 1.0  # that is read on after a refusal: hanging up on bytes that nobody read would take the reply back
LOOK_S = 0.1  # between two looks for connections that have become old
MOST_LEAVING = 32  # that were turned away and are read on
GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR
WRITE_S = 30.0  # that a client may let its answer lie
COPIED_AT_ONCE = 16  # files
TOO_SLOW = f"the head of the request did not come within {HEAD_S:g} s"
TOO_MANY = "every connection to this server is in use; try again in a moment"
NO_HTTP = "that is not an HTTP request"


def make_reply(status: int, phrase: str, reason: str, sentence: str) -> bytes:
    """A whole reply, for those to whom no application answers."""
    body = json.dumps(write_error(reason, sentence)).encode()
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


class Seats:
    """Which connections are read: at most so many, while at most so many others wait for it in the order they came."""

    def __init__(self, most: int, waiting: int) -> None:
        self.most = most
        self.most_waiting = waiting
        self.seated: set[BoundedConnection] = set()
        self.waiting: dict[BoundedConnection, asyncio.TimerHandle] = {}
        #: Those that were turned away, the first one first.
        self.leaving: dict[BoundedConnection, None] = {}
        self.looking: asyncio.TimerHandle | None = None

    def take(self, connection: "BoundedConnection") -> None:
        """Seat a new connection, or let it wait; with too many waiting the one that has been silent longest goes."""
        connection.transport.pause_reading()
        self.waiting[connection] = connection.loop.call_later(WAIT_S, self.turn_away, connection)
        self.fill(connection.loop)
        others = [one for one in (*self.seated, *self.waiting) if one is not connection]
        if len(self.waiting) > self.most_waiting and not self.free_one(others, 0.0):
            self.turn_away(connection)
        self.fill(connection.loop)

    def leave(self, connection: "BoundedConnection") -> None:
        """A connection is gone."""
        self.remove(connection)
        self.fill(connection.loop)

    def remove(self, connection: "BoundedConnection") -> None:
        """Count a connection no longer."""
        self.seated.discard(connection)
        self.leaving.pop(connection, None)
        timer = self.waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def fill(self, loop: asyncio.AbstractEventLoop) -> None:
        """Seat those that wait, as far as there is room."""
        while self.waiting and (len(self.seated) < self.most or self.free_one(list(self.seated), FRESH_S)):
            connection = next(iter(self.waiting))
            self.remove(connection)
            self.seated.add(connection)
            connection.begin()
        if self.waiting and self.looking is None:
            self.looking = loop.call_later(LOOK_S, self.look, loop)

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """See whether a connection has become old enough to make way."""
        self.looking = None
        self.fill(loop)

    def free_one(self, connections: "list[BoundedConnection]", silent_s: float) -> bool:
        """Hang up on a connection whose client has gone, or on the one silent longest, if it has been for so long."""
        happened = poll_connections(
            [connection for connection in connections if connection.is_silent and not connection.transport.is_closing()]
        )
        # What has been asked and not read yet, because so many ask, is not silence.
        quiet = [
            (not events & GONE, connection.silent_since_s, connection)
            for connection, events in happened.items()
            if events & GONE or (not events and connection.loop.time() - connection.silent_since_s >= silent_s)
        ]
        if not quiet:
            return False
        self.hang_up(min(quiet, key=lambda one: one[:2])[2])
        return True

    def hang_up(self, connection: "BoundedConnection") -> None:
        """Give a connection up at once."""
        connection.transport.abort()
        connection.connections.discard(connection)
        self.remove(connection)

    def turn_away(self, connection: "BoundedConnection") -> None:
        """Tell a connection that all others are in use."""
        self.remove(connection)
        connection.refuse(make_reply(503, "Service Unavailable", "busy", TOO_MANY))
        self.leaving[connection] = None
        if len(self.leaving) > MOST_LEAVING:
            self.hang_up(next(iter(self.leaving)))


def poll_connections(connections: "list[BoundedConnection]") -> "dict[BoundedConnection, int]":
    """What has happened on each connection that nobody has read yet, as `select.poll` tells it."""
    by_number = {connection.transport.get_extra_info("socket").fileno(): connection for connection in connections}
    poller = select.poll()
    for number in by_number:
        poller.register(number, select.POLLIN | select.POLLRDHUP)
    happened = dict(poller.poll(0))
    return {connection: happened.get(number, 0) for number, connection in by_number.items()}


class BoundedConnection(H11Protocol):
    """One connection, of at most as many as there are seats."""

    seats: Seats
    copiers: DaemonThreads

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = offer_kernel_copies(self.app, self, self.copiers, WRITE_S)
        self.silent_since_s = self.loop.time()
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.is_refused = False

    @property
    def is_silent(self) -> bool:
        """Whether nobody waits for an answer on it, or for the rest of one."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection; it is read when there is a seat for it."""
        super().connection_made(transport)
        self.seats.take(self)

    def begin(self) -> None:
        """Read what is asked on it."""
        self.silent_since_s = self.loop.time()
        self.transport.resume_reading()
        self.time_head()

    def refuse(self, reply: bytes) -> None:
        """Answer without having been asked, and hang up when that can have been read."""
        if self.is_refused or self.transport.is_closing():
            return
        self.is_refused = True
        self.stop_head()
        if self.cycle is not None and not self.cycle.response_complete:  # whoever answers is not to write any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(reply)
        self.transport.write_eof()
        self.transport.resume_reading()
        self.loop.call_later(LINGER_S, self.transport.close)

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and see whether a whole request has come; nothing counts after a refusal."""
        if not self.is_refused:
            super().data_received(data)
            self.time_head()

    def time_head(self) -> None:
        """Let the clock run while a request is not all there, and stop it when it is."""
        if self.is_refused or (self.conn.their_state is not h11.IDLE and not self.is_silent):
            self.stop_head()
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.give_up)

    def give_up(self) -> None:
        """Hang up on who has not asked in time."""
        self.refuse(make_reply(408, "Request Timeout", "too_slow", TOO_SLOW) if self.cycle is None else b"")

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self.refuse(make_reply(400, "Bad Request", "no_http", NO_HTTP))

    def on_response_complete(self) -> None:
        """Begin to be silent; how long a connection may be so between two requests is uvicorn's business."""
        self.silent_since_s = self.loop.time()
        self.stop_head()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not take its answer: give it a while."""
        super().pause_writing()
        self.write_timer = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client takes its answer again."""
        super().resume_writing()
        self.stop_write()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and its timers with it."""
        self.stop_head()
        self.stop_write()
        super().connection_lost(exc)
        self.seats.leave(self)

    def stop_head(self) -> None:
        """Stop waiting for the head of a request."""
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def stop_write(self) -> None:
        """Stop waiting for the client to take its answer."""
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None


def bound_connections(most: int, waiting: int) -> type[BoundedConnection]:
    """The connections of a server that reads at most so many, and lets at most so many others wait."""
    shared = {"seats": Seats(most, waiting), "copiers": DaemonThreads(COPIED_AT_ONCE, "copies")}
    return type("BoundedConnection", (BoundedConnection,), shared)
