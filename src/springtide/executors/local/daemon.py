"""A process of its own for something that serves: apart from its starter's session, with its output in a log."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

LOG_BYTES = 10 << 20

#: Serves until its end and returns an exit code; calls its argument when it answers.
Serve = Callable[[Callable[[], None]], int]


def detach(serve: Serve, log: Path) -> int:
    """Serve in a process that outlives this one; returns 0 when it answers, or the code it ended with before.

    Forks twice, so that the process is nobody's child and no terminal's.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setsid()
        if os.fork() == 0:
            os._exit(serve_detached(serve, log, write_end))
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end, "rb") as ready:
        said = ready.read()
    return said[0] if said else 1


def serve_detached(serve: Serve, log: Path, ready: int) -> int:
    """In the detached process: output to the log, then serve."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    redirect(log)
    code = 1

    def say_ready() -> None:
        os.write(ready, bytes([0]))
        os.close(ready)

    try:
        code = serve(say_ready)
        if code:
            os.write(ready, bytes([code]))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def redirect(log: Path) -> None:
    """Send standard output and error to a file, and take nothing in."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (handle, 1), (handle, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(handle)
