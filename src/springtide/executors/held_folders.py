"""Folders held open by their descriptors and entered name by name, so that no name on the way can come to mean another.

Whoever may write in a folder can put a link in the place of what lies there, at any moment. A descriptor stays what it
was opened as. Who may be trusted with a link is for callers to say: here none is followed.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

#: To pass through a folder without the right to list it, where the system has that.
PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
#: To list a folder, or to change what it is.
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: Opens a folder in a folder held open.
Enter = Callable[[int, str], int]


def enter_plain(folder: int, name: str) -> int:
    """A folder in a folder held open, to be listed; OSError if it is a link or no folder."""
    return os.open(name, LIST | os.O_NOFOLLOW, dir_fd=folder)


def descend(held: int, names: Iterable[str], enter: Enter = enter_plain) -> int:
    """The folder at the end of some names, each entered from the one before; takes over the descriptor it is given."""
    try:
        for name in names:
            inner = enter(held, name)
            os.close(held)
            held = inner
    except BaseException:
        os.close(held)
        raise
    return held


@contextmanager
def closing(held: int) -> Iterator[int]:
    """A descriptor that is closed at the end of the block."""
    try:
        yield held
    finally:
        os.close(held)


def open_regular(folder: int, name: str, flags: int = os.O_RDONLY) -> int:
    """A regular file in a folder held open; OSError for anything else. Never waits, as the opening of a pipe would."""
    handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EPERM, "it is no regular file", name)
