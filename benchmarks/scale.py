"""The cost of deciding as workloads grow: rigid gangs, more of them than fit, and one live decision on a large cluster.

    python -m benchmarks.scale [--policies springtide,elasticflow] [--jobs 1000,5000,20000] [--devices 128,1024]
    python -m benchmarks.scale --sizes 50000x8192 [--policies springtide]
    python -m benchmarks.scale --live [--policies springtide]

The family: jobs of one permitted share each, more of them than the cluster can do, deadlines of up to eight times the
duration, so that many wait. The first table keeps the cluster and lets the jobs grow, the second keeps the jobs and
lets the cluster grow; growth is the CPU per job against the row above. `--sizes` runs these jobs x devices instead, and
says every 1,000 jobs how far it is. `--live` fills 1,024 x 8 devices with 5,000 jobs
that run or wait, and times the decisions on those that come after them, with garbage collected as on a server.
"""

import argparse
import sys
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median
from time import process_time

from springtide.control.memory_sweeps import shorten_sweeps
from springtide.core.curves import Curve
from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.policies import decide, find_policy
from springtide.simulator.engine import Observer, Simulation
from springtide.simulator.front import simulate, warm_up
from springtide.simulator.reports import MetricsObserver, SimulationReport
from springtide.simulator.traces import Trace

PAUSE = Overhead(base_s=2.0, per_doubling_s=2.0)
SHARES = (1, 2, 4, 8, 16, 32)
ODDS = (0.5, 0.15, 0.12, 0.15, 0.05, 0.03)
LOAD = 1.5
NODE = 8
JOBS = (1_000, 5_000, 20_000, 50_000)
DEVICES = (128, 512, 2_048, 8_192, 16_384)
FIXED_DEVICES = 1_024
FIXED_JOBS = 5_000
LIVE_JOBS = 5_000
LIVE_CLUSTER = "1024x8:a100"
LIVE_BAR_MS = 200.0
BATCH = 100  # jobs of the crowd that come at once
ARRIVALS = 20
TOLD = 1_000  # jobs after which progress is told


def draw(jobs: int, devices: int, seed: int = 0) -> Trace:
    """So many rigid jobs, submitted as fast as makes the load on so many devices."""
    random = Random(seed)
    sketches = []
    for _ in range(jobs):
        share = random.choices(SHARES, ODDS)[0]
        duration_s = 60.0 * 10.0 ** random.uniform(0.0, 2.5)
        sketches.append((share, duration_s, random.uniform(1.05, 8.0), random.expovariate(1.0)))
    gap_s = sum(share * duration_s for share, duration_s, *_ in sketches) / jobs / (LOAD * devices)
    made, now_s = [], 0.0
    for index, (share, duration_s, factor, gap) in enumerate(sketches):
        now_s += gap * gap_s
        curve = Curve((share,), (1.0,))
        deadline_s = now_s + factor * duration_s
        made.append(Job(JobId(f"job-{index}"), index, now_s, duration_s, curve, deadline_s, share, PAUSE))
    return Trace(f"rigid:{jobs}", tuple(made))


def main() -> None:
    """Print both tables, or the time of live decisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="springtide")
    parser.add_argument("--jobs", default=",".join(map(str, JOBS)))
    parser.add_argument("--devices", default=",".join(map(str, DEVICES)))
    parser.add_argument("--sizes", default="", help="JOBSxDEVICES, several joined by commas: these runs only")
    parser.add_argument("--live", action="store_true")
    args = parser.parse_args()
    for policy in args.policies.split(","):
        if args.live:
            print_live(policy)
            continue
        if args.sizes:
            print_growth(policy, [parse_size(size) for size in args.sizes.split(",")])
            continue
        print_growth(policy, [(int(jobs), FIXED_DEVICES) for jobs in args.jobs.split(",") if jobs])
        print_growth(policy, [(FIXED_JOBS, int(devices)) for devices in args.devices.split(",") if devices])


def parse_size(text: str) -> tuple[int, int]:
    """Jobs and devices of `50000x8192`."""
    jobs, _, devices = text.partition("x")
    if not (jobs.isdecimal() and devices.isdecimal() and int(jobs) and int(devices) and int(devices) % NODE == 0):
        raise SystemExit(f"size {text!r} must be JOBSxDEVICES with devices in nodes of {NODE}, as 50000x8192")
    return int(jobs), int(devices)


@dataclass(slots=True)
class Progress(Observer):
    """Says on stderr how far a run is: jobs that came and ended, and the CPU of the last thousand that came."""

    jobs: int
    came: int = 0
    ended: int = 0
    began_s: float = field(default_factory=process_time)
    last_s: float = field(default_factory=process_time)

    def arrived(self, job: Job, now_s: float) -> None:
        """Count an arrival, and say how far it is after each thousand."""
        self.came += 1
        if self.came % TOLD == 0:
            cpu_s = process_time()
            told = f"{self.came} of {self.jobs} jobs came, {self.ended} ended; {cpu_s - self.began_s:.1f} s of CPU"
            print(f"{told}, {cpu_s - self.last_s:.1f} for the last {TOLD}", file=sys.stderr, flush=True)
            self.last_s = cpu_s

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """Count an end."""
        self.ended += 1


def print_growth(policy: str, sizes: list[tuple[int, int]]) -> None:
    """One row for each (jobs, devices), printed as soon as it is measured."""
    print(f"{'policy':14} {'jobs':>7} {'devices':>8} {'met':>6} {'late':>5} {'cpu s':>8} {'ms/job':>8} {'growth':>7}")
    before = 0.0
    for jobs, devices in sizes:
        report = simulate(draw(jobs, devices), policy, f"{devices // NODE}x{NODE}:a100", (Progress(jobs),))
        each_ms = 1000.0 * report.cpu_s / jobs
        growth = f"{each_ms / before:.2f}" if before else "-"
        print(
            f"{policy:14} {jobs:7} {devices:8} {show(report)} {report.cpu_s:8.2f} {each_ms:8.3f} {growth:>7}",
            flush=True,
        )
        before = each_ms


def show(report: SimulationReport) -> str:
    """Deadlines met, promised or not, and promises broken."""
    return f"{(report.met + report.met_unpromised) / report.jobs:6.3f} {report.late_admitted:5}"


def print_live(policy: str) -> None:
    """The milliseconds of decisions on one newcomer each, beside 5,000 jobs that are not finished."""
    shorten_sweeps()  # as a server does
    times_ms = time_arrivals(policy, LIVE_CLUSTER, LIVE_JOBS)
    figures = f"median {median(times_ms):.1f} ms, worst {max(times_ms):.1f} ms (bar {LIVE_BAR_MS:g})"
    print(f"{policy:14} {LIVE_JOBS} jobs on {LIVE_CLUSTER}: {figures}")


def time_arrivals(policy: str, cluster: str, jobs: int) -> list[float]:
    """The milliseconds of decisions on newcomers, once so many jobs run or wait: the last of them come one by one."""
    machines, entry = parse_cluster(cluster), find_policy(policy)
    warm_up(entry)
    drawn = draw(jobs + ARRIVALS, machines.total).jobs
    crowd = [delay(job, float(index // BATCH)) for index, job in enumerate(drawn[:jobs])]
    late = [delay(job, crowd[-1].submit_s + 1 + position) for position, job in enumerate(drawn[jobs:])]
    times_ms: list[float] = []

    def timed(now_s: float, snapshot: Snapshot) -> Decision:
        started_s = process_time()
        decision = decide(entry, now_s, snapshot)
        if now_s >= late[0].submit_s and snapshot.changes.arrived:
            times_ms.append(1000.0 * (process_time() - started_s))
        return decision

    Simulation(machines, timed, MetricsObserver()).run([*crowd, *late], until_s=late[-1].submit_s)
    return times_ms


def delay(job: Job, submit_s: float) -> Job:
    """The same job submitted at another time."""
    return replace(job, submit_s=submit_s, deadline_s=job.deadline_s + submit_s - job.submit_s)


if __name__ == "__main__":
    main()
