"""How fast a server answers and starts beside one of another checkout: both live at once and are asked by turns.

`python -m benchmarks.live_load --beside CHECKOUT`, with the checkout of another commit (`git worktree add`). A machine
that others use changes its speed by two within minutes, more than two runs one after the other would show; by turns
both servers meet the same machine. Each checkout fills and starts its server with its own code, in this interpreter.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from benchmarks.live_load import ACTIVE, Sender, end_server, read_cpu_s, read_memory_mb
from springtide.control.storage.state_dir import StateDir

ROOT = Path(__file__).parents[1]
PREPARE = """
import json, sys
from pathlib import Path
from benchmarks import live_load as load

folder = Path(sys.argv[1])
home = load.StateDir(folder / "home").make()
home.config.write_text(json.dumps(load.OPTIONS))
load.fill(home, int(sys.argv[2]))
url = load.start_background(home, load.SERVE)
with load.Client(url, home=home.root) as client:
    print(json.dumps([url, load.prepare(client, folder / "work")]))
"""
RESTART = """
import json, sys
from pathlib import Path
from benchmarks import live_load as load

print(json.dumps(load.restart(load.StateDir(Path(sys.argv[1]) / "home"))))
"""


@dataclass(slots=True)
class Arm:
    """A server of one checkout, and what was measured of it."""

    checkout: Path
    folder: Path
    answers_ms: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0
    memory_mb: float = 0.0

    @property
    def home(self) -> StateDir:
        """Where its server keeps its state."""
        return StateDir(self.folder / "home")

    def run(self, program: str, *arguments: str) -> list[object]:
        """What a program says that runs with the checkout's own code."""
        environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(self.checkout), str(self.checkout / "src")))}
        command = [sys.executable, "-c", program, str(self.folder), *arguments]
        done = subprocess.run(command, cwd=self.checkout, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        said: list[object] = json.loads(done.stdout.splitlines()[-1])
        return said

    def prepare(self, finished: int) -> Sender:
        """Start its server; what submits to it."""
        url, body = self.run(PREPARE, str(finished))
        assert isinstance(url, str) and isinstance(body, dict)
        return Sender(url, self.home, body)


def compare(checkout: Path, answers: int, starts: int, finished: int) -> None:
    """Measure both by turns, each with so many ended jobs in its database, and print their ratios."""
    with tempfile.TemporaryDirectory(prefix="springtide-beside-") as folder:
        ours, other = arms = [Arm(ROOT, Path(folder) / "ours"), Arm(checkout.resolve(), Path(folder) / "other")]
        try:
            ask_by_turns(arms, [arm.prepare(finished) for arm in arms], answers)
            start_by_turns(arms, starts)
        finally:
            for arm in arms:
                end_server(arm.home)
    print(f"{'':<22} {'ours':>8} {'other':>8}   ratio")
    print_row("answer_p50_ms", median(ours.answers_ms), median(other.answers_ms))
    print_row("answer_p99_ms", *(quantiles(arm.answers_ms, n=100)[98] for arm in arms))
    print_row("cpu_of_answer_ms", ours.cpu_ms, other.cpu_ms)
    print_row("memory_mb", ours.memory_mb, other.memory_mb)
    print_row("start_s", median(ours.starts_s), median(other.starts_s))
    ratios = [mine / its for mine, its in zip(ours.answers_ms, other.answers_ms, strict=True)]
    print(f"{'answers, pair by pair':<40}   {median(ratios):.2f}")


def print_row(name: str, ours: float, other: float) -> None:
    """A figure of both, with its ratio."""
    print(f"{name:<22} {ours:8.2f} {other:8.2f}   {ours / other:.2f}")


def ask_by_turns(arms: list[Arm], senders: list[Sender], answers: int) -> None:
    """Submit a job to each server in turn and cancel it, while each has about `ACTIVE` others."""
    for sender in senders:
        for _ in range(ACTIVE):
            sender.submit()
    before_s = [read_cpu_s(arm.home) for arm in arms]
    for turn in range(answers):
        pairs = list(zip(arms, senders, strict=True))
        for arm, sender in pairs if turn % 2 else reversed(pairs):
            document, server_ms = sender.submit()
            arm.answers_ms.append(server_ms)
            sender.cancel(document["id"])
    for arm, began_s in zip(arms, before_s, strict=True):
        arm.cpu_ms = 1000 * (read_cpu_s(arm.home) - began_s) / answers
        arm.memory_mb = read_memory_mb(arm.home)


def start_by_turns(arms: list[Arm], starts: int) -> None:
    """Kill each server and start it again, in turn."""
    for _ in range(starts):
        for arm in arms:
            _, seconds = arm.run(RESTART)
            assert isinstance(seconds, float)
            arm.starts_s.append(seconds)
