"""A connection between a lead and a host: JSON lines over TCP, with beats sent by a thread of their own.

Beats say that the process lives, whatever its loop is busy with: a lead that hashes a large file is no lost lead. Each
has a stamp, and the other side's last one with it: who gets one back knows that he was heard since. What was merely
read proves nothing: it may have waited in the network while the other side heard nobody.
"""

import contextlib
import fcntl
import json
import math
import socket
import struct
import termios
import threading
import time
import weakref
from collections.abc import Callable

from springtide.executors import boot_clock
from springtide.executors.hosts.host_messages import Beat, ToHost, ToLead, write
from springtide.executors.local.json_connections import JsonConnection, Message

#: What a stranger may send before it has proved that it is none.
STRANGER_BYTES = 1 << 16
#: Output of guests waits in their pipes while so much is still to be sent.
CROWDED_BYTES = 4 << 20
#: What the system may keep of what was sent, and of what came in: on a slow connection a beat waits behind it.
SENT_BYTES, RECEIVED_BYTES = 256 << 10, 512 << 10
#: How far beats are looked for among what nobody has read yet.
AHEAD_BYTES = 1 << 20
#: No beat is longer.
BEAT_BYTES = 200


class BeatingConnection(JsonConnection):
    """Messages both ways; safe to write to from two threads."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, STRANGER_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        self.lock = threading.Lock()
        self.heard_s = time.monotonic()
        #: The newest stamp of the other side.
        self.stamp_s: float | None = None
        #: When the last beat was sent that the other side has certainly heard, on this machine's counter.
        self.sure_s = boot_clock.read_s()

    def trust(self) -> None:
        """The peer has proved itself: its messages may be as long as ours."""
        self.message_bytes = 64 << 20

    def read(self) -> list[Message]:
        """The whole messages that have come in; any of them says that the peer is there."""
        messages = super().read()
        if messages:
            self.heard_s = time.monotonic()
        for message in messages:
            self.note(message)
        return messages

    def note(self, message: Message) -> bool:
        """Take note of a beat; whether it is one that was not known."""
        if message.get("say") != "beat":
            return False
        stamp_s, echo_s = (read_seconds(message.get(name)) for name in ("stamp_s", "echo_s"))
        if stamp_s is None:
            return False
        self.sure_s = max(self.sure_s, min(echo_s or 0.0, boot_clock.read_s()))
        is_new = self.stamp_s is None or stamp_s > self.stamp_s
        if is_new:
            self.stamp_s = stamp_s
        return is_new

    def look_ahead(self) -> None:
        """Hear the beats that nobody has read yet: whoever reads may be busy with something else for seconds."""
        with contextlib.suppress(OSError, ValueError):
            (waiting,) = struct.unpack("i", fcntl.ioctl(self.socket, termios.FIONREAD, bytes(4)))
            if waiting and any([self.note(beat) for beat in find_beats(self.peek(waiting))]):
                self.heard_s = time.monotonic()

    def peek(self, waiting: int) -> bytes:
        """What waits to be read, and stays there."""
        return self.socket.recv(min(waiting, AHEAD_BYTES), socket.MSG_PEEK)

    def beat(self) -> None:
        """Say that we are here, and of the other side what we know; before all that waits and is not begun."""
        beat = self.encode(write(Beat("beat", boot_clock.read_s(), self.stamp_s)))
        with self.lock:
            begun = self.outgoing.find(b"\n") + 1
            self.outgoing = self.outgoing[:begun] + beat + self.outgoing[begun:]
        self.flush()

    def send(self, message: ToHost | ToLead) -> None:
        """Send a message."""
        self.write(write(message))

    def flush(self) -> None:
        """Send what is kept."""
        with self.lock:
            super().flush()

    def write(self, message: Message) -> None:
        """Send a message as far as the peer takes it."""
        with self.lock:
            self.outgoing += self.encode(message)
        self.flush()

    @property
    def is_crowded(self) -> bool:
        """Whether the peer takes less than it is sent."""
        return len(self.outgoing) > CROWDED_BYTES


def find_beats(data: bytes) -> list[Message]:
    """The beats among what has come in, which may begin and end in the middle of a message."""
    found = []
    for text in data.split(b"\n"):
        if len(text) <= BEAT_BYTES and b'"beat"' in text:
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(text)
                found.append(message if isinstance(message, dict) else {})
    return found


def read_seconds(value: object) -> float | None:
    """A number of seconds that somebody may have meant; else None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


class BeatSender:
    """Sends a beat on each of its connections, now and then, while they are open, and hears those of the other side.

    `after` is called with each connection that it has beaten on, in this thread.
    """

    def __init__(self, beat_s: float, after: Callable[[BeatingConnection], None] = lambda connection: None) -> None:
        self.beat_s = beat_s
        self.after = after
        self.connections: weakref.WeakSet[BeatingConnection] = weakref.WeakSet()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="beats", daemon=True)
        self.thread.start()

    def add(self, connection: BeatingConnection) -> None:
        """Beat on this connection too."""
        self.connections = weakref.WeakSet([*(one for one in self.connections if one.open), connection])

    def run(self) -> None:
        """Beat until told to end."""
        while not self.ended.wait(self.beat_s):
            for connection in list(self.connections):
                if connection.open:
                    with contextlib.suppress(OSError):
                        connection.look_ahead()
                        connection.beat()
                        self.after(connection)

    def close(self) -> None:
        """Beat no more."""
        self.ended.set()
        self.thread.join()
