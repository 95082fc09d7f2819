"""Doing something as a job's user: in a process that has become that user for good before it touches anything.

For callers with one thread, as the agent is, or a few, as the server. What is done may return only what JSON holds.
"""

import json
import os
import pwd
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

#: A folder on a disk that does not answer must not hold the agent up.
PATIENCE_S = 5.0
#: Held while a child is made: another one made meanwhile would keep the end of this one's pipe open.
FORKING = threading.Lock()


@dataclass(frozen=True, slots=True)
class SystemUser:
    """A user of this system, with the user's own groups."""

    uid: int
    gid: int
    groups: Sequence[int]
    home: str


def find_user(name: str) -> SystemUser:
    """The user of a name; KeyError if there is none."""
    entry = pwd.getpwnam(name)
    return SystemUser(entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid), entry.pw_dir)


def become(user: SystemUser) -> None:
    """Make this process that user's, with no way back."""
    os.setgroups(user.groups)
    os.setgid(user.gid)
    os.setuid(user.uid)
    os.umask(0o077)


def do_as(name: str | None, work: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What `work` returns when done as a user of this name (None: as ourselves); the OSError that it raised is raised.

    TimeoutError, which is one, if it takes too long.
    """
    if name is None:
        return work()
    user = find_user(name)
    with FORKING:
        reading, writing = os.pipe()
        try:
            child = os.fork()
            if child == 0:
                answer(user, work, writing)
        except OSError:  # no room for another process
            os.close(reading)
            raise
        finally:
            os.close(writing)
    try:
        said = read_until(reading, time.monotonic() + patience_s)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    reply = json.loads(said or b'{"error": [0, "it ended without a word"]}')
    if "error" in reply:
        number, text, *file = reply["error"]
        raise OSError(number, text, *(name for name in file if name))
    return reply["value"]


def do_within(work: Callable[[], Any], patience_s: float) -> Any:
    """What `work` returns or raises; TimeoutError if it takes too long, as on a disk that hangs: it is left alone."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="look", daemon=True).start()
    try:
        return done.result(patience_s)
    except TimeoutError:
        if done.done():  # it was the work's own
            raise
        raise TimeoutError(0, "it took too long") from None


def answer(user: SystemUser, work: Callable[[], Any], writing: int) -> None:
    """In the child: become the user, work, say what came of it, and end."""
    try:
        become(user)
        reply = {"value": work()}
    except OSError as error:
        reply = {"error": [error.errno or 0, error.strerror or str(error), os.fsdecode(error.filename or "")]}
    except BaseException as error:
        reply = {"error": [0, repr(error)]}
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(reply).encode())
    finally:
        os._exit(0)


def read_until(reading: int, until_s: float) -> bytes:
    """All that comes through a pipe, up to a moment."""
    said, coming = b"", select.poll()  # `select.select` takes no descriptor above 1023
    coming.register(reading, select.POLLIN)
    while coming.poll(max(0.0, until_s - time.monotonic()) * 1000):
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            return said
        said += chunk
    raise TimeoutError(0, "it took too long")
