"""Every tuned constant of the policy, and what half as much and half as much again of it does.

    python -m benchmarks.constants [--data DIR] [--only THRIFT] [--rows 195job] [--record FILE] [--list]

`--list` prints the constants and what they do. Runs take long: those in --record are not made again, so that a run that
was broken off goes on where it ended. Differences against the values in the code are in points of deadlines met, or,
where the jobs of a row have no deadlines, in percent of their mean completion (with a % sign: less is better). A
constant is varied on the rows where it can do something; one that is compiled in, in a process of its own with the
planner compiled anew.
"""

import argparse
import ast
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

import springtide
from benchmarks.deadlines import TableSetting, run_workload
from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from benchmarks.kept_runs import KeptRuns
from benchmarks.mixed_deadlines import HALF, WHOLE, read_models, retype, type_job
from springtide.core.devices import parse_cluster
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead

POLICY = "springtide"
FACTORS = (0.5, 1.5)
SLOW_SPEED = 0.25  # of a T4 beside an A100, on the mixed cluster
TURNS = ("ann", "ben", "ann", "cat", "ann", "ben", "ann")  # who hands in the jobs of a row with several users
LONGEST_S = 3600.0  # of CPU for one run


class Kind(StrEnum):
    """What the jobs of a row are like: what a constant can do something to."""

    DEADLINES = "deadlines"
    BEST_EFFORT = "best effort"
    BOTH = "both"  # half of the jobs with a deadline
    USERS = "users"  # best effort, of several users
    MIXED = "mixed"  # deadlines, on two device types


@dataclass(frozen=True, slots=True)
class Row:
    """A workload on a cluster."""

    workload: str
    cluster: str
    kind: Kind = Kind.DEADLINES

    @property
    def name(self) -> str:
        """As at the head of its column."""
        short = self.workload.rpartition("/")[2].partition(",")[0][:8] if self.kind is Kind.DEADLINES else self.kind
        return f"{short} {self.cluster.split(':')[0]}"


ROWS = (
    Row("195job", "16x8:a100"),
    Row("195job", "4x8:a100"),
    Row("elasticVpollux_e", "4x4:t4"),
    Row("cluster10", "8x8:a100"),
    Row("rubick/base-deadlines", "8x8:a100"),
    Row("cluster01", "16x8:a100"),
    Row("philly_103959", "4x8:a100"),
    Row("jobs=200,gap=600,best_effort=1", "4x8:a100", Kind.BEST_EFFORT),
    Row("jobs=200,gap=600,best_effort=0.5", "4x8:a100", Kind.BOTH),
    Row("jobs=200,gap=600,best_effort=1", "4x8:a100", Kind.USERS),
    Row("195job", WHOLE, Kind.MIXED),
)
PLANNING, FORECAST = "springtide.policies.planning", "springtide.policies.planning.forecast"
ROOM, SHARING = "springtide.placement.migration", f"{PLANNING}.best_effort"
DUE = (Kind.DEADLINES, Kind.BOTH)
FREELY = (Kind.BEST_EFFORT, Kind.BOTH)


@dataclass(frozen=True, slots=True)
class Constant:
    """A tuned number: the module that sets it, what it does, and on what kinds of rows; of a share also its bound."""

    name: str
    module: str
    does: str
    kinds: tuple[Kind, ...] = DUE
    whole: bool = False
    most: float | None = None
    is_compiled: bool = False

    @property
    def value(self) -> Any:
        """What it is in the code: a number, or several."""
        return getattr(import_module(self.module), self.name)

    def vary(self, factor: float) -> Any:
        """Its value times a factor, within its bound and whole where it counts something."""
        if isinstance(self.value, tuple):
            return tuple(max(1, round(one * factor)) for one in self.value)
        value = max(1, round(self.value * factor)) if self.whole else self.value * factor
        return value if self.most is None else min(value, self.most)


CONSTANTS = (
    Constant("PATIENCE", "springtide.policies.springtide", "pauses that growth must save beyond its own"),
    Constant("FEW_WAIT", "springtide.policies.springtide", "waiting up to which all is planned again", whole=True),
    Constant("FOLLOWED", "springtide.placement.feasibility", "starts to come that are checked on devices", whole=True),
    Constant("THRIFT", f"{PLANNING}.open_answers", "cost of a plan on what is left, in what the job needs alone"),
    Constant("ORDERS", f"{PLANNING}.open_answers", "orders in which all are planned again for a newcomer", whole=True),
    Constant("LAST_S", f"{PLANNING}.open_answers", "seconds before its end when a job that runs is promised it"),
    Constant(
        "MAX_SEGMENTS",
        f"{PLANNING}.columns",
        "changes of share in one plan (compiled in)",
        whole=True,
        is_compiled=True,
    ),
    Constant(
        "HOPE_S", f"{PLANNING}.plan_making", "seconds a level may miss by and be tried (compiled in)", is_compiled=True
    ),
    Constant("REMEMBERED", FORECAST, "arrivals that the forecast rests on", whole=True),
    Constant("FEW", FORECAST, "arrivals before it says anything", whole=True),
    Constant("CROWDED", FORECAST, "share of the cluster from which a due job is declined for cheaper ones", most=1.0),
    Constant("CALM", FORECAST, "share of the cluster up to which nobody is held back", most=1.0),
    Constant("AGAIN_S", f"{PLANNING}.seats", "seconds after which those that gave way are seated", (Kind.BOTH,)),
    Constant("SEATINGS", f"{PLANNING}.drafts", "seatings of urgent jobs tried one by one", (Kind.BOTH,), whole=True),
    Constant("LITTLE_SLACK", f"{PLANNING}.seats", "slack below which promised jobs go first", (Kind.BOTH,)),
    Constant("STARVED_S", SHARING, "seconds of waiting after which a best-effort job goes first", FREELY),
    Constant("LEAST_SCALING", SHARING, "least exponent of the speed-up that growth counts with", FREELY, most=0.9),
    Constant("MOST_SCALING", SHARING, "most exponent of the speed-up that growth counts with", FREELY, most=0.99),
    Constant("HALF_LIFE_S", SHARING, "seconds after which use counts half in fair sharing", (Kind.USERS,)),
    Constant("_BREADTH", ROOM, "ways to make room: for a job, for whom it evicts, for whom these evict"),
    Constant("_TRIES", ROOM, "ways to make room in all", whole=True),
    Constant("_ENOUGH", ROOM, "nodes with free devices that are looked at to make room", whole=True),
    Constant("ASKERS", "springtide.policies.pools.joining", "jobs for which others change pools", (Kind.MIXED,), True),
    Constant("DONORS", "springtide.policies.pools.transfers", "jobs asked to make way for one", (Kind.MIXED,), True),
)


def main() -> None:
    """Print the table of sensitivities, or the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--only", default="", help="constants whose name contains this")
    parser.add_argument("--rows", default="", help="rows whose workload, cluster or kind contains this")
    parser.add_argument("--record", type=Path, help="where finished runs are kept (JSON lines)")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    args = parser.parse_args()
    console = Console(width=220)
    chosen = [constant for constant in CONSTANTS if args.only in constant.name and is_there(constant)]
    if args.list:
        for constant in chosen:
            console.print(f"{constant.name:14} {show(constant.value):>8}  {constant.does}", highlight=False)
        return
    rows = [row for row in ROWS if args.rows in f"{row.workload} {row.cluster} {row.kind}"]
    with TemporaryDirectory(prefix="springtide-constants-") as folder:
        bench = Bench(require_data(args.data), KeptRuns(args.record), Path(folder))
        print_table(console, bench, chosen, rows)


def is_there(constant: Constant) -> bool:
    """Whether the code still has it: one that was replaced by a derivation drops out of the list by itself."""
    try:
        return hasattr(import_module(constant.module), constant.name)
    except ModuleNotFoundError:
        return False


def show(value: Any) -> str:
    """A value in a few letters."""
    return "/".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the data is, where finished runs are kept, and where planners are compiled anew."""

    data: Path
    record: KeptRuns
    compiled: Path

    def measure(self, row: Row, constant: Constant | None, value: Any) -> float:
        """What a row gives with one constant changed."""
        key = json.dumps([row.workload, row.cluster, row.kind, constant.name if constant else "", value])
        kept: dict[str, float] = self.record.read()
        if key not in kept:
            kept[key] = self._run(row, constant, value)
            self.record.add(key, kept[key])
        return kept[key]

    def _run(self, row: Row, constant: Constant | None, value: Any) -> float:
        if constant is None or not constant.is_compiled:
            return run_with(self.data, row, constant, value)
        cache = self.compiled / f"{constant.name}-{show(value)}"
        with ProcessPoolExecutor(1, get_context("spawn"), compile_into, (cache,)) as pool:
            return pool.submit(run_with, self.data, row, constant, value).result()


def compile_into(cache: Path) -> None:
    """Have this process compile the planner into a folder of its own: what is kept does not know of constants."""
    os.environ["NUMBA_CACHE_DIR"] = str(cache)


def run_with(data: Path, row: Row, constant: Constant | None, value: Any) -> float:
    """What a row gives with one constant changed in this process."""
    with replaced(constant, value):
        return run(data, row)


@contextmanager
def replaced(constant: Constant | None, value: Any) -> Iterator[None]:
    """Another value of a constant in every module that has it."""
    if constant is None:
        yield
        return
    before = constant.value
    modules = [import_module(name) for name in list_readers(constant)]
    for module in modules:
        setattr(module, constant.name, value)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, constant.name, before)


def list_readers(constant: Constant) -> set[str]:
    """The module that sets a constant, those that import it from there, and those that import it from these."""
    readers, known = {constant.module}, 0
    while len(readers) > known:
        known = len(readers)
        readers |= {
            importer for importer, source, name in list_imports() if name == constant.name and source in readers
        }
    return readers


@cache
def list_imports() -> tuple[tuple[str, str, str], ...]:
    """Who imports what name from where, in the modules that decide."""
    root = Path(springtide.__file__).parent
    found = []
    for path in [*root.glob("policies/**/*.py"), *root.glob("placement/**/*.py")]:
        importer = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found += [(importer, node.module, alias.name) for alias in node.names]
    return tuple(found)


def run(data: Path, row: Row) -> float:
    """Deadlines met on a row, or mean seconds to completion; a broken promise is an error, whatever the constant."""
    with mute_solvers():
        report = replay(data, row)
    if report.late_admitted:
        raise SystemExit(f"{row.name}: {report.late_admitted} promises were broken; no constant may do that")
    return (report.avg_jct_s if report.dsr is None else report.dsr) or 0.0


def replay(data: Path, row: Row) -> SimulationReport:
    """The report of a row."""
    machines = parse_cluster(row.cluster)
    if row.kind is Kind.MIXED:
        trace, models = load_trace(data, row.workload, parse_cluster(HALF)), read_models(data, row.workload)
        mixed = retype(trace, machines, lambda job: type_job(job, machines, SLOW_SPEED, models[job.id]))
        return simulate(mixed, POLICY, machines)
    if row.kind is Kind.USERS:
        scenario = load_scenario(machines, data / "profiles", parse_overhead("elasticflow", machines.total))
        drawn = draw_trace(parse_workload(row.workload), scenario)
        jobs = tuple(replace(job, user=TURNS[job.index % len(TURNS)]) for job in drawn.jobs)
        return simulate(replace(drawn, jobs=jobs), POLICY, machines)
    return run_workload(TableSetting(data, LONGEST_S, 1, KeptRuns(None)), row.workload, row.cluster, POLICY)


def print_table(console: Console, bench: Bench, constants: Sequence[Constant], rows: Sequence[Row]) -> None:
    """A line per constant and factor: the difference on each row where it can do something."""
    layout = "{:14} {:>8} {:>8}" + " {:>14}" * len(rows)
    console.print(layout.format("constant", "is", "tried", *[row.name[-14:] for row in rows]), style="bold")
    plain = {row: bench.measure(row, None, 0.0) for row in rows}
    told = [f"{found:.3f}" if found <= 1 else f"{found / 3600:.3f} h" for found in plain.values()]
    console.print(layout.format("(as it is)", "", "", *told), highlight=False)
    for constant in constants:
        for factor in FACTORS:
            value = constant.vary(factor)
            cells = [compare(bench, row, constant, value, plain[row]) for row in rows]
            console.print(layout.format(constant.name, show(constant.value), show(value), *cells), highlight=False)


def compare(bench: Bench, row: Row, constant: Constant, value: Any, plain: float) -> str:
    """The cell of a row: points of deadlines met, or percent of the mean completion."""
    if row.kind not in constant.kinds:
        return ""
    found = bench.measure(row, constant, value)
    return f"{100 * (found - plain):+.1f}" if plain <= 1 else f"{100 * (found / plain - 1):+.1f} %"


if __name__ == "__main__":
    main()
