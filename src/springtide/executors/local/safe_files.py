"""Files of ours beside those of jobs, opened so that no job can make them others: by folders held open, not by paths.

Matters where we are root and jobs run under other users. A symbolic link counts then only if root made it, a file only
if it is a plain one of ours with one name. Folders that are given to a job's user lie in folders that stay ours.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from springtide.executors.held_folders import LIST, PASS, closing, descend, enter_plain, open_regular

OPEN_TO_PASS = 0o711
PRIVATE = 0o700


def enter(folder: int, name: str) -> int:
    """A folder in a folder, held open."""
    try:
        return os.open(name, PASS | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    if os.geteuid() != 0 or not hasattr(os, "O_PATH"):
        return os.open(name, PASS, dir_fd=folder)
    return walk(folder, Path(read_root_link(folder, name)))


def read_root_link(folder: int, name: str) -> str:
    """Where a symbolic link of root's leads, as /var/run is one; one that somebody else has made is refused."""
    with closing(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as link:
        found = os.fstat(link)
        if stat.S_ISLNK(found.st_mode) and found.st_uid != 0:
            raise OSError(errno.ELOOP, f"{name} is a symbolic link that another user has made", name)
        return os.readlink("", dir_fd=link)


def walk(folder: int, path: Path, make: int | None = None) -> int:
    """The folder at a path from a folder held open, entered name by name; with a mode, what is missing is made."""

    def enter_made(held: int, name: str) -> int:
        if make is not None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, make, dir_fd=held)
        return enter(held, name)

    first = os.open("/" if path.is_absolute() else ".", PASS, dir_fd=folder)
    return descend(first, path.parts[1:] if path.is_absolute() else path.parts, enter_made)


@contextlib.contextmanager
def hold(path: Path, make: int | None = None) -> Iterator[int]:
    """A folder held open while in use, entered name by name; with a mode, what is missing of it is made."""
    with closing(os.open("/", PASS)) as root:
        held = walk(root, path.absolute(), make)
    with closing(held):
        yield held


def open_own(folder: int, name: str, flags: int = os.O_RDONLY) -> int:
    """A regular file of ours in a folder held open; OSError for anything else under that name."""
    handle = open_regular(folder, name, flags)
    found = os.fstat(handle)
    if os.geteuid() != 0 or (found.st_uid == 0 and found.st_nlink == 1):
        return handle
    os.close(handle)
    raise OSError(errno.EPERM, f"{name} is not a plain file of the platform's own", name)


def open_to_append(path: Path) -> IO[bytes]:
    """A file of ours to append to, made if need be with its folder; what is there and is not ours makes way."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with hold(path.parent, make=PRIVATE) as folder:
        try:
            handle = open_own(folder, path.name, flags)
        except OSError:
            os.unlink(path.name, dir_fd=folder)
            handle = open_own(folder, path.name, flags | os.O_EXCL)
    return os.fdopen(handle, "ab", buffering=0)


@contextlib.contextmanager
def open_to_read(path: Path) -> Iterator[IO[bytes]]:
    """A file of ours to read."""
    with hold(path.parent) as folder:
        handle = open_own(folder, path.name)
    with os.fdopen(handle, "rb") as file:
        yield file


def take_back(folder: int, mode: int) -> None:
    """Make a folder ours that was given to a job's user, as those of earlier versions were."""
    with closing(os.open(".", LIST, dir_fd=folder)) as handle:
        if os.fstat(handle).st_uid != os.geteuid():
            os.fchown(handle, os.geteuid(), os.getegid())
        os.fchmod(handle, mode)


def make_kept(path: Path, home: Path) -> None:
    """Have a folder that stays ours, as all from `home` down to it do; a job's user may pass through them."""
    inner = path.relative_to(home).parts
    for depth in range(len(inner) + 1):
        with hold(home.joinpath(*inner[:depth]), make=OPEN_TO_PASS) as folder:
            take_back(folder, OPEN_TO_PASS)


def make_given(path: Path, home: Path, uid: int, gid: int) -> None:
    """Have a folder for a job's user, private to it, in a folder that stays ours, as all from `home` down to it do."""
    make_kept(path.parent, home)
    with hold(path.parent) as parent:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, PRIVATE, dir_fd=parent)
        handle = enter_plain(parent, path.name)
    with closing(handle):
        os.fchown(handle, uid, gid)
        os.fchmod(handle, PRIVATE)


def make_file_for(path: Path, uid: int, gid: int) -> None:
    """Have an empty file that a job's user can write, in a folder that stays ours."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with hold(path.parent) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
        handle = os.open(path.name, flags, 0o600, dir_fd=folder)
    os.fchown(handle, uid, gid)
    os.close(handle)
