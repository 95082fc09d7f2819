"""A cluster's afternoon on clocks moved by hand, shown by real pages: the same everywhere, for pictures and tests."""

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from tests.control.hand_clock import HandClockServer

from springtide.control.api.entrance.guard import LOCAL_NAMES
from springtide.control.api.entrance.sessions import Pulse, Sessions
from springtide.control.api.entrance.tokens import ensure_owner, hash_token
from springtide.control.api.routes import build_app
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Listening, bind
from springtide.control.storage.records import UserRecord
from springtide.core.receipt_format import hash_line
from springtide.dashboard.pages import add_pages
from springtide.executors.fake import FakeJob
from springtide.executors.local.jobs.environment import CHAIN

HOUR_S = 3600.0


def make_script(steps: int, rate: float) -> FakeJob:
    """A job of so many steps that runs so fast on one device, and somewhat less than so many times as fast on more."""
    speeds = {share: rate * share**0.86 for share in range(1, 17)}
    return FakeJob(steps, speeds, logical_workers=16, steps_per_epoch=max(1, steps // 20), startup_s=20, pause_s=3)


SCRIPTS = {
    "resnet": make_script(90_000, 5.0),
    "llama": make_script(60_000, 1.2),
    "bert": make_script(30_000, 2.0),
    "clicks": make_script(200_000, 20.0),
    "vit": make_script(50_000, 1.5),
    "whisper": make_script(24_000, 1.2),
    "sweep": make_script(8_000, 1.0),
}


def play(folder: Path) -> HandClockServer:
    """Four hours of sixteen devices: promises kept, a fault, an offer, a job that waits, a node that is drained."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ServerOptions(price_per_device_hour=1.5)
    scene = HandClockServer(folder, devices=16, nodes=2, scripts=SCRIPTS, options=options)
    for name in ("ann", "bo", "cem"):
        scene.store.put_user(UserRecord(name, hash_token(f"token-of-{name}")))
    cluster = _Afternoon(scene)
    cluster.submit("bert-squad", "bert", deadline="3h", user="ann")
    cluster.submit("night-sweep", "sweep", user="bo")
    cluster.wait(HOUR_S / 3)
    first = cluster.submit("resnet-a", "resnet", deadline="7h", user="ann")
    cluster.wait(HOUR_S / 2)
    cluster.submit("whisper-small", "whisper", deadline="5h", user="cem")
    cluster.submit("clicks-daily", "clicks", deadline="4h", user="bo")
    cluster.wait(HOUR_S / 6)
    scene.executor.kill(first)
    cluster.wait(HOUR_S / 3)
    cluster.submit("vit-large", "vit", deadline="9h", user="ann")
    cluster.submit("sweep-2", "sweep", user="cem")
    cluster.wait(HOUR_S / 2)
    cluster.submit("llama-7b", "llama", deadline="11h", user="ann")
    cluster.wait(HOUR_S / 2)
    cluster.submit("bert-finetune", "bert", deadline="90m", user="cem")
    cluster.submit("sweep-3", "sweep", user="bo")
    cluster.wait(HOUR_S / 3)
    cluster.submit("clicks-hurry", "clicks", deadline="6m", user="bo")
    cluster.wait(60)
    return scene


def play_storm(folder: Path) -> HandClockServer:
    """The afternoon goes on: a very long name, a promise that needs a node which is then drained, jobs that wait."""
    scene = play(folder)
    cluster = _Afternoon(scene)
    cluster.submit("llama-13b-" + "continued-pretraining-on-filtered-web-text-" + "run-4", "llama", user="cem")
    cluster.submit("vit-second", "vit", deadline="105m", user="bo")
    cluster.wait(HOUR_S / 6)
    node = scene.reconciler.inventory.nodes[1]
    scene.reconciler.call(lambda: scene.operations.drain(node, 30.0))
    cluster.wait(HOUR_S / 6)
    cluster.submit("bert-later", "bert", deadline="6h", user="ann")
    cluster.wait(60)
    return scene


def play_crowd(folder: Path, jobs: int = 1000) -> HandClockServer:
    """A thousand jobs of twenty users on two hundred devices, drawn from a seed: most wait, some have ended."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ServerOptions(rate_per_s=1e5, burst=100_000, most_active=10_000)
    scene = HandClockServer(folder, devices=200, nodes=25, scripts=SCRIPTS, options=options)
    cluster, draw = _Afternoon(scene), random.Random(0)
    for number in range(jobs):
        script = draw.choice(sorted(SCRIPTS))
        deadline = {"deadline": f"{draw.randint(2, 72)}h"} if draw.random() < 0.5 else {}
        cluster.submit(f"{script}-{number:03}", script, user=f"user-{draw.randint(1, 20):02}", **deadline)
        if number % 100 == 99:
            scene.pass_s(HOUR_S / 4, 60.0)
    return scene


def write_receipt(scene: HandClockServer, job_id: str) -> None:
    """The chain of digests that a job's processes would have written."""
    lines: list[dict[str, object]] = []
    for step in range(0, 90_001, 10_000):
        line: dict[str, object] = {"step": step, "state": f"{step:064x}"}
        before = str(lines[-1]["chain"]) if lines else ""
        lines.append(line | {"chain": hash_line(before, line)})
    folder = scene.state_dir.output(job_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CHAIN).write_text("".join(json.dumps(line) + "\n" for line in lines))


class _Afternoon:
    """Submits and waits."""

    def __init__(self, scene: HandClockServer) -> None:
        self.scene = scene

    def submit(self, name: str, script: str, **keys: object) -> str:
        return self.scene.submit(name=name, run=f"python train.py {script}", **keys).id  # type: ignore[arg-type]

    def wait(self, seconds: float) -> None:
        self.scene.pass_s(seconds, 10.0)


def write_curves(scene: HandClockServer, job_id: str) -> None:
    """What a script would have logged."""
    folder = scene.state_dir.logs(job_id)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"step": step, "metrics": {"loss": find_loss(step), "lr": 1e-3 * (1 - step / 90_000)}}
        for step in range(100, 40_000, 250)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"step {step:>6}  loss {find_loss(step):.4f}" for step in range(100, 40_000, 250)]
    (folder / "rank-0.log").write_text("\n".join(lines) + "\n")


def find_loss(step: int) -> float:
    """A loss that falls, with some noise."""
    return 0.4 + 4 * math.exp(-step / 9000) + 0.05 * math.sin(step / 37)


@dataclass(frozen=True)
class Shown:
    """A scene with its pages at an address."""

    scene: HandClockServer
    url: str
    sessions: Sessions
    owner: UserRecord

    @property
    def token(self) -> str:
        """The owner's token."""
        return self.scene.state_dir.token.read_text().strip()

    @property
    def link(self) -> str:
        """An address that signs the owner in."""
        return self.url + self.sessions.make_link(self.owner)


@contextmanager
def show(scene: HandClockServer) -> Iterator[Shown]:
    """The pages of a scene at an address; time stands still."""
    owner = ensure_owner(scene.store, scene.state_dir)
    ending = threading.Event()
    pulse = Pulse(scene.store, ending.is_set)
    app, sessions = build_app(scene.reconciler, frozenset(LOCAL_NAMES), lambda: None, pulse, add_pages)
    line = bind(Listening(port=0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
    threads = [
        threading.Thread(target=server.run, kwargs={"sockets": [line]}),
        threading.Thread(target=scene.reconciler.run),
    ]
    for thread in threads:
        thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Shown(scene, f"http://127.0.0.1:{line.getsockname()[1]}", sessions, owner)
    finally:
        ending.set()
        server.should_exit = True
        scene.reconciler.stop()
        for thread in threads:
            thread.join()
        line.close()
