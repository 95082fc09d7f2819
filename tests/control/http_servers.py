"""A real server over HTTP in a thread, with the fake executor: nothing but the processes of jobs is missing."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.control.hand_clock import POLICY

from springtide.client.client import Client
from springtide.control.api.routes import AddPages
from springtide.control.executor_factory import ExecutorHandle
from springtide.control.scheduling.machines.inventory import make_inventory
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Listening, Server, ServerSettings
from springtide.control.storage.state_dir import StateDir
from springtide.executors.fake import FakeJob, RealTimeFake

QUICK = FakeJob(speeds={1: 100.0}, startup_s=0.1)
SLOW = FakeJob(speeds={1: 100.0}, total_steps=10**6, startup_s=0.1)
OPTIONS = ServerOptions(policy=POLICY, rate_per_s=10_000.0, burst=100_000)


@contextmanager
def run_server(
    folder: Path,
    options: ServerOptions = OPTIONS,
    devices: int = 2,
    keep_orphans: bool = False,
    add_pages: AddPages | None = None,
    port: int = 0,
    job: FakeJob = QUICK,
    nodes: int = 1,
) -> Iterator[Server]:
    """A listening server; stopped with everything it started at the end of the block."""
    home = StateDir(folder / "home").make()
    settings = ServerSettings(home, "fake", str(devices), Listening(port=port), options, keep_orphans=keep_orphans)
    site = make_inventory("fake", [f"fake:{number}" for number in range(devices)], nodes)
    server = Server(settings, ExecutorHandle(RealTimeFake(job), site, lambda: None), add_pages)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.http.started:
            time.sleep(0.01)
        yield server
    finally:
        server.request_stop()
        thread.join()


def write_project(folder: Path, **keys: object) -> Path:
    """A working directory with a script; returns the path of its job file."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text("print('hello')\n")
    path = folder / "job.yaml"
    path.write_text(json.dumps({"run": "python train.py", **keys}))
    return path


def connect(server: Server, token: str | None = None) -> Client:
    """A client of a server."""
    return Client(server.url, token, server.settings.state_dir.root)
