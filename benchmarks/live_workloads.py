"""Seeded live workloads with real training processes: no admitted job late, and the simulator agrees.

Run `python -m benchmarks.live_workloads --workloads 50`. Each workload submits 4-6 jobs of 2-10 device-seconds to a
real server on 2 devices. What was admitted, met and late is counted; the simulator then replays the recorded arrivals,
speeds and costs under the same policy. Load from outside is sampled; a workload with more than 10 % of it is pooled
apart.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psutil

from springtide.control.client import Client
from springtide.control.homes import Home
from springtide.control.server import start_background
from springtide.control.speeds import plan_curve, plan_overhead
from springtide.control.store import Store
from springtide.core.devices import Cluster, NodeGroup
from springtide.core.jobs import Job, JobId
from springtide.policies import decide, find_policy
from springtide.simulator.metrics import Run
from springtide.simulator.runs import replay

DEVICES = 2
OUTSIDE_LOAD = 0.10
STEP_S = 0.04
TRAIN = """
import sys, time
import torch
import springtide

steps = int(sys.argv[1])
run = springtide.init(logical_workers=2, seed=0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
data = torch.utils.data.TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, data, batch_size=4)
for epoch in run.steps(steps):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step(); optimizer.zero_grad(); scheduler.step()
        time.sleep({step_s})
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One workload: what was asked, admitted, met, late and lost; live and in the simulator."""

    seed: int
    deadlines: int
    admitted: int
    met: int
    late: int
    lost: int
    simulated_met: int
    outside_load: float


def main() -> None:
    """Run workloads and print a table and the pooled shares of deadlines met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.workloads)
    with tempfile.TemporaryDirectory(prefix="springtide-workloads-") as folder:
        results = run_all(Path(folder), list(seeds))
    report(results, given.json)


def run_all(folder: Path, seeds: list[int]) -> list[Result]:
    """Every workload on one server, one after the other; its code is measured once before."""
    home = Home(folder / "home")
    work = folder / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAIN.replace("{step_s}", str(STEP_S)))
    start_background(home, ("--devices", str(DEVICES), "--port", "0"))
    with Client(home=home.root) as client:
        try:
            for steps in STEPS:
                client.wait(client.submit(write_job(work, steps, "10m"))["id"])
            return [run_workload(client, home, work, seed) for seed in seeds]
        finally:
            client.stop()


STEPS = (50, 80, 120)


def write_job(work: Path, steps: int, deadline: str | None) -> dict[str, Any]:
    """A job of so many steps."""
    told: dict[str, Any] = {"run": f"python train.py {steps}", "workdir": str(work), "checkpoint": {"every": "2s"}}
    return told | ({"deadline": deadline} if deadline else {})


def run_workload(client: Client, home: Home, work: Path, seed: int) -> Result:
    """Submit the jobs of one seed at their times, wait for all, count, and replay in the simulator."""
    random = Random(seed)
    ids: list[str] = []
    watch = OutsideLoad()
    for _ in range(random.randint(4, 6)):
        steps = random.choice(STEPS)
        alone_s = 2 * steps * STEP_S / DEVICES + 4.0
        deadline = None if random.random() < 0.2 else f"{alone_s * random.uniform(0.5, 2.5):.1f}s"
        ids.append(client.submit(write_job(work, steps, deadline), wait=False)["id"])
        time.sleep(random.expovariate(1.0) * 2.0)
    for job_id in ids:
        client.wait(job_id)
    return count(client, home, ids, seed, watch.share())


class OutsideLoad:
    """The share of this machine's time that processes outside of ours took since the beginning."""

    def __init__(self) -> None:
        self.own = own_cpu_s()
        self.all = all_cpu_s()
        self.at_s = time.monotonic()

    def share(self) -> float:
        """Busy time that was not ours, by all time there was."""
        span_s = (time.monotonic() - self.at_s) * (psutil.cpu_count() or 1)
        return max(0.0, (all_cpu_s() - self.all) - (own_cpu_s() - self.own)) / span_s


def all_cpu_s() -> float:
    """Busy seconds of all processors."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def own_cpu_s() -> float:
    """Seconds used by processes of this benchmark's state directory, ended ones included through their parents."""
    total = 0.0
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        if "springtide-workloads-" in " ".join(process.info["cmdline"] or []) and process.info["cpu_times"]:
            times = process.info["cpu_times"]
            total += times.user + times.system + times.children_user + times.children_system
    return total


def count(client: Client, home: Home, ids: list[str], seed: int, outside: float) -> Result:
    """What became of the jobs of one workload."""
    jobs = [client.job(job_id) for job_id in ids]
    promised = [job for job in jobs if job["promised"]]
    return Result(
        seed,
        sum(not job["best_effort"] for job in jobs),
        len(promised),
        sum(bool(job["met"]) for job in promised),
        sum(job["met"] is False for job in promised),
        sum(job["state"] not in ("succeeded", "declined") for job in jobs),
        simulate(home, ids),
        round(outside, 3),
    )


def simulate(home: Home, ids: list[str]) -> int:
    """Deadlines met when the simulator replays the recorded arrivals, with the speeds and costs that plans count on."""
    store = Store(f"sqlite:///{home.database}")
    records = [record for record in (store.job(job_id) for job_id in ids) if record is not None]
    origin_s = min(record.submitted_s for record in records)
    jobs = []
    for index, record in enumerate(records):
        speed = store.speed(record.speed_key)
        assert speed is not None, "every script was measured before"
        jobs.append(
            Job(
                JobId(record.id),
                index,
                record.submitted_s - origin_s,
                float(record.total_steps or speed.total_steps or 1),
                plan_curve(speed, (1, 2)),
                float("inf") if record.deadline_s is None else record.deadline_s - origin_s,
                overhead=plan_overhead(speed),
            )
        )
    store.close()
    cluster = Cluster((NodeGroup(1, DEVICES, "cpu"),))
    run = Run("recorded", "springtide", tuple(jobs), cluster)
    outcome = replay(run, partial(decide, find_policy("springtide")))
    return outcome.met + outcome.met_unpromised


def report(results: list[Result], as_json: bool) -> None:
    """The table, and the pooled figures of the quiet workloads."""
    quiet = [result for result in results if result.outside_load <= OUTSIDE_LOAD]
    pooled = {
        name: {
            "workloads": len(chosen),
            "late": sum(result.late for result in chosen),
            "lost": sum(result.lost for result in chosen),
            "live_dsr": sum(result.met for result in chosen) / max(1, sum(result.deadlines for result in chosen)),
            "simulated_dsr": sum(result.simulated_met for result in chosen)
            / max(1, sum(result.deadlines for result in chosen)),
        }
        for name, chosen in (("quiet", quiet), ("all", results))
    }
    if as_json:
        print(json.dumps({"schema": 1, "pooled": pooled, "workloads": [asdict(one) for one in results]}, indent=2))
        return
    print("seed deadlines admitted met late lost simulated-met outside-load")
    for one in results:
        print(
            f"{one.seed:4} {one.deadlines:9} {one.admitted:8} {one.met:3} {one.late:4} {one.lost:4} "
            f"{one.simulated_met:13} {one.outside_load:12.2f}"
        )
    print(json.dumps(pooled, indent=2))


if __name__ == "__main__":
    main()
