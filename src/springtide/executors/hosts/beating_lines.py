"""A line between a lead and a host: JSON lines over TCP, with beats sent by a thread of their own.

Beats say that the process lives, whatever its loop is busy with: a lead that hashes a large file is no lost lead.
"""

import contextlib
import socket
import threading
import time
import weakref

from springtide.executors.hosts.host_messages import Beat, ToHost, ToLead, write
from springtide.executors.local.json_lines import JsonLines, Message

#: What a stranger may send before it has proved that it is none.
STRANGER_BYTES = 1 << 16
#: Output of guests waits in their pipes while so much is still to be sent.
CROWDED_BYTES = 4 << 20


class BeatingLines(JsonLines):
    """Messages both ways; safe to write to from two threads."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__(line, STRANGER_BYTES)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lock = threading.Lock()
        self.heard_s = time.monotonic()

    def trust(self) -> None:
        """The peer has proved itself: its messages may be as long as ours."""
        self.line_bytes = 64 << 20

    def read(self) -> list[Message]:
        """The whole messages that have come in; any of them says that the peer is there."""
        messages = super().read()
        if messages:
            self.heard_s = time.monotonic()
        return messages

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


class BeatSender:
    """Sends a beat on each of its lines, now and then, for as long as the lines are open."""

    def __init__(self, beat_s: float) -> None:
        self.beat_s = beat_s
        self.lines: weakref.WeakSet[BeatingLines] = weakref.WeakSet()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="beats", daemon=True)
        self.thread.start()

    def add(self, lines: BeatingLines) -> None:
        """Beat on this line too."""
        self.lines = weakref.WeakSet([*(one for one in self.lines if one.open), lines])

    def run(self) -> None:
        """Beat until told to end."""
        while not self.ended.wait(self.beat_s):
            for lines in list(self.lines):
                if lines.open:
                    with contextlib.suppress(OSError):
                        lines.send(Beat())

    def close(self) -> None:
        """Beat no more."""
        self.ended.set()
        self.thread.join()
