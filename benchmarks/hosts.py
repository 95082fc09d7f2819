"""Hosts that are killed, cut off, drained and added while a job trains on them: what it costs, and whether bits stay.

    python -m benchmarks.hosts [--faults N] [--chaos N] [--seed S] [--every SECONDS]

A lead, hosts with one CPU slot each (in network namespaces as root, else over the loopback), and a control plane that
decides. First, N hosts are killed and as many cables pulled, one at a time: when the loss was seen, when the job went
on (`on` the first step after it, `new` the first that had not been trained before); and the pause of every resize in
place, with a checkpoint every so many seconds; with few of them the job goes on from copies in the memory of hosts
(decision 153). Then one run of random faults with a seed. Every step leaves a line of each process in a file: that no
two starts of the job overlap, that checkpoints name who wrote them, and that the weights are those of a run by itself,
is checked at the end. Exit code 1 if not.
"""

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.executors.hosts.loopback_cluster import LoopbackCluster

from benchmarks.host_networks import NamespaceCluster, can_make_networks
from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.client.packing import pack
from springtide.control.clock import SystemClocks
from springtide.control.scheduling.machines.inventory import name_inventory
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.archives import unpack
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import check_job

PATIENCE_S = 120.0
HOSTS = ("h1", "h2", "h3")
SCRIPT = """
import os, time
import torch
import springtide

run = springtide.init(logical_workers=3, seed=0)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(120, 8), torch.randn(120, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=4)
pause_s, trail = float(os.environ.get("PAUSE_S", "0")), os.environ.get("TRAIL")
for epoch in run.steps(STEPS):
    for step in loader:
        for x, y in step:
            ((model(x) - y) ** 2).mean().backward()
            time.sleep(pause_s)
        optimizer.step(); optimizer.zero_grad()
        if trail:
            with open(trail, "a") as file:
                file.write(f"{time.time()} {os.environ['SPRINGTIDE_STORE']} {step.number}\\n")
"""


@dataclass(frozen=True, slots=True)
class TrailStep:
    """A step that was trained: when, in which start of the job, and its number."""

    at_s: float
    start: str
    step: int


def read_trail(path: Path) -> list[TrailStep]:
    """The steps that were trained, as they were."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [TrailStep(float(at_s), start, int(step)) for at_s, start, step in rows]


def count_steps(trail: list[TrailStep]) -> int:
    """How many steps were trained, each by one process or several."""
    return len({(one.start, one.step) for one in trail})


def find_overlaps(trail: list[TrailStep]) -> list[str]:
    """Starts of the job that trained while another did."""
    spans: dict[str, tuple[float, float]] = {}
    for one in trail:
        first_s, last_s = spans.get(one.start, (one.at_s, one.at_s))
        spans[one.start] = min(first_s, one.at_s), max(last_s, one.at_s)
    ordered = sorted(spans.items(), key=lambda item: item[1])
    return [
        f"{later} began {before[1] - span[0]:.2f} s before {earlier} ended"
        for (earlier, before), (later, span) in itertools.pairwise(ordered)
        if span[0] < before[1]
    ]


@dataclass
class Bench:
    """A job on hosts, under a control plane in this process."""

    folder: Path
    cluster: LoopbackCluster
    reconciler: Reconciler
    steps: int
    job: str = ""
    cut: set[str] = field(default_factory=set)

    @property
    def trail(self) -> Path:
        return self.folder / "trail"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def submit(self, pause_s: float, every_s: float) -> None:
        """Start the job."""
        self.work.mkdir()
        (self.work / "train.py").write_text(SCRIPT.replace("STEPS", str(self.steps)))
        archive = pack(self.work)
        unpack(archive.data, self.reconciler.context.state_dir.code / archive.code_hash)
        told = {
            "run": "python train.py",
            "devices": "1..3",
            "checkpoint": {"every": f"{every_s:g}s"},
            "env": {"PAUSE_S": str(pause_s), "TRAIL": str(self.trail)},
        }
        file = check_job(told, "benchmark")
        self.job = Operations(self.reconciler).submit(Submission(file, archive.code_hash, "ann"))
        self.reconciler.step()

    @property
    def record(self) -> JobRecord:
        found = self.reconciler.store.job(self.job)
        assert found is not None
        return found

    def wait(self, what: str, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Let the control plane work until something holds."""
        until_s = time.monotonic() + patience_s
        while not holds():
            if time.monotonic() > until_s:
                raise SystemExit(f"not within {patience_s:g} s: {what}; {self.record}")
            self.reconciler.step(0.05)

    def wait_for_steps(self, count: int) -> None:
        """Until so many further steps were trained, or the job has ended."""
        wanted = count_steps(read_trail(self.trail)) + count
        self.wait(f"{count} steps", lambda: not self.record.active or count_steps(read_trail(self.trail)) >= wanted)

    def wait_for_share(self, share: int) -> None:
        """Until the job trains on so many devices."""

        def holds() -> bool:
            return len(self.record.devices) == share and self.record.condition("rescaling") is None

        self.wait(f"{share} devices", lambda: not self.record.active or holds())

    def list_events(self, kind: str, since_s: float) -> list[float]:
        """When events of a kind were told since a moment."""
        return [one.at_s for one in self.reconciler.store.events() if one.kind == kind and one.at_s >= since_s]

    @property
    def there(self) -> list[str]:
        return self.cluster.list_there()


@contextlib.contextmanager
def open_bench(steps: int) -> Iterator[Bench]:
    """Three hosts and a control plane."""
    with tempfile.TemporaryDirectory(prefix="st-hosts-") as name:
        folder = Path(name)
        home = StateDir(folder / "home", several_hosts=True).make()
        cluster = (NamespaceCluster if can_make_networks() else LoopbackCluster)(folder)
        store = Store(f"sqlite:///{home.database}")
        try:
            for host in HOSTS:
                cluster.start_host(host)
            cluster.wait_for_hosts(*HOSTS)
            inventory = name_inventory(cluster.executor.nodes())
            reconciler = Reconciler(store, cluster.executor, inventory, home, SystemClocks(), ServerOptions())
            yield Bench(folder, cluster, reconciler, steps)
        finally:
            store.close()
            cluster.close()


def lose(bench: Bench, host: str, by: str) -> None:
    """Kill a host, or pull its cable."""
    if by == "kill":
        bench.cluster.kill_host(host)
    else:
        assert isinstance(bench.cluster, NamespaceCluster)
        bench.cluster.pull(host)
        bench.cut.add(host)


def bring_back(bench: Bench, host: str) -> None:
    """Have a host again."""
    if host in bench.cut:
        assert isinstance(bench.cluster, NamespaceCluster)
        bench.cluster.plug(host)
        bench.cut.discard(host)
    elif host not in bench.cluster.agents:
        bench.cluster.start_host(host)
    bench.wait(f"{host} joins", lambda: host in bench.there)


def measure_fault(bench: Bench, by: str) -> tuple[float, float, float]:
    """Lose a host of a job that trains on all: when the loss was seen, the next step, and the next new one."""
    bench.wait_for_share(3)
    bench.wait_for_steps(40)
    trail = read_trail(bench.trail)
    before, old = trail[-1].step, {one.start for one in trail}
    lost_s = time.time()
    lose(bench, HOSTS[-1], by)
    seen: list[float] = []

    def list_new() -> list[TrailStep]:
        return [one for one in read_trail(bench.trail) if one.start not in old]

    def is_on() -> bool:
        if not seen and HOSTS[-1] not in bench.there:
            seen.append(time.time())
        return bool(seen) and any(one.step > before for one in list_new())

    bench.wait("a new step", is_on)
    on_s, new_s = list_new()[0].at_s, next(one.at_s for one in list_new() if one.step > before)
    bring_back(bench, HOSTS[-1])
    return seen[0] - lost_s, on_s - lost_s, new_s - lost_s


def list_pauses(bench: Bench) -> list[float]:
    """The pauses of all resizes in place, in ascending order."""
    events = [one for one in bench.reconciler.store.events(bench.job) if one.kind == "resized"]
    return sorted(float(one.data["pause_s"]) for one in events if "pause_s" in one.data)


def disturb(bench: Bench, chance: random.Random) -> str:
    """One random fault, join or leave; at least one host is left alone."""
    there, gone = bench.there, [host for host in HOSTS if host not in bench.there]
    if gone and (len(there) == 1 or chance.random() < 0.5):
        host = chance.choice(gone)
        bring_back(bench, host)
        return f"join {host}"
    host = chance.choice(there)
    what = chance.choice(["kill", "drain", "cut"] if isinstance(bench.cluster, NamespaceCluster) else ["kill", "drain"])
    if what == "drain":
        agent = bench.cluster.agents.pop(host)
        agent.terminate()
        bench.wait(f"the agent of {host} ends", lambda: agent.poll() is not None)
    else:
        lose(bench, host, what)
    bench.wait(f"{host} goes", lambda: host not in bench.there)
    return f"{what} {host}"


def judge(bench: Bench) -> list[str]:
    """What is wrong with a run that has ended."""
    bench.wait("its end", lambda: not bench.record.active, 900.0)
    problems = find_overlaps(read_trail(bench.trail))
    checkpoints = bench.reconciler.context.state_dir.checkpoints(bench.job)
    unnamed = [path.name for path in checkpoints.glob("step-*") if "-g" not in path.name]
    if unnamed or not any(checkpoints.glob("step-*")):
        problems.append(f"checkpoints do not name who wrote them: {unnamed or 'there are none'}")
    if (bench.record.state, bench.record.step) != ("succeeded", bench.steps):
        problems.append(f"it ended as {bench.record.state} at step {bench.record.step}: {bench.record.reason}")
    else:
        plain = train_plainly(bench.work, (), bench.folder / "plain")
        if hash_weights(checkpoints) != plain:
            problems.append("its weights are not those of a run by itself")
    return problems


def run_faults(count: int, every_s: float) -> list[str]:
    """Lose hosts one at a time, and print what each cost."""
    kinds = ["kill", *(["cut"] if can_make_networks() else [])]
    with open_bench(1200 * count) as bench:
        bench.submit(0.01, every_s)
        print(f"{'fault':>8} {'seen s':>8} {'on s':>8} {'new s':>8}")
        for by in kinds * count:
            seen_s, on_s, new_s = measure_fault(bench, by)
            print(f"{by:>8} {seen_s:8.2f} {on_s:8.2f} {new_s:8.2f}", flush=True)
        problems, pauses = judge(bench), list_pauses(bench)
        if pauses:
            print(
                f"{len(pauses)} resizes in place across hosts: pause median {pauses[len(pauses) // 2]:.3f} s, ", end=""
            )
            print(f"longest {pauses[-1]:.3f} s")
        print(f"{bench.record.lost_steps} steps trained again after {count * len(kinds)} losses")
    return problems


def run_chaos(count: int, seed: int, every_s: float) -> list[str]:
    """Random faults in one run."""
    chance = random.Random(seed)
    with open_bench(250 * count) as bench:
        bench.submit(0.03, every_s)
        bench.wait_for_share(3)
        done = 0
        while done < count and bench.record.active:
            bench.wait_for_steps(chance.randint(1, 60))
            print(f"{done + 1:3d} at step {bench.record.step}: {disturb(bench, chance)}", flush=True)
            done += 1
        for host in HOSTS:
            if host not in bench.there:
                bring_back(bench, host)
        problems = judge(bench)
        starts = len({one.start for one in read_trail(bench.trail)})
        print(f"seed {seed}: {done} disturbances, {starts} starts, {bench.record.lost_steps} steps trained again")
        for event in bench.reconciler.store.events(bench.job):
            if event.kind in ("faulted", "drain_forced"):
                print(f"  {event.kind}: {event.sentence[:140]}")
    return problems if done == count else [*problems, f"the job ended after {done} of {count} disturbances"]


def main() -> int:
    """Measure, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=3)
    parser.add_argument("--chaos", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between checkpoints")
    given = parser.parse_args()
    print("network namespaces" if can_make_networks() else "loopback: no cable can be pulled")
    problems = run_faults(given.faults, given.every) if given.faults else []
    problems += run_chaos(given.chaos, given.seed, given.every) if given.chaos else []
    for problem in problems:
        print(f"WRONG: {problem}")
    print("bits equal, nothing twice" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
