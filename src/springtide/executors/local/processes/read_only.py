"""Folders that this process and all that it starts can read and not write; for everybody else nothing changes (Linux).

Each is mounted over itself, read-only, in a mount namespace of this process: its path stays, links to it stay. Root
needs no more; another user needs a user namespace, in which the user keeps number and groups. It guards against
mistakes, not against a job that means harm: what a job's user may write, that user's other processes may.

Runs in a fork server's child, before the job's script: nothing but the standard library, and only one thread.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x8_0000
MOUNT_ATTR_RDONLY = 1
#: `mount_setattr` has this number on every architecture; Linux 5.12 and later.
MOUNT_SETATTR = 442
AT_FDCWD, AT_RECURSIVE = -100, 0x8000


class MountAttributes(ctypes.Structure):
    """What `mount_setattr` is told: `struct mount_attr`."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace"))


def forbid_writing(folders: Sequence[str], own: Sequence[str]) -> str:
    """Make folders (or files) read-only for this process; why that cannot be, or nothing.

    One that holds something of the job's `own` is left as it is: the job must write there.
    """
    if sys.platform != "linux":
        return f"{sys.platform} has no mounts of a process's own" if folders else ""
    kept = [folder for folder in folders if not holds(folder, own)]
    refused = (try_in_child(kept) or mount_all(kept)) if kept else ""
    if refused:
        return refused
    return "; ".join(f"{one} holds folders of the job's own" for one in folders if one not in kept)


def mount_all(folders: Sequence[str]) -> str:
    """Make folders read-only in namespaces of our own; why that cannot be, or nothing."""
    try:
        enter_namespace()
        for folder in folders:
            mount_read_only(os.fsencode(folder))
    except OSError as error:
        return str(error)
    return ""


def try_in_child(folders: Sequence[str]) -> str:
    """What comes of it in a process that ends at once: one that is refused half-way cannot go back.

    Some systems let anybody make a user namespace and then refuse to say who one is in it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, mount_all(folders).encode(errors="replace"))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        refused = said.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return refused


def holds(folder: str, own: Sequence[str]) -> bool:
    """Whether one of the job's own paths lies in a folder."""
    return any(Path(path).resolve().is_relative_to(Path(folder).resolve()) for path in own)


def enter_namespace() -> None:
    """Have mounts of our own from here on; those that others make still come to us."""
    if os.geteuid() != 0 or not try_unshare(CLONE_NEWNS):
        uid, gid = os.geteuid(), os.getegid()
        if not try_unshare(CLONE_NEWNS | CLONE_NEWUSER):
            raise OSError(ctypes.get_errno(), f"namespaces are refused here: {os.strerror(ctypes.get_errno())}")
        # In this order: who may not give up groups may not map them either.
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path("/proc/self", name).write_text(line)
    call("mount", None, b"/", None, MS_REC | MS_SLAVE, None)


def mount_read_only(folder: bytes) -> None:
    """Mount a folder over itself, with all that is mounted below it, and let nobody write through that."""
    call("mount", folder, folder, None, MS_BIND | MS_REC, None)
    attributes = MountAttributes(set=MOUNT_ATTR_RDONLY)
    size = ctypes.sizeof(attributes)
    call("syscall", MOUNT_SETATTR, AT_FDCWD, folder, AT_RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(size))


def try_unshare(flags: int) -> bool:
    """Leave namespaces of our parent; False if we may not."""
    return bool(LIBC.unshare(flags) == 0)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library; OSError if it fails."""
    if getattr(LIBC, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"inputs cannot be mounted read-only: {os.strerror(code)}")


LIBC = ctypes.CDLL(None, use_errno=True)
