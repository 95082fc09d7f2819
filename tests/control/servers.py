"""A real server over HTTP in a thread, with the fake executor: nothing but the processes of jobs is missing."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.control.stages import POLICY

from springtide.control.client import Client
from springtide.control.engines import Engine, PacedFake
from springtide.control.homes import Home
from springtide.control.platforms import Options
from springtide.control.server import Listening, Server, ServerSettings
from springtide.control.sites import make_site
from springtide.executors.fake import FakeJob

QUICK = FakeJob(speeds={1: 100.0}, startup_s=0.1)
OPTIONS = Options(policy=POLICY, rate_per_s=10_000.0, burst=100_000)


@contextmanager
def run_server(folder: Path, options: Options = OPTIONS, devices: int = 2) -> Iterator[Server]:
    """A listening server; stopped with everything it started at the end of the block."""
    home = Home(folder / "home").make()
    settings = ServerSettings(home, "fake", str(devices), Listening(port=0), options)
    site = make_site("fake", [f"fake:{number}" for number in range(devices)])
    server = Server(settings, Engine(PacedFake(QUICK), site, lambda: None))
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
    return Client(server.url, token, server.settings.home.root)
