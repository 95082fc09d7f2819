"""Deadlines met on a mixed cluster: cluster01 on 64 A100 and 64 T4, beside the A100 alone and jobs bound to one type.

    python -m benchmarks.mixed_deadlines --data DIR [--speeds 0.15,0.25,0.4] [--trace cluster01]

A T4 runs every job at a fraction of an A100's speed. Odd rows are D2: they may change types and mix them (at x1.0 for
bert and gpt2, x2.6 slower for convolution models); even rows are D1 and stay on the type they start on. Beside
`springtide`: (a) it alone on the A100 half; (b) with every job bound to one type when it arrives, in two ways: the
slowest that meets the deadline alone, and by turns in proportion to the devices' speeds. (Bound to the fastest is (a).)
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from springtide.core.curves import Curve
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import Job
from springtide.core.typed_curves import TypedCurves
from springtide.policies import find_policy
from springtide.simulator.csv_cells import read_rows
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport
from springtide.simulator.traces import Trace
from springtide.throughput.blends import mix_curves

FAST, SLOW = "a100", "t4"
HALF, WHOLE = "8x8:a100", "8x8:a100,8x8:t4"
ATTENTION = frozenset({"bert", "gpt2"})
CONVOLUTION_SLOWDOWN = 2.6  # EasyScale: D1+D2 over D1, mean of the convolution models


def main() -> None:
    """Print a table per speed of the T4."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--speeds", default="0.25,0.15,0.4", help="speeds of a T4 beside an A100")
    parser.add_argument("--trace", default="cluster01")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    args = parser.parse_args()
    data, console = require_data(args.data), Console(width=120)
    layout = "{:>6} {:34} {:>6} {:>9} {:>5} {:>9} {:>8}"
    console.print(layout.format("t4", "policy", "dsr", "admitted", "late", "rescales", "cpu s"), style="bold")
    for speed in map(float, args.speeds.split(",")):
        for name, report in run_all(data, args.trace, speed, args.only):
            cells = (f"x{speed:g}", name, f"{report.dsr or 0.0:.4f}", str(report.admitted), str(report.late_admitted))
            console.print(layout.format(*cells, str(report.rescales), f"{report.cpu_s:.2f}"), highlight=False)


def run_all(data: Path, name: str, speed: float, only: str) -> Sequence[tuple[str, SimulationReport]]:
    """The reports of all ways, by their names."""
    cluster, half = parse_cluster(WHOLE), parse_cluster(HALF)
    trace = load_trace(data, name, half)
    models = read_models(data, name)
    mixed = retype(trace, cluster, lambda job: type_job(job, cluster, speed, models[job.id]))
    ways: dict[str, tuple[Trace, Cluster]] = {
        "springtide": (mixed, cluster),
        "(a) A100 half alone": (trace, half),
        "(b) bound: the slowest in time": (retype(mixed, cluster, lambda job: bind(job, find_slowest(job))), cluster),
        "(b) bound: by turns": (retype(mixed, cluster, lambda job: bind(job, take_turn(job, speed))), cluster),
    }
    find_policy("springtide").compile()  # however few its jobs are, what is timed is compiled
    return [(way, simulate(chosen, "springtide", where)) for way, (chosen, where) in ways.items() if only in way]


def read_models(data: Path, name: str) -> dict[str, str]:
    """The model of each job by its id."""
    path = next(data.glob(f"traces/*/{name}.csv"))
    (_, header), *rows = read_rows(path)
    column = next(k for k, cell in enumerate(header) if cell in ("model", "model_name"))
    return {cells[header.index("job_id")]: cells[column] for _, cells in rows}


def retype(trace: Trace, cluster: Cluster, change: Callable[[Job], TypedCurves]) -> Trace:
    """A trace whose jobs have these speeds by type."""
    return replace(trace, jobs=tuple(replace(job, typed=change(job)) for job in trace.jobs))


def type_job(job: Job, cluster: Cluster, speed: float, model: str) -> TypedCurves:
    """A job's speeds on both types: D2 in odd rows, D1 in even ones."""
    curves: dict[str, Curve] = {FAST: job.curve, SLOW: job.curve.scaled(speed)}
    slowdown = 1.0 if model in ATTENTION else CONVOLUTION_SLOWDOWN
    return mix_curves(curves, cluster.totals, slowdown if job.index % 2 else None)


def bind(job: Job, device_type: str) -> TypedCurves:
    """A job that runs on one type only."""
    assert job.typed is not None
    return TypedCurves({device_type: job.typed.curves[device_type]})


def find_slowest(job: Job) -> str:
    """The slow type if the job is in time alone there, else the fast one."""
    assert job.typed is not None
    alone = replace(job, curve=job.typed.curves[SLOW], typed=None)
    return SLOW if job.submit_s + alone.alone_s() <= job.deadline_s else FAST


def take_turn(job: Job, speed: float) -> str:
    """The slow type for every k-th job that is in time there, so that each type gets its part of the work."""
    every = round((1.0 + speed) / speed)
    return find_slowest(job) if job.index % every == 0 else FAST


if __name__ == "__main__":
    main()
