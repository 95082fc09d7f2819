"""The lines of HTTP clients, bounded: in number, and in how long one may take to ask, and to take its answer.

Lines on which nobody asks make way for new ones, the oldest first: whoever opens a thousand and says nothing crowds
out themselves. How long a body may take is the guard's business, because it knows how long it may be.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from springtide.control.api.guard import write_error
from springtide.control.api.job_data.kernel_copies import offer_kernel_copies

HEAD_S = 10.0  # from the first moment of a line, or the first byte of a later request, to the end of its head
WRITE_S = 30.0  # that a client may let its answer lie
USUAL_CONNECTIONS = 512
TOO_SLOW = f"the head of the request did not come within {HEAD_S:g} s"
TOO_MANY = "every line to this server is in use; try again in a moment"
NO_HTTP = "that is no HTTP request"


def make_reply(status: int, phrase: str, reason: str, sentence: str) -> bytes:
    """A whole reply, for those to whom no application answers."""
    body = json.dumps(write_error(reason, sentence)).encode()
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


class BoundedLine(H11Protocol):
    """One line, of at most `most` that there are at a time."""

    most = USUAL_CONNECTIONS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = offer_kernel_copies(self.app, self, WRITE_S)
        self.silent_since_s = self.loop.time()
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nobody waits for an answer on it."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new line, if there is one too many in the place of another."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self.make_room()
        self.time_head()

    def make_room(self) -> None:
        """Give up the line that has been silent for longest; if all others are in use, this one."""
        others = [one for one in self.connections if isinstance(one, BoundedLine) and one.is_silent and one is not self]
        if others:
            oldest = min(others, key=lambda one: one.silent_since_s)
            oldest.transport.abort()
            self.connections.discard(oldest)  # which is told of it only later, when more new lines were counted
        else:
            self.refuse(make_reply(503, "Service Unavailable", "busy", TOO_MANY))

    def refuse(self, reply: bytes) -> None:
        """Answer without having been asked, and hang up."""
        if not self.transport.is_closing():
            self.transport.write(reply)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and see whether a whole request has come."""
        super().data_received(data)
        self.time_head()

    def time_head(self) -> None:
        """Let the clock run while a request is not all there, and stop it when it is."""
        if self.conn.their_state is not h11.IDLE and not self.is_silent:
            self.stop_head()
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.give_up)

    def give_up(self) -> None:
        """Hang up on who has not asked in time."""
        self.refuse(make_reply(408, "Request Timeout", "too_slow", TOO_SLOW) if self.cycle is None else b"")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self.refuse(make_reply(400, "Bad Request", "no_http", NO_HTTP))

    def on_response_complete(self) -> None:
        """Begin to be silent; how long a line may be so between two requests is uvicorn's business."""
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
        """The line is gone, and its timers with it."""
        self.stop_head()
        self.stop_write()
        super().connection_lost(exc)

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


def bound_lines(most: int) -> type[BoundedLine]:
    """The lines of a server that has at most so many."""
    return type("BoundedLine", (BoundedLine,), {"most": most})
