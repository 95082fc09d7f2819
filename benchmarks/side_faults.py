"""The faults of `chaos` that come beside the others: each does one bad thing for a moment, then takes it back.

A database that is locked, a full disk under it, an agent or a server that is stopped (SIGSTOP), lines that are cut or
that say nothing, bodies of nonsense. What they do to jobs is seen at the end, here only that no answer is wrong.
"""

import json
import os
import signal
import socket
import sqlite3
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

import httpx
import psutil

from benchmarks.arenas import Arena
from benchmarks.bystanders import Doors
from benchmarks.nonsense import spoil, write_line

LOCKED_S = (0.1, 1.5)
FULL_S = (0.1, 1.0)
STOPPED_S = (0.2, 3.0)
LINES = 40
SLOW_LINES = 150
BODIES = 20


@dataclass
class SideScene:
    """A platform, the dice, and where it is asked; `number` counts the faults of this hand."""

    arena: Arena
    dice: Random
    doors: Doors
    number: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Who asks."""
        return {"Authorization": f"Bearer {self.doors.token}"}

    def make_body(self, name: str) -> dict[str, object]:
        """A submission that needs no device."""
        return {"job": {"name": name, "run": "python train.py 1", "hold": True}, "archive": self.doors.archive}


def lock_database(scene: SideScene) -> str:
    """Another process holds the database's lock."""
    with scene.arena.outages.during(), closing(sqlite3.connect(scene.arena.database, timeout=60.0)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(scene.dice.uniform(*LOCKED_S))
        connection.execute("ROLLBACK")
    return ""


def fill_state_disk(scene: SideScene) -> str:
    """No room for the database."""
    filler = scene.arena.database.with_name("filler")
    with scene.arena.outages.during():
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        time.sleep(scene.dice.uniform(*FULL_S))
        filler.unlink()
    return ""


def stop_agent(scene: SideScene) -> str:
    """The agent is stopped (SIGSTOP) for a while; everybody else must be answered meanwhile."""
    with suppress(psutil.NoSuchProcess, OSError, ValueError):
        agent = scene.arena.find_agent()
        agent.suspend()
        try:
            time.sleep(scene.dice.uniform(*STOPPED_S))
        finally:
            agent.resume()
    return ""


def stop_server(scene: SideScene) -> str:
    """The server is stopped (SIGSTOP) for a while."""
    server = scene.arena.server
    assert server is not None
    with scene.arena.outages.during(), suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(scene.dice.uniform(*LOCKED_S))
        if server.poll() is None:
            os.kill(server.pid, signal.SIGCONT)
    return ""


def cut_lines(scene: SideScene) -> str:
    """Lines are cut in the middle of requests; one of these is a submission, which is then sent again as it was."""
    name = f"cut-{scene.number:06}"
    body, url = json.dumps(scene.make_body(name)).encode(), scene.doors.find_url()
    if url is None:
        return ""
    place = urlsplit(url)
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {scene.doors.token}\r\n"
    head += f"Idempotency-Key: {name}-key\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    for number in range(LINES):
        sent = request if number == 0 else request[: scene.dice.randrange(1, len(request))]
        with suppress(OSError), socket.create_connection((place.hostname, place.port), timeout=5.0) as line:
            line.sendall(sent)
            if scene.dice.random() < 0.7:  # reset, not closed
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return send_again(scene, name)


def send_again(scene: SideScene, name: str) -> str:
    """Send a submission that was cut once more, and cancel its job; what is wrong with the answers."""
    body, headers = scene.make_body(name), scene.headers | {"Idempotency-Key": f"{name}-key"}
    ids = set()
    for _ in range(2):
        with suppress(httpx.HTTPError, ValueError):
            answer = httpx.post(f"{scene.doors.find_url()}/api/v1/jobs", json=body, headers=headers, timeout=60.0)
            if answer.status_code in (201, 202):
                ids.add(answer.json()["id"])
            elif answer.status_code not in (429, 503):
                return f"a submission sent again was answered {answer.status_code}: {answer.text[:300]}"
    for job in ids:
        with suppress(httpx.HTTPError):
            httpx.post(f"{scene.doors.find_url()}/api/v1/jobs/{job}/cancel", headers=scene.headers, timeout=60.0)
    return f"one key made the jobs {sorted(ids)}" if len(ids) > 1 else ""


def hold_lines(scene: SideScene) -> str:
    """Many lines on which somebody begins to ask and never ends."""
    url = scene.doors.find_url()
    if url is None:
        return ""
    place = urlsplit(url)
    with ExitStack() as lines:
        for _ in range(SLOW_LINES):
            with suppress(OSError):
                line = socket.create_connection((place.hostname, place.port), timeout=5.0)
                lines.enter_context(line)
                line.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHo")
        time.sleep(scene.dice.uniform(0.1, 1.0))
    return ""


def send_nonsense(scene: SideScene) -> str:
    """Bodies in which things are others, are gone, or are too many."""
    dice, url = scene.dice, scene.doors.find_url()
    for _ in range(BODIES):
        body = scene.make_body("nonsense")
        body["job"] = spoil({**body["job"], "deadline": "6h", "devices": 1}, dice)  # type: ignore[dict-item]
        data = write_line(spoil(body, dice) if dice.random() < 0.5 else body, dice)
        with suppress(httpx.HTTPError):
            path = dice.choice(["/api/v1/plan", "/api/v1/jobs"])
            headers = scene.headers | {"Content-Type": "application/json"}
            answer = httpx.post(f"{url}{path}", content=data, headers=headers, timeout=60.0)
            if answer.status_code >= 500 and answer.status_code != 503:
                return f"nonsense was answered {answer.status_code}: {data[:300]!r}"
            if answer.status_code in (201, 202) and path.endswith("jobs"):
                job = answer.json()["id"]
                httpx.post(f"{url}/api/v1/jobs/{job}/cancel", headers=scene.headers, timeout=60.0)
    return ""


#: Does one bad thing and takes it back; returns what was answered that should not have been, if anything was.
SideFault = Callable[[SideScene], str]
SIDE_FAULTS: dict[str, SideFault] = {
    "database locked": lock_database,
    "state disk full": fill_state_disk,
    "agent stopped": stop_agent,
    "server stopped": stop_server,
    "lines cut": cut_lines,
    "lines held": hold_lines,
    "nonsense sent": send_nonsense,
}
#: Those that need a disk of our own.
NEED_DISK = ("state disk full",)
