"""Distance to the offline optimum: short windows of real traces at four loads, each policy against the MILP bound.

    python -m benchmarks.windows --data DIR [--loads 0.8,1.0,1.3,2.0] [--windows 20] [--factors 1.0,3.0]

load = requested device-seconds / (G * (last deadline - first submission)), G a whole number >= 4. The policies pay for
rescaling, the bound does not. `--factors` draws the deadlines anew, as multiples of the duration.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from experiments.optimum import Bound, upper_bound
from rich.console import Console
from rich.table import Table

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from springtide.core.devices import Cluster, NodeGroup, parse_cluster
from springtide.core.jobs import Job
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate
from springtide.simulator.traces import Trace
from springtide.throughput.overheads import parse_overhead

TRACES = ("195job", "cluster01", "cluster02", "cluster08", "cluster10", "philly_103959")
LENGTHS = (15, 40)
LEAST_DEVICES = 4
POLICIES = ("elasticflow", "springtide", "springtide-flexible")
NODE = 8


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive jobs of a trace and a cluster on which they make a given load."""

    jobs: tuple[Job, ...]
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class Result:
    """Deadlines met on one window as shares of its jobs: by each policy, and the offline bound."""

    met: dict[str, float]
    lower: float
    upper: float


def main() -> None:
    """Measure every load and print what each loses, and to what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--loads", default="0.8,1.0,1.3,2.0")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--factors", default="", help="deadline factors LOW,HIGH; default: as in the traces")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of the MILP per window")
    args = parser.parse_args()
    data, policies = require_data(args.data), args.policies.split(",")
    sources = load_sources(data, args.factors, args.seed)
    table = Table("load", *policies, "optimum", "price of promising", "price of not knowing", "closed", box=None)
    for load in map(float, args.loads.split(",")):
        windows = draw_windows(sources, load, args.windows, Random(f"{args.seed} {load}"))
        results = [measure(window, policies, args.time_limit) for window in show(windows, load)]
        table.add_row(f"{load:g}", *summarise(results, policies))
    Console(width=150).print(table)


def load_sources(data: Path, factors: str, seed: int) -> list[tuple[Job, ...]]:
    """The jobs of each trace, with deadlines drawn anew if factors are given."""
    large = parse_cluster("128x8:a100")
    sources = [load_trace(data, name, large).jobs for name in TRACES]
    if not factors:
        return sources
    low, high = map(float, factors.split(","))
    random = Random(seed)
    return [tuple(stretch(job, random.uniform(low, high)) for job in jobs) for jobs in sources]


def stretch(job: Job, factor: float) -> Job:
    """The job with a deadline of so many times its duration at the requested share."""
    return replace(job, deadline_s=job.submit_s + factor * job.work / job.curve.rate(job.requested))


def draw_windows(sources: Sequence[tuple[Job, ...]], load: float, count: int, random: Random) -> Iterator[Window]:
    """Windows at a load; those that would need fewer than four devices are drawn again."""
    while count:
        jobs = random.choice(sources)
        length = random.randint(*LENGTHS)
        start = random.randrange(len(jobs) - length + 1)
        window = jobs[start : start + length]
        devices = round(count_device_seconds(window) / (load * measure_span_s(window)))
        if devices >= LEAST_DEVICES:
            yield build_window(window, devices)
            count -= 1


def count_device_seconds(jobs: Sequence[Job]) -> float:
    """Requested device-seconds."""
    return sum(job.requested * job.work / job.curve.rate(job.requested) for job in jobs)


def measure_span_s(jobs: Sequence[Job]) -> float:
    """From the first submission to the last deadline."""
    return max(job.deadline_s for job in jobs) - jobs[0].submit_s


def build_window(jobs: Sequence[Job], devices: int) -> Window:
    """The jobs, numbered anew, on whole nodes and one smaller node for the rest."""
    whole, rest = divmod(devices, NODE)
    groups = [NodeGroup(whole, NODE, "a100")] if whole else []
    cluster = Cluster((*groups, *([NodeGroup(1, rest, "a100")] if rest else ())))
    overhead = parse_overhead("elasticflow", devices)
    fitted = (
        replace(job, index=index, curve=job.curve.capped(devices), overhead=overhead) for index, job in enumerate(jobs)
    )
    return Window(tuple(fitted), cluster)


def show(windows: Iterator[Window], load: float) -> Iterator[Window]:
    """The windows, named on stderr as they come."""
    for number, window in enumerate(windows, start=1):
        print(
            f"load {load:g}, window {number}: {len(window.jobs)} jobs, {window.cluster.total} devices", file=sys.stderr
        )
        yield window


def measure(window: Window, policies: Sequence[str], time_limit_s: float) -> Result:
    """One window under every policy, and its bound."""
    count = len(window.jobs)
    trace = Trace("window", window.jobs)
    with mute_solvers():
        reports = {policy: simulate(trace, policy, window.cluster) for policy in policies}
        bound: Bound = upper_bound(window.jobs, window.cluster, time_limit_s)
    met = {policy: (report.met + report.met_unpromised) / count for policy, report in reports.items()}
    best = max(bound.lower / count, *met.values())
    assert best <= bound.upper / count, f"a policy met {best:.3f} of the deadlines, more than the bound"
    return Result(met, best, bound.upper / count)


def summarise(results: Sequence[Result], policies: Sequence[str]) -> list[str]:
    """The cells of one load: means with 95 % intervals, then the two prices and the distance closed."""
    means = {policy: fmean(result.met[policy] for result in results) for policy in policies}
    cells = [show_mean([result.met[policy] for result in results]) for policy in policies]
    lower, upper = fmean(result.lower for result in results), fmean(result.upper for result in results)
    cells.append(f"{upper:.3f}" if lower == upper else f"{lower:.3f} to {upper:.3f}")
    if not set(POLICIES) <= set(policies):
        return [*cells, "-", "-", "-"]
    firm, ours, free = (means[policy] for policy in POLICIES)
    closed = f"{(ours - firm) / (free - firm):.2f}" if free > firm else "-"
    return [*cells, f"{free - ours:+.3f}", f"{upper - free:+.3f}", closed]


def show_mean(values: Sequence[float]) -> str:
    """Mean and 95 % interval of the mean."""
    spread = 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{fmean(values):.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
