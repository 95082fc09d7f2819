"""Runs the command of one notice: a process of its own, between the server and what a user wrote. Reads JSON on stdin.

It becomes the parent of whatever the command leaves behind, in whichever session, and ends all of that. What the
command prints is read on and forgotten but for its end. Where control groups can be made, the command and all that it
starts are in one, held to a number of processes and to memory; elsewhere each process is held to its own memory.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from springtide.executors.local.as_user import SystemUser, become
from springtide.executors.local.processes.cgroups import ControlGroup, ControlGroups, GroupLimits, open_groups
from springtide.executors.local.processes.stray_processes import adopt_orphans, end_orphans, list_children

MOST_PROCESSES = 256
MOST_MEMORY_BYTES = 1 << 30
MOST_KEPT = 1 << 14  # of what it prints, the end
CHUNK = 1 << 16
LOOK_S = 0.05
SWEEP_S = 2.0  # for which what it has left behind is ended, again and again
NICENESS = 10


def main() -> None:
    """Run what is asked for; what goes wrong is the last line on stderr."""
    request: dict[str, Any] = json.load(sys.stdin)
    until_s = time.monotonic() + request["within_s"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was broken off"))
    adopt_orphans()
    groups = open_groups(f"notice-{os.getpid()}", GroupLimits(pids=MOST_PROCESSES))
    try:
        sys.exit(run(request, until_s, groups))
    finally:
        sweep(groups)


def run(request: Mapping[str, Any], until_s: float, groups: ControlGroups | None) -> str | None:
    """Run the command until it has ended, or until a moment; what went wrong, None if nothing has."""
    user = None if request["user"] is None else SystemUser(**request["user"])
    group = None if groups is None else groups.make("command", MOST_MEMORY_BYTES)
    words = request["words"]
    try:
        process = start(words, user, group)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{words[0]} cannot be run: {error}"
    threading.Thread(target=feed, args=(process.stdin, request["text"]), daemon=True).start()
    last = follow(process, until_s).decode(errors="replace").strip().rpartition("\n")[2]
    if process.poll() is None:
        return f"{words[0]} did not end within {request['within_s']:g} s"
    return f"{words[0]} ended with code {process.returncode}: {last or 'no word'}" if process.returncode else None


def start(words: list[str], user: SystemUser | None, group: ControlGroup | None) -> "subprocess.Popen[bytes]":
    """Start the command as its user, in its group."""

    def enter() -> None:  # in the child, which is still the server's user
        if group is not None:
            group.add(os.getpid())
        limit_process()
        if user is not None:
            become(user)

    home = {} if user is None else {"HOME": user.home}
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **home},
        cwd="/",
        start_new_session=True,
        preexec_fn=enter,
    )


def limit_process() -> None:
    """Hold this process to its memory, and let it stand behind the server's, and end first where memory ends."""
    os.nice(NICENESS)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MOST_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MOST_MEMORY_BYTES)
    with contextlib.suppress(OSError, ValueError):  # another system has no such limit
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def feed(line: IO[bytes] | None, text: str) -> None:
    """Give the command what it is to read; one that reads nothing is not waited for."""
    assert line is not None
    with contextlib.suppress(OSError), line:
        line.write(text.encode())


def follow(process: "subprocess.Popen[bytes]", until_s: float) -> bytes:
    """The end of what it prints until it has ended, or until a moment: of its children nobody waits for more."""
    assert process.stderr is not None
    number, coming, kept = process.stderr.fileno(), select.poll(), b""
    coming.register(number, select.POLLIN)
    is_open = True
    while time.monotonic() < until_s:
        has_ended = process.poll() is not None
        if is_open and coming.poll(0 if has_ended else LOOK_S * 1000):
            chunk = os.read(number, CHUNK)
            kept, is_open = (kept + chunk)[-MOST_KEPT:], bool(chunk)
        elif has_ended:
            break
        elif not is_open:
            time.sleep(LOOK_S)
    return kept


def sweep(groups: ControlGroups | None) -> None:
    """End all that is left, however it has tried to stay."""
    if groups is not None:
        groups.close()
    until_s = time.monotonic() + SWEEP_S
    while list_children() and time.monotonic() < until_s:
        end_orphans(())
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
