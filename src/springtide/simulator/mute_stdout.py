"""Keeps stdout for reports alone: compiled solvers print there by themselves."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def mute_solvers() -> Iterator[None]:
    """Drop what compiled code of this process, and of processes it starts, writes to stdout meanwhile.

    HiGHS 1.12, as scipy calls it with its display off, was seen to print a line of its own.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # the C library's own buffer, filled while muted
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
