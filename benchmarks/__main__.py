"""Runs the benchmarks one after the other, each in a process of its own, and sums up.

    python -m benchmarks [--only NAME]... [--data DIR] [--list]

A benchmark that fails does not stop the others; the exit code is then 1. Those that need the public traces and tables
are skipped where neither --data nor $SPRINGTIDE_DATA names their folder. It measures nothing itself.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import perf_counter

VARIABLE = "SPRINGTIDE_DATA"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A module of this folder that can be run."""

    name: str
    needs_data: bool = False


BENCHMARKS = (
    Benchmark("decisions"),
    Benchmark("frameworks"),
    Benchmark("placement"),
    Benchmark("planner"),
    Benchmark("spot"),
    Benchmark("calibration"),
    Benchmark("constants", needs_data=True),
    Benchmark("trap_workloads"),
    Benchmark("deadlines", needs_data=True),
    Benchmark("mixed_deadlines", needs_data=True),
    Benchmark("heterogeneous", needs_data=True),
    Benchmark("colocation", needs_data=True),
    Benchmark("windows", needs_data=True),
    Benchmark("baselines", needs_data=True),
    Benchmark("published_edf", needs_data=True),
    Benchmark("throughput_accuracy", needs_data=True),
    Benchmark("throughput_scripts"),
    Benchmark("training_equality"),
    Benchmark("training_overhead"),
    Benchmark("training_determinism"),
    Benchmark("training_memory"),
    Benchmark("training_sharding"),
    Benchmark("training_checkpoint"),
    Benchmark("training_rescale"),
    Benchmark("elasticity"),
    Benchmark("executor"),
    Benchmark("hosts"),
    Benchmark("live_load"),
    Benchmark("readers"),
    Benchmark("logs"),
    Benchmark("fetch"),
    Benchmark("dashboard"),
    Benchmark("submit_walk"),
    Benchmark("live_workloads"),
    Benchmark("chaos"),
    Benchmark("control_scale"),
    Benchmark("scale"),
    Benchmark("takeover"),
)


class Outcome(StrEnum):
    """How a benchmark ended."""

    DONE = "done"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Ending:
    """A benchmark that ended, how, and after how long."""

    name: str
    outcome: Outcome
    took_s: float = 0.0


Launch = Callable[[str], int]  # runs a benchmark by name; returns its exit code


def launch_module(name: str) -> int:
    """Run `python -m benchmarks.NAME` with our own output; returns its exit code."""
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode


def run_all(chosen: Iterable[Benchmark], data: Path | None, launch: Launch = launch_module) -> list[Ending]:
    """Every benchmark in turn, whatever became of those before."""
    return [run_one(benchmark, data, launch) for benchmark in chosen]


def run_one(benchmark: Benchmark, data: Path | None, launch: Launch) -> Ending:
    """One benchmark under its heading."""
    print(f"\n=== {benchmark.name} ===", flush=True)
    if benchmark.needs_data and (data is None or not data.is_dir()):
        print(f"skipped: needs the public traces and tables; name their folder with --data DIR or ${VARIABLE}")
        return Ending(benchmark.name, Outcome.SKIPPED)
    started_s = perf_counter()
    code = launch(benchmark.name)
    return Ending(benchmark.name, Outcome.FAILED if code else Outcome.DONE, perf_counter() - started_s)


def choose(names: list[str]) -> list[Benchmark]:
    """The benchmarks of these names, all if there are none."""
    known = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown benchmark {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names] or list(BENCHMARKS)


def print_summary(endings: list[Ending]) -> None:
    """One line per benchmark."""
    print("\n=== summary ===")
    for ending in endings:
        print(f"{ending.name:20} {ending.outcome:8} {ending.took_s:8.1f} s")


def main(arguments: list[str] | None = None) -> int:
    """Run what was chosen; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="may be given several times")
    parser.add_argument("--data", type=Path, default=os.environ.get(VARIABLE), metavar="DIR")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args(arguments)
    chosen = choose(options.only)
    if options.list:
        print("\n".join(benchmark.name for benchmark in chosen))
        return 0
    if options.data:
        os.environ[VARIABLE] = str(options.data)
    endings = run_all(chosen, options.data)
    print_summary(endings)
    return int(any(ending.outcome is Outcome.FAILED for ending in endings))


if __name__ == "__main__":
    raise SystemExit(main())
