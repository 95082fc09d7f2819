"""What never makes its owner wait: JSON lines over a socket, which keep what cannot be sent yet, and an event loop.

Also Unix sockets whose path is longer than the kernel's 108 characters, as those in deep folders are.
"""

import contextlib
import json
import os
import selectors
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

Message = dict[str, Any]

PATH_LIMIT = 100
#: A peer that reads nothing while this much waits for it is hung up on.
BACKLOG_LIMIT = 64 << 20
#: What one call reads at most, so that a peer that never stops talking does not hold up the rest.
TURN_BYTES = 1 << 20
#: Between attempts to get into a full queue of connections.
FULL_S = 0.02


class EventLoop:
    """Calls back for files that can be read; callbacks may watch and unwatch."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()

    def watch(self, file: Any, callback: Callable[[], None]) -> None:
        """Call back whenever the file can be read."""
        self.selector.register(file, selectors.EVENT_READ, callback)

    def unwatch(self, file: Any) -> None:
        """Stop calling back."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(file)

    def turn(self, timeout_s: float) -> None:
        """Wait for files, and call back for those that are still watched.

        A callback that fails is told in the log, and its file is watched no more: it costs itself only.
        """
        for key, _ in self.selector.select(timeout_s):
            watched = self.selector.get_map()
            if key.fd in watched and watched[key.fd] is key:
                try:
                    key.data()
                except Exception:
                    traceback.print_exc()
                    self.unwatch(key.fileobj)

    def close(self) -> None:
        """Let go of everything."""
        self.selector.close()


class JsonConnection:
    """Messages both ways over one socket; `open` becomes False at the stream's end."""

    def __init__(self, sock: socket.socket, message_bytes: int = BACKLOG_LIMIT) -> None:
        sock.setblocking(False)
        self.socket = sock
        #: How long one message may be.
        self.message_bytes = message_bytes
        self.open = True
        #: Whether the peer has ended its side, as its system does for it when it ends; connections also just break.
        self.has_hung_up = False
        #: What the peer said that is no message, upon which its connection was ended.
        self.nonsense = ""
        #: Whether the last read left something behind.
        self.has_more = False
        self.incoming = b""
        self.outgoing = b""

    def fileno(self) -> int:
        """For selectors."""
        return self.socket.fileno()

    def read(self) -> list[Message]:
        """The whole messages that have come in; what is not a JSON object ends the connection."""
        data = self.receive()
        *whole, self.incoming = (self.incoming + data).split(b"\n")
        if len(self.incoming) > self.message_bytes:
            self.incoming = b""
            self.refuse(f"a message of more than {self.message_bytes} bytes")
        return [message for text in whole if (message := self.parse(text)) is not None]

    def receive(self) -> bytes:
        """The bytes that are there, up to a limit."""
        chunks: list[bytes] = []
        self.has_more = False
        with contextlib.suppress(BlockingIOError):
            while self.open and len(chunks) << 16 < TURN_BYTES:
                try:
                    chunk = self.socket.recv(1 << 16)
                except BlockingIOError:
                    raise
                except OSError:  # reset, timed out, no way there any more
                    self.open = False
                    break
                self.open, self.has_hung_up = bool(chunk), not chunk
                chunks.append(chunk)
            self.has_more = self.open
        return b"".join(chunks)

    def parse(self, text: bytes) -> Message | None:
        """One message; none after nonsense."""
        if self.nonsense:
            return None
        with contextlib.suppress(ValueError, RecursionError):
            message = json.loads(text) if len(text) <= self.message_bytes else None
            if isinstance(message, dict):
                return message
        self.refuse(f"{text[:80].decode(errors='backslashreplace')!r}, which is no JSON object of a message's size")
        return None

    def refuse(self, nonsense: str) -> None:
        """End the connection of a peer that does not speak as it should."""
        self.nonsense = self.nonsense or nonsense
        self.open = False

    def write(self, message: Message) -> None:
        """Send a message as far as the peer takes it, and keep the rest for `flush`."""
        self.outgoing += self.encode(message)
        self.flush()

    @staticmethod
    def encode(message: Message) -> bytes:
        """A message as a line."""
        return json.dumps(message).encode() + b"\n"

    def flush(self) -> None:
        """Send what is kept; a peer that has gone is noticed when reading."""
        with contextlib.suppress(OSError):
            while self.outgoing:
                sent = self.socket.send(self.outgoing)
                self.outgoing = self.outgoing[sent:]
        if len(self.outgoing) > BACKLOG_LIMIT:
            self.open = False

    def close(self) -> None:
        """Hang up."""
        self.open = False
        self.socket.close()


@contextlib.contextmanager
def shorten(path: Path) -> Iterator[str]:
    """A name for a path that fits into a socket address, through the folder's descriptor if need be."""
    if len(os.fsencode(path)) <= PATH_LIMIT:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path) -> socket.socket:
    """A listening socket at a path, for its owner only (mode 0600); what was there before is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with shorten(path) as name:
            listener.bind(name)
    finally:
        os.umask(before)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def connect(path: Path, patience_s: float | None = None) -> socket.socket:
    """A socket connected to a path; OSError if nobody listens there, TimeoutError if who does takes no more."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(patience_s)
    until_s = inf if patience_s is None else time.monotonic() + patience_s
    try:
        with shorten(path) as name:
            while not try_connect(sock, name):
                if time.monotonic() > until_s:
                    raise TimeoutError("its queue of connections is full")
                time.sleep(FULL_S)
    except OSError:
        sock.close()
        raise
    return sock


def try_connect(sock: socket.socket, name: str) -> bool:
    """Connect a socket; False if the other's queue is full, for which the kernel does not wait on a timed socket."""
    try:
        sock.connect(name)
    except BlockingIOError:
        return False
    return True


def read_peer_pid(sock: socket.socket) -> int | None:
    """The process at the other end, where the system tells."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(raw[:4], "little")
    with contextlib.suppress(OSError):
        return sock.getsockopt(0, 2)  # SOL_LOCAL, LOCAL_PEERPID of macOS
    return None
