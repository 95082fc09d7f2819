"""Deadlines met on the published traces: ours beside the published value, the bar, and the alone bound.

    python -m benchmarks.deadlines --data DIR [--only cluster01] [--sweep]
    python -m benchmarks.deadlines --data DIR --all [--only rubick] [--policies springtide,edf] [--record FILE]
                                                    [--processes 2] [--limit 300]

`--sweep` replays every trace on a quarter and an eighth of its published cluster too, where admission matters. `--all`
is one table over all workloads and policies: deadlines met (broken promises after a slash), and where there are no
deadlines mean hours to completion and, after a slash, the longest that a job waited in all. Below it stands where
springtide misses a bar. Each run has --limit seconds of CPU, so that the table ends; one that takes more is told as
such. Progress goes to stderr; runs in --record are not made again, unless one that took too long may take longer now.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean
from time import process_time

from rich.console import Console
from rich.table import Table

from benchmarks import heterogeneous
from benchmarks.elasticflow_data import add_data_option, load_trace, require_data, shrink
from benchmarks.kept_runs import KeptRuns
from benchmarks.trap_workloads import FAMILIES
from springtide.core.decisions import Answer, JobView
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.policies import POLICIES as EVERY_POLICY
from springtide.policies import find_policy
from springtide.simulator.batches import mute_solvers
from springtide.simulator.engine import Observer
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport, meets
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead

POLICIES = ("elasticflow", "springtide")
TRAP = "trap "  # before the name of a family that was made to trap a policy
LOADED = 0.02  # a cluster counts as loaded where elasticflow is this far under the alone bound


@dataclass(frozen=True, slots=True)
class Row:
    """One trace on one cluster: what was published, and what each of our policies is to reach."""

    trace: str
    cluster: str
    published: str
    bars: tuple[float, float]
    cpu_bar_s: float | None


ROWS = (
    Row("elasticVpollux_e", "16x4:t4", ".718", (0.85, 0.88), None),
    Row("cluster10", "32x8:a100", ".962", (0.985, 0.988), 0.1),
    Row("cluster01", "64x8:a100", ".788", (0.97, 0.98), 2.0),
    Row("cluster02", "64x8:a100", ".822", (0.955, 0.962), 4.0),
    Row("cluster08", "128x8:a100", ".896", (0.985, 0.99), 10.0),
    Row("philly_103959", "32x8:a100", ".910", (0.925, 0.928), None),
    Row("philly_103959", "4x8:a100", ".876", (0.86, 0.885), None),
    Row("195job", "16x8:a100", ".749", (0.90, 0.91), 0.2),
    Row("cluster01", "16x8:a100", "-", (0.79, 0.87), 10.0),
    Row("cluster01", "8x8:a100", "-", (0.55, 0.61), 10.0),
)
PUBLISHED_SIZES = (
    ("elasticVpollux_e", "16x4:t4"),
    ("cluster10", "32x8:a100"),
    ("cluster01", "64x8:a100"),
    ("cluster02", "64x8:a100"),
    ("cluster08", "128x8:a100"),
    ("philly_103959", "32x8:a100"),
    ("195job", "16x8:a100"),
)


def main() -> None:
    """Print the table, and the sweep when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--only", default="", help="rows whose 'trace cluster' contains this")
    parser.add_argument("--policies", default="", help=f"default: {','.join(POLICIES)}; with --all every policy")
    parser.add_argument("--all", action="store_true", help="one table over all workloads and policies")
    parser.add_argument("--record", type=Path, help="with --all: where finished runs are kept (JSON lines)")
    parser.add_argument("--processes", type=int, default=2, help="with --all: runs at a time")
    parser.add_argument("--limit", type=float, default=300.0, help="with --all: seconds of CPU that a run may take")
    parser.add_argument("--sweep", action="store_true", help="also a quarter and an eighth of the published sizes")
    args = parser.parse_args()
    data = require_data(args.data)
    policies = args.policies.split(",") if args.policies else list(EVERY_POLICY if args.all else POLICIES)
    if args.all:
        setting = TableSetting(data, args.limit, args.processes, KeptRuns(args.record))
        print_all(Console(width=max(150, 60 + 21 * len(policies))), setting, args.only, policies)
        return
    console = Console(width=150)
    rows = [row for row in ROWS if args.only in f"{row.trace} {row.cluster}"]
    print_rows(console, data, rows, policies)
    if args.sweep:
        pairs = [pair for pair in PUBLISHED_SIZES if args.only in " ".join(pair)]
        print_sweep(console, data, pairs)


def print_rows(console: Console, data: Path, rows: Sequence[Row], policies: Sequence[str]) -> None:
    """The table of the published sizes, each row printed as soon as it is measured."""
    layout = "{:18} {:12} {:12} {:>9} {:>6} {:>6} {:>6} {:>6} {:>5} {:>8} {:>8}"
    heads = ("trace", "cluster", "policy", "published", "bar", "ours", "alone", "", "late", "cpu s", "bar s")
    console.print(layout.format(*heads), style="bold")
    for row in rows:
        for policy in policies:
            report = run_one(data, row.trace, row.cluster, policy)
            bar = row.bars[POLICIES.index(policy)] if policy in POLICIES else None
            console.print(layout.format(*show_row(row, report, bar)), highlight=False)


def show_row(row: Row, report: SimulationReport, bar: float | None) -> Iterable[str]:
    """The cells of one row."""
    dsr = report.dsr or 0.0
    verdict = "" if bar is None else "ok" if dsr >= bar else "BELOW"
    return (
        row.trace,
        row.cluster,
        report.policy,
        row.published,
        "-" if bar is None else f"{bar:.3f}",
        f"{dsr:.3f}",
        f"{report.dsr_alone_bound or 0.0:.3f}",
        verdict,
        str(report.late_admitted),
        f"{report.cpu_s:.2f}",
        "-" if row.cpu_bar_s is None else f"{row.cpu_bar_s:g}",
    )


def run_one(data: Path, trace: str, cluster: str, policy: str) -> SimulationReport:
    """One run at the published speeds and the default overhead."""
    machines = parse_cluster(cluster)
    find_policy(policy).compile()  # however few its jobs are, what is timed is compiled
    with mute_solvers():
        return simulate(load_trace(data, trace, machines), policy, machines)


def print_sweep(console: Console, data: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Both policies on a quarter and an eighth of each cluster, and the mean gain where it is loaded."""
    table = Table("trace", "cluster", "elasticflow", "springtide", "gain", "alone", "late", "loaded", box=None)
    gains, below = [], []
    for trace, published in pairs:
        for cluster in (shrink(published, 4), shrink(published, 8)):
            old, new = (run_one(data, trace, cluster, policy) for policy in POLICIES)
            gain = (new.dsr or 0.0) - (old.dsr or 0.0)
            loaded = (old.dsr_alone_bound or 0.0) - (old.dsr or 0.0) > LOADED
            if loaded:
                gains.append(gain)
            if -gain > max(1 / old.jobs, 0.005):
                below.append(f"{trace} {cluster}")
            table.add_row(
                trace,
                cluster,
                f"{old.dsr:.3f}",
                f"{new.dsr:.3f}",
                f"{gain:+.3f}",
                f"{old.dsr_alone_bound:.3f}",
                f"{old.late_admitted + new.late_admitted}",
                "yes" if loaded else "no",
            )
    console.print(table)
    if gains:
        console.print(f"mean gain over {len(gains)} loaded pairs: {fmean(gains):+.3f} (bar +0.030)")
    console.print(f"pairs where springtide is below by more than max(1 job, 0.005): {', '.join(below) or 'none'}")


# deadlines of the published traces drawn anew: submission + so many times the duration on the devices asked for
REDRAWN = {"tight ": (0.5, 1.0), "loose ": (1.0, 3.0)}
SMALL, WHOLE = "small ", "8x8:a100"  # before a trace: only its jobs that run on one device; where all of them run
EASYSCALE = "easyscale"  # 62 jobs without deadlines on three device types, 20 s at every change
# beside the published traces: jobs that need many devices at least, with and without deadlines, and drawn ones
RUBICK = "rubick/base-deadlines"
FURTHER = (
    (RUBICK, "8x8:a100"),
    (RUBICK, "9x8:a100"),
    (RUBICK, "6x8:a100"),
    ("rubick/base", "8x8:a100"),
    (f"{SMALL}rubick/base", "2x8:a100"),
    (EASYSCALE, heterogeneous.CLUSTER),
    ("jobs=200,gap=600,best_effort=1", "4x8:a100"),
    ("jobs=200,gap=150,best_effort=1", "4x8:a100"),
    ("jobs=300,gap=900,min_factor=0.5,max_factor=1", "4x8:a100"),
    ("jobs=300,gap=900,min_factor=1,max_factor=3", "4x8:a100"),
)


def list_workloads(data: Path) -> list[tuple[str, str]]:
    """(workload, cluster) of every row: published at full, quarter and eighth size, others that are there, traps.

    And those with tight and loose deadlines, at full, half and quarter size.
    """
    published = [
        (trace, cluster) for trace, full in PUBLISHED_SIZES for cluster in (full, shrink(full, 4), shrink(full, 8))
    ]
    redrawn = [
        (f"{kind}{trace}", shrink(full, divisor))
        for kind in REDRAWN
        for trace, full in PUBLISHED_SIZES
        for divisor in (1, 2, 4)
    ]
    further = [row for row in FURTHER if "=" in row[0] or find_file(data, row[0]).is_file()]
    traps = [(f"{TRAP}{name}", family.cluster) for name, family in FAMILIES.items()]
    return [*published, *redrawn, *further, *traps]


def find_file(data: Path, workload: str) -> Path:
    """The file of a workload that is none of the published traces."""
    name = "easyscale/workload" if workload == EASYSCALE else workload.removeprefix(SMALL)
    return data / "traces" / f"{name}.csv"


@dataclass(frozen=True, slots=True)
class TableSetting:
    """Where the data is, how long a run may take, how many go on at a time, and where finished ones are kept."""

    data: Path
    limit_s: float
    processes: int
    record: KeptRuns


class OutOfTimeError(Exception):
    """A run has used up its seconds of CPU."""


@dataclass(slots=True)
class CpuLimit(Observer):
    """Ends a run that has used up its seconds of CPU; looks whenever a job is submitted or gets devices."""

    limit_s: float
    started_s: float = field(default_factory=process_time)

    def arrived(self, job: Job, now_s: float) -> None:
        """Look at the time."""
        self._look()

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """Look at the time."""
        self._look()

    def _look(self) -> None:
        if process_time() - self.started_s > self.limit_s:
            raise OutOfTimeError


@dataclass(slots=True)
class BrokenPromises(Observer):
    """Counts the jobs that were promised to end in time and did not: one that is let in may be promised nothing."""

    promised: set[JobId] = field(default_factory=set)
    broken: int = 0

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """Note a promise."""
        if answer.promised:
            self.promised.add(job_id)

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """See whether it was kept."""
        self.broken += last.job.id in self.promised and not meets(last.job, now_s)


Run = tuple[str, str, str]  # a workload, a cluster and a policy


@dataclass(frozen=True, slots=True)
class Cell:
    """What a run gave: the share of deadlines met and the promises broken; without deadlines hours to completion.

    Of a run that was broken off only the seconds are known that it was given.
    """

    met: float | None = None
    broken: int = 0
    completion_h: float | None = None
    longest_wait_h: float = 0.0
    broken_off_s: float | None = None

    def __str__(self) -> str:
        """As in the table."""
        if self.broken_off_s is not None:
            return f"> {self.broken_off_s:g} s"
        if self.completion_h is not None:
            return f"{self.completion_h:.2f}/{self.longest_wait_h:.1f} h"
        return f"{self.met:.3f}/{self.broken}" if self.broken else f"{self.met:.3f}"


CELL_WIDTH = len("12.74/90.6 h")
Line = Mapping[str, Cell]  # a row of the table: the cell of each policy


def print_all(console: Console, setting: TableSetting, only: str, policies: Sequence[str]) -> None:
    """The table of all workloads and policies, each row printed as soon as it and those above it are measured."""
    rows = [row for row in list_workloads(setting.data) if only in " ".join(row)]
    kept = read_cells(setting)
    runs = [(*row, policy) for row in rows for policy in policies if " ".join((*row, policy)) not in kept]
    layout = "{:44} {:>10}" + "".join(f" {{:>{max(len(name), CELL_WIDTH)}}}" for name in policies)
    console.print(layout.format("workload", "cluster", *policies), style="bold")
    table: dict[tuple[str, str], Line] = {}
    with ProcessPoolExecutor(setting.processes, mp_context=get_context("spawn")) as pool:
        futures = {run: pool.submit(measure, setting, *run) for run in runs}
        for run, future in futures.items():
            future.add_done_callback(partial(tell, run, futures))
        try:
            for row in rows:
                told = {policy: (*row, policy) for policy in policies}
                table[row] = {
                    policy: futures[run].result() if run in futures else kept[" ".join(run)]
                    for policy, run in told.items()
                }
                console.print(layout.format(*row, *map(str, table[row].values())), highlight=False)
        finally:
            pool.shutdown(cancel_futures=True)
    for miss in list_misses(table):
        console.print(miss, highlight=False)


def read_cells(setting: TableSetting) -> dict[str, Cell]:
    """Runs that need not be made again, by 'workload cluster policy'."""
    cells = {key: Cell(**found) for key, found in setting.record.read().items()}
    return {
        key: cell for key, cell in cells.items() if cell.broken_off_s is None or cell.broken_off_s >= setting.limit_s
    }


def tell(run: Run, futures: dict[Run, Future[Cell]], ended: Future[Cell]) -> None:
    """Say what a run gave, and how far the table is."""
    if not ended.cancelled() and ended.exception() is None:
        done = sum(future.done() for future in futures.values())
        print(f"{done} of {len(futures)} runs, {' '.join(run)}: {ended.result()}", file=sys.stderr, flush=True)


def measure(setting: TableSetting, workload: str, cluster: str, policy: str) -> Cell:
    """The cell of one run, kept at once: its row's turn may be far."""
    promises = BrokenPromises()
    try:
        with mute_solvers():
            cell = make_cell(run_workload(setting, workload, cluster, policy, promises), promises.broken)
    except OutOfTimeError:
        cell = Cell(broken_off_s=setting.limit_s)
    setting.record.add(f"{workload} {cluster} {policy}", asdict(cell))
    return cell


def make_cell(report: SimulationReport, broken: int) -> Cell:
    """What the table says of a run."""
    if report.dsr is None:
        return Cell(
            completion_h=(report.avg_jct_s or 0.0) / 3600,
            longest_wait_h=(report.longest_wait_best_effort_s or 0.0) / 3600,
        )
    met = (report.met + report.met_unpromised) / (report.jobs - report.best_effort_jobs)
    return Cell(met, broken)


OURS = "springtide"
LEAST_GAP = 0.005  # of deadlines met, that springtide may be under the best policy that keeps its promises
LEAST_GAP_OF_ALL = 0.01  # and under the best of all, where jobs need many devices at least
MOST_SLOWER = 1.05  # mean completion without deadlines, over the best of these:
BEST_EFFORT = ("srtf", "pollux", "tiresias", "sia")


def list_misses(table: Mapping[tuple[str, str], Line]) -> list[str]:
    """Where springtide misses a bar, in words; nothing is said of runs that were broken off."""
    lines = {row: line for row, line in table.items() if OURS in line}
    broken = [
        f"{' '.join(row)}: {line[OURS].broken} promises broken" for row, line in lines.items() if line[OURS].broken
    ]
    return [*broken, *[miss for row, line in lines.items() for miss in find_misses(" ".join(row), line)]]


def find_misses(name: str, line: Line) -> Iterable[str]:
    """The bars that springtide misses in a row."""
    ours = line[OURS]
    others = {policy: cell for policy, cell in line.items() if policy != OURS}
    if ours.met is not None:
        met = {policy: cell.met for policy, cell in others.items() if cell.met is not None}
        keeping = {one: met[one] for one in met if EVERY_POLICY[one].promises and not others[one].broken}
        yield from show_behind(name, ours.met, keeping, LEAST_GAP)
        if name.startswith(RUBICK):
            yield from show_behind(name, ours.met, met, LEAST_GAP_OF_ALL)
    if ours.completion_h is not None:
        took = {policy: others[policy].completion_h for policy in BEST_EFFORT if policy in others}
        best_h = min((hours for hours in took.values() if hours is not None), default=ours.completion_h)
        if ours.completion_h > MOST_SLOWER * best_h:
            ratio = ours.completion_h / best_h
            yield f"{name}: mean completion {ratio:.2f} of the best of {', '.join(BEST_EFFORT)} (bar {MOST_SLOWER:g})"


def show_behind(name: str, ours: float, others: Mapping[str, float], gap: float) -> Iterable[str]:
    """That one of these policies meets more deadlines by more than a gap, in words."""
    best = max(others, key=lambda policy: others[policy], default=None)
    if best is not None and others[best] - ours > gap:
        yield f"{name}: {100 * (others[best] - ours):.1f} points under {best} (bar {100 * gap:g})"


def run_workload(
    setting: TableSetting, workload: str, cluster: str, policy: str, *watchers: Observer
) -> SimulationReport:
    """One run of a workload on a cluster."""
    machines = parse_cluster(cluster)
    find_policy(policy).compile()  # however few its jobs are, what is timed is compiled
    trace, limit = load_workload(setting.data, workload, machines), CpuLimit(setting.limit_s)
    return simulate(trace, policy, machines, (limit, *watchers))


def load_workload(data: Path, workload: str, machines: Cluster) -> Trace:
    """A published trace, one with other deadlines, a file under traces/ or its small jobs, a trap, or a drawn one."""
    if workload in {trace for trace, _ in PUBLISHED_SIZES}:
        return load_trace(data, workload, machines)
    for kind, factors in REDRAWN.items():
        if workload.startswith(kind):
            return redraw(load_trace(data, workload.removeprefix(kind), machines), *factors)
    if workload.startswith(TRAP):
        name = workload.removeprefix(TRAP)
        return FAMILIES[name].make(name, seed=0)
    if workload == EASYSCALE:
        return heterogeneous.load_workload(data, heterogeneous.Case(1.0, True), heterogeneous.COSTS["20 s"])
    if workload.startswith(SMALL):
        whole = load_workload(data, workload.removeprefix(SMALL), parse_cluster(WHOLE))
        small = [job for job in whole.jobs if job.curve.shares[0] == 1]
        return replace(whole, jobs=tuple(replace(job, curve=job.curve.capped(machines.total)) for job in small))
    setting = load_scenario(machines, data / "profiles", parse_overhead("elasticflow", machines.total))
    return (
        draw_trace(parse_workload(workload), setting)
        if "=" in workload
        else read_trace(find_file(data, workload), setting)
    )


def redraw(trace: Trace, least: float, most: float) -> Trace:
    """A trace with other deadlines, in durations on the devices asked for: one draw, the same on every cluster."""
    random = Random(f"{trace.name} {least} {most}")
    return replace(trace, jobs=tuple(give_deadline(job, random.uniform(least, most)) for job in trace.jobs))


def give_deadline(job: Job, factor: float) -> Job:
    """A job that is due after so many times its duration on the devices it asks for, as far as it can use them."""
    share = max((one for one in job.curve.shares if one <= job.requested), default=job.curve.shares[0])
    return replace(job, deadline_s=job.submit_s + factor * job.work / job.curve.rate(share))


if __name__ == "__main__":
    main()
