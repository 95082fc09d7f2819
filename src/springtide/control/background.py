"""A server in the background, started and looked for without importing one."""

import os
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from springtide.control.storage.state_dir import StateDir, read_address
from springtide.errors import StateError
from springtide.executors.local.daemon import is_alive, start_detached

START_S = 60.0
ANSWER_S = 2.0
PROCESS = "springtide.dashboard.server_process"  # a server with its pages; nothing here knows more of them


def start_background(state_dir: StateDir, arguments: tuple[str, ...] = ()) -> str:
    """Start a detached server; returns its address when it answers."""
    state_dir.make()
    command = [sys.executable, "-m", PROCESS, "--detach", "--home", str(state_dir.root), *arguments]
    # Request threads would keep a heap each.
    pid = start_detached(command, state_dir.log, {**os.environ, "MALLOC_ARENA_MAX": "2"})
    until_s = time.monotonic() + START_S
    while pid is not None and time.monotonic() < until_s:
        address = read_address(state_dir)
        if address is not None and is_answering(address["url"]):
            return str(address["url"])
        if not is_alive(pid):
            break
        time.sleep(0.05)
    from springtide.executors.local.jobs.worker_logs import read_tail  # it takes longer to import than all of this

    last = "".join(read_tail(state_dir.log, lines=1)) or "nothing"
    raise StateError(f"the server did not start; its last words are in {state_dir.log}: {last}")


def is_answering(url: str) -> bool:
    """Whether a server answers at an address of this machine."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
