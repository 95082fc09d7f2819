"""How far one submission walks through the code: how often it enters a module of ours, on the server, in all threads.

    python -m benchmarks.submit_walk [--json]

A known job with a deadline is submitted over HTTP to a real server with the fake executor. From the request to its
answer two numbers are counted: *calls* whose nearest caller of ours lies in another module, and *entries*, which count
the way back as well: every time that the module at work is another than before, by call or by return, in each thread.
Generated methods (of dataclasses) and what libraries do in between count where they were called from. Each is counted
on several submissions and the fewest are told, because a report of an earlier job may fall into one of them.
"""

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from tests.control.http_servers import connect, run_server, write_project

import springtide
from springtide.client.job_folders import load_job
from springtide.control.server import Server

ROOT = str(Path(springtide.__file__).parent) + "/"
ROUNDS = 5
TOP = 20


@dataclass
class Walk:
    """Entries of modules and calls between them, while it is on."""

    on: bool = False
    entries: Counter[str] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    at: dict[int, str] = field(default_factory=dict)  # the module at work, by thread

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """What the interpreter calls for every call and return."""
        if not self.on or event not in ("call", "return"):
            return
        module = name_module(frame)
        if module is None:
            return
        caller = find_caller(frame)
        if event == "call":
            self.enter(module)
            if caller is not None and caller != module:
                self.calls[caller, module] += 1
        elif caller is not None:
            self.enter(caller)

    def enter(self, module: str) -> None:
        """Count a module unless it was at work in this thread already."""
        thread = threading.get_ident()
        if self.at.get(thread) != module:
            self.at[thread] = module
            self.entries[module] += 1

    def describe(self) -> dict[str, Any]:
        """The numbers, and the modules that are entered most."""
        return {
            "entries": self.entries.total(),
            "calls": self.calls.total(),
            "modules": len(self.entries),
            "top": dict(self.entries.most_common(TOP)),
        }


def name_module(frame: FrameType) -> str | None:
    """The module of ours that a frame is in, by its path; None for any other."""
    path = frame.f_code.co_filename
    return path.removeprefix(ROOT).removesuffix(".py") if path.startswith(ROOT) else None


def find_caller(frame: FrameType) -> str | None:
    """The module of the nearest caller that is ours."""
    caller = frame.f_back
    while caller is not None and name_module(caller) is None:
        caller = caller.f_back
    return None if caller is None else name_module(caller)


def measure() -> Walk:
    """The shortest walk of a few submissions of a known job."""
    walk = Walk()
    threading.setprofile(walk.profile)  # before the server starts its threads
    try:
        with tempfile.TemporaryDirectory() as folder, run_server(Path(folder)) as server, connect(server) as client:
            path = write_project(Path(folder) / "project", deadline="900h")
            client.wait(client.submit(path).id)
            archive = client.upload(load_job(path).pack())
            return min((submit_once(server, walk, archive) for _ in range(ROUNDS)), key=lambda one: one.entries.total())
    finally:
        threading.setprofile(None)


def submit_once(server: Server, walk: Walk, archive: str) -> Walk:
    """The walk of one submission while nothing else happens."""
    time.sleep(2.5)  # the jobs before it have ended
    body = json.dumps({"job": {"run": "python train.py", "deadline": "900h"}, "archive": archive})
    token = server.settings.state_dir.token.read_text().strip()
    line = http.client.HTTPConnection(urlsplit(server.url).netloc)
    line.connect()
    walk.entries, walk.calls, walk.at = Counter(), Counter(), {}
    walk.on = True
    line.request("POST", "/api/v1/jobs", body, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    reply = line.getresponse()
    walk.on = False
    answer = json.loads(reply.read())
    assert (reply.status, answer["promised"]) == (201, True), answer
    line.close()
    return Walk(entries=walk.entries, calls=walk.calls)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    told = measure().describe()
    if parser.parse_args(sys.argv[1:]).json:
        print(json.dumps(told))
        return
    print(f"{told['entries']} entries of {told['modules']} modules, {told['calls']} calls from one to another")
    for module, count in told["top"].items():
        print(f"{count:5} {module}")


if __name__ == "__main__":
    main()
