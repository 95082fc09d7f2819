"""A process of its own for something that serves: apart from its starter's session, with its output in a log."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from springtide.executors.local.paths import open_private

LOG_BYTES = 10 << 20
PROC = Path("/proc/self")
ENDED = (b"Z", b"X")  # states of a process that has ended


def start_detached(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> int | None:
    """Run a command that calls `detach`; its process then, or None if it did not get so far. The log says why."""
    if log.exists():
        turn_over(log)
    with open(log, "ab", opener=open_private) as file:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, cwd=log.parent, env=env
        )
    return int(done.stdout) if done.returncode == 0 else None


def turn_over(log: Path) -> None:
    """Put what a log holds aside once it is too long, while processes write to it.

    They append, so they go on at its new end; a file of another name would be written to by those who have it open.
    """
    try:
        if log.stat().st_size <= LOG_BYTES:
            return
        with log.open("rb") as whole, open(log.with_name(f"{log.name}.1"), "wb", opener=open_private) as former:
            shutil.copyfileobj(whole, former)
        os.truncate(log, 0)
    except OSError as error:
        print(f"the log {log} cannot be turned over: {error}", file=sys.stderr, flush=True)


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:  # read here: commands ask this, and psutil takes long to import
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return not PROC.is_dir() and is_alive_anywhere(pid)
    return stat.rpartition(b")")[2].split()[0] not in ENDED


def is_alive_anywhere(pid: int) -> bool:
    """The same where the kernel does not tell it in files."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def detach() -> None:
    """Go on as nobody's child and no terminal's, after printing its id; what is printed later goes where errors go."""
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        os._exit(0)
    os.setsid()
    os.dup2(2, 1)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
