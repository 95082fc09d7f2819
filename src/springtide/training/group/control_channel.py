"""The line to the supervisor: events out, commands in, as JSON lines over one socket.

A reader thread keeps incoming commands until the runtime asks at a step boundary, so a step costs nothing. Without a
supervisor, events go nowhere and no command ever comes. What commands mean is in `agreement`.
"""

import json
import queue
import socket
import sys
import threading
from typing import Any

from springtide.errors import JobError


def connect(address: str) -> socket.socket:
    """A stream socket to `unix:/path` or `tcp:host:port`."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(rest)
        return line
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        return socket.create_connection((host, int(port)))
    raise JobError(f"control address {address!r} is neither unix:/path nor tcp:host:port")


class Channel:
    """One process's line to its supervisor, or to nobody."""

    def __init__(self, address: str | None, process: str) -> None:
        self.commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.process = process
        self.line: socket.socket | None = None
        if address is not None:
            self.line = connect(address)
            threading.Thread(target=self.read_commands, name="springtide-control", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Whether somebody listens."""
        return self.line is not None

    def read_commands(self) -> None:
        """Keep every command that comes in, until the line ends."""
        assert self.line is not None
        for line in self.line.makefile("r", encoding="utf-8"):
            self.commands.put(json.loads(line))

    def send(self, event: str, **fields: Any) -> None:
        """Send an event; a supervisor that has gone is no reason to stop training."""
        if self.line is None:
            return
        message = json.dumps({"event": event, "process": self.process, **fields})
        try:
            self.line.sendall(message.encode() + b"\n")
        except OSError:
            self.line = None

    def warn(self, text: str) -> None:
        """Say what does not end the run: in the process's log, and to the supervisor."""
        print(f"springtide: warning: {text}", file=sys.stderr)
        self.send("warned", text=text)

    def tell_lagging(self, process: str, factor: float) -> None:
        """Say which process the others wait for, and how many times as long it takes; an empty name: none any more."""
        if process:
            print(
                f"springtide: warning: process {process} takes {factor:.1f} times as long for its turns as the others, "
                "which wait for it at every step",
                file=sys.stderr,
            )
        self.send("lagging", laggard=process, factor=factor)

    def poll(self) -> dict[str, Any] | None:
        """The oldest command not yet taken, if there is one."""
        return None if self.commands.empty() else self.commands.get()

    def wait(self) -> dict[str, Any]:
        """The oldest command not yet taken, waiting for one to come."""
        return self.commands.get()
