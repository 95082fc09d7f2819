"""A lease on the processes of a host, in a file that its agent and its fork servers have mapped into their memory.

The agent writes down until when it was sure of its lead; a fork server that finds this too long ago ends its children.
So they end in time also where the agent cannot end them: stopped (SIGSTOP), or held up by storage that does not answer.
"""

import mmap
import os
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

from springtide.errors import ExecutorError
from springtide.executors import boot_clock

#: The variable that tells a fork server how long the lease is, and in which file it is: `SECONDS:PATH`.
FENCE = "SPRINGTIDE_FENCE"
_STAMP = struct.Struct("=d")


class Fence:
    """The lease as the agent writes it, on the counter of this machine that nobody sets."""

    def __init__(self, path: Path, fence_s: float) -> None:
        self.variables = {FENCE: f"{fence_s}:{path}"}
        self.lock = threading.Lock()
        #: Who may renew it: the line to the present lead.
        self.holder: object = None
        with open(path, "w+b", opener=open_readable) as file:
            file.truncate(_STAMP.size)
            self.memory = mmap.mmap(file.fileno(), _STAMP.size)
        self.take(None, boot_clock.read_s())

    def take(self, holder: object, sure_s: float) -> None:
        """Hold the lease from now on, sure of the lead as of then."""
        with self.lock:
            self.holder = holder
            _STAMP.pack_into(self.memory, 0, sure_s)

    def renew(self, holder: object, sure_s: float) -> None:
        """Be sure of the lead as of then; one who does not hold the lease any more says nothing of it."""
        with self.lock:
            if holder is self.holder:
                _STAMP.pack_into(self.memory, 0, sure_s)


class FenceWatch:
    """The lease as a fork server reads it."""

    def __init__(self, path: Path, fence_s: float) -> None:
        self.fence_s = fence_s
        with path.open("rb") as file:
            self.memory = mmap.mmap(file.fileno(), _STAMP.size, access=mmap.ACCESS_READ)

    @property
    def is_over(self) -> bool:
        """Whether the lead counts what runs here as gone soon."""
        (sure_s,) = _STAMP.unpack_from(self.memory)
        return boot_clock.read_s() - float(sure_s) >= self.fence_s


def open_readable(path: str, flags: int) -> int:
    """An opener for a file that fork servers of other users may read, whatever the umask."""
    handle = os.open(path, flags, 0o600)
    os.fchmod(handle, 0o644)
    return handle


def open_watch(environ: Mapping[str, str]) -> FenceWatch | None:
    """The lease that a fork server is told of; None on a machine that has no lead elsewhere.

    Nobody serves without the lease that he was told of: his children would train on beside their successors.
    """
    fence_s, _, path = environ.get(FENCE, "").partition(":")
    if not path:
        return None
    try:
        return FenceWatch(Path(path), float(fence_s))
    except (OSError, ValueError) as error:
        raise ExecutorError(f"the lease in {path} cannot be read: {error}") from error
