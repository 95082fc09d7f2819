"""What the control loop costs on a large platform: the real reconciler, store and policy on the fake executor.

    python -m benchmarks.control_scale [--nodes 1000] [--per-node 8] [--jobs 5000] [--policy NAME] [--plain]

Fills a platform with jobs of known speed (half with deadlines, half without), lets them start, and then times by the
CPU of the loop's own thread: a *decision* (policy, placement, check, what follows of it; without the commit), the
policy alone, a *commit*, a *beat* (a step of the loop in which nothing happened), and an *event* (progress told by a
running job). Clocks are moved by hand, so nothing waits. The planner is compiled first, as that of a server is after a
few slow decisions; with `--plain` it stays uncompiled, as in the half minute that compiling takes on a new machine.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from springtide.client.packing import pack
from springtide.control.memory_sweeps import shorten_sweeps
from springtide.control.scheduling.loop import effort
from springtide.control.scheduling.machines.inventory import Inventory, make_inventory
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.archives import unpack
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeExecutor, FakeJob
from springtide.policies.registry import find_policy

BEHAVIOUR = FakeJob(total_steps=1_000_000, speeds={1: 10.0, 2: 18.0, 4: 32.0, 8: 56.0}, checkpoint_every=10**9)
BARS = {"decision_p99_ms": 200.0, "memory_mb": 1000.0}
BATCH = 250  # jobs that are handed in together while the platform is filled
SINGLES = 100
BEATS = 100


@dataclass(slots=True)
class HandClocks:
    """Clocks moved by hand."""

    wall: float = 1_800_000_000.0
    steady: float = 0.0

    def wall_s(self) -> float:
        """Seconds since 1970 as set."""
        return self.wall

    def steady_s(self) -> float:
        """Seconds let pass."""
        return self.steady

    def origin(self) -> str:
        """A name that stays."""
        return "hand"


class UsualExecutor(FakeExecutor):
    """Every job behaves alike."""

    def begin(self, order: Any) -> Any:
        """A job that behaves as all do."""
        self.behaviours.setdefault(order.job, BEHAVIOUR)
        return super().begin(order)


@dataclass
class Stopwatch:
    """Milliseconds of CPU that calls took, by what they are."""

    spent: dict[str, list[float]] = field(default_factory=dict)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*arguments: Any, **options: Any) -> Any:
            started_s = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                self.spent.setdefault(name, []).append(1000 * (time.thread_time() - started_s))

        return timed


class LargePlatform:
    """A control plane on clocks moved by hand."""

    def __init__(self, folder: Path, inventory: Inventory, policy: str, stopwatch: Stopwatch) -> None:
        self.state_dir = StateDir(folder / "home").make()
        self.clocks = HandClocks()
        self.executor = UsualExecutor(now_s=self.clocks.wall)
        self.store = Store(f"sqlite:///{self.state_dir.database}")
        options = ServerOptions(policy=policy, most_active=10**6)
        self.reconciler = Reconciler(self.store, self.executor, inventory, self.state_dir, self.clocks, options)
        self.reconciler.decide = stopwatch.wrap("policy", self.reconciler.decide)
        self.reconciler.make_decision = stopwatch.wrap("decision", self.reconciler.make_decision)  # type: ignore[method-assign]
        self.reconciler.commit = stopwatch.wrap("commit", self.reconciler.commit)  # type: ignore[method-assign]
        self.operations = Operations(self.reconciler)
        (folder / "work").mkdir()
        (folder / "work" / "train.py").write_text("print('hello')\n")
        archive = pack(folder / "work")
        unpack(archive.data, self.state_dir.code / archive.code_hash)
        self.archive = archive.code_hash

    def hand_in(self, number: int) -> None:
        """Hand in a job, without a step."""
        hours = 60 + number % 997
        keys: dict[str, object] = {"run": "python train.py", "steps": 200_000}
        if number % 2 == 0:
            keys["deadline"] = f"{hours}h"
        submission = Submission(check_job(keys, "scale"), self.archive, "ann")
        self.reconciler.call(partial(self.operations.submit, submission))

    def pass_s(self, seconds: float) -> None:
        """Let time pass, without a step."""
        self.clocks.wall += seconds
        self.clocks.steady += seconds
        self.executor.advance(seconds)

    def step(self) -> float:
        """One step of the loop; returns its milliseconds of CPU."""
        started_s = time.thread_time()
        self.reconciler.step()
        return 1000 * (time.thread_time() - started_s)

    def learn(self) -> None:
        """Have the speed of the code measured: by a probe, and by a run on each share."""
        self.hand_in(0)
        for _ in range(60):
            self.pass_s(5.0)
            self.step()


def measure(folder: Path, nodes: int, per_node: int, jobs: int, policy: str) -> dict[str, float]:
    """All figures."""
    shorten_sweeps()  # as a server does
    stopwatch = Stopwatch()
    inventory = make_inventory("a100", [f"gpu:{k}" for k in range(nodes * per_node)], nodes)
    platform = LargePlatform(folder, inventory, policy, stopwatch)
    platform.learn()
    figures = fill(platform, jobs)
    stopwatch.spent.clear()
    figures |= summarise("arrival_step", [arrive(platform, jobs + number) for number in range(SINGLES)])
    figures |= summarise("departure_step", [depart(platform) for _ in range(SINGLES)])
    for name in ("decision", "policy", "commit"):
        figures |= summarise(name, stopwatch.spent[name])
    figures |= time_events(platform)
    figures |= summarise("beat", [beat(platform) for _ in range(BEATS)])
    figures["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    counts = platform.store.count_jobs()
    figures |= {f"jobs_{state}": float(count) for state, count in sorted(counts.items())}
    return figures


def fill(platform: LargePlatform, jobs: int) -> dict[str, float]:
    """Hand in all jobs, and have those that were given devices start."""
    began_s, spent_ms = time.perf_counter(), 0.0
    for first in range(1, jobs, BATCH):
        for number in range(first, min(jobs, first + BATCH)):
            platform.hand_in(number)
        spent_ms += platform.step()
    for _ in range(3):
        platform.pass_s(2.0)
        spent_ms += platform.step()
    print(f"filled in {time.perf_counter() - began_s:.1f} s: {platform.store.count_jobs()}", file=sys.stderr)
    return {"fill_cpu_s": spent_ms / 1000}


def arrive(platform: LargePlatform, number: int) -> float:
    """A step with one arrival, half a second later."""
    platform.clocks.wall, platform.clocks.steady = platform.clocks.wall + 0.01, platform.clocks.steady + 0.01
    platform.hand_in(number)
    return platform.step()


def depart(platform: LargePlatform) -> float:
    """A step in which one running job has been cancelled."""
    platform.clocks.wall, platform.clocks.steady = platform.clocks.wall + 0.01, platform.clocks.steady + 0.01
    jobs = platform.reconciler.context.staging.jobs.values()
    running = next(record for record in jobs if record.devices and record.state is JobState.RUNNING)
    platform.reconciler.call(partial(platform.operations.cancel, running.id, "ann"))
    return platform.step()


def beat(platform: LargePlatform) -> float:
    """A step in which nothing happened but that time passed."""
    platform.clocks.wall, platform.clocks.steady = platform.clocks.wall + 0.05, platform.clocks.steady + 0.05
    return platform.step()


def time_events(platform: LargePlatform) -> dict[str, float]:
    """Milliseconds of the loop for each event, where every running job reports."""
    platform.step()
    platform.pass_s(1.0)
    events = len(platform.executor.events(platform.reconciler.cursor))
    spent_ms = platform.step()
    return {"events": float(events), "event_ms": spent_ms / max(1, events)}


def summarise(name: str, spent_ms: list[float]) -> dict[str, float]:
    """Median, 99th percentile and worst of a list."""
    ranks = quantiles(spent_ms, n=100)
    return {f"{name}_p50_ms": median(spent_ms), f"{name}_p99_ms": ranks[98], f"{name}_worst_ms": max(spent_ms)}


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--per-node", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--policy", default="springtide")
    parser.add_argument("--plain", action="store_true", help="leave the planner uncompiled")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.plain:
        effort.SLOW_DECISIONS = sys.maxsize
    else:
        find_policy(given.policy).compile()
    with tempfile.TemporaryDirectory(prefix="springtide-scale-") as folder:
        figures = measure(Path(folder), given.nodes, given.per_node, given.jobs, given.policy)
    if given.json:
        print(json.dumps({"schema": 1, "figures": figures, "bars": BARS}, indent=2))
        return
    for name, value in figures.items():
        bar = BARS.get(name)
        print(f"{name:<24} {value:12.2f}" + (f"   bar {bar:g}   ratio {value / bar:.2f}" if bar else ""))


if __name__ == "__main__":
    main()
