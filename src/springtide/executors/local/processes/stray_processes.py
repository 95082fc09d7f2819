"""Processes that have lost their parent: adopted by us instead of by the system, so that none outlives its job.

A process that makes itself a subreaper (Linux) becomes the parent of what its descendants leave behind, however they
scrub their environment or leave their session. On other systems nothing is adopted.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of orphans among our descendants from now on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_children() -> set[int]:
    """Our children, adopted ones included; those of other systems are not known."""
    children: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children |= {int(word) for word in path.read_text().split()}
    return children


def end_orphans(known: Collection[int]) -> set[int]:
    """Kill the children that are not among those we know of, and reap those that have ended; the ones still there.

    What they leave behind is ours at the next call.
    """
    orphans = list_children().difference(known)
    for pid in orphans:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return orphans & list_children() if orphans else orphans
