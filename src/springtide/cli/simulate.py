"""`springtide simulate`: replay traces under policies, and compare them in a table, as JSON and as a picture."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.outputs import check_picture
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.core.devices import Cluster
    from springtide.simulator.batches import TaskResult, Tell
    from springtide.simulator.optimum import Bound
    from springtide.simulator.reports import SimulationReport
    from springtide.simulator.traces import Trace

DEFAULT_CLUSTER = "16x8:a100"
DEFAULT_POLICIES = "elasticflow,springtide"
BORROWER = "easyscale-heter"  # the policy that --colocation takes by default
RENTED = "Rented machines"


class SimulateOutput(StrEnum):
    """Forms of the result on stdout."""

    TABLE = "table"
    JSON = "json"


def run(
    traces: list[Path] = typer.Argument(None, metavar="TRACE...", help="Trace files (CSV)."),
    policy: str = typer.Option(
        DEFAULT_POLICIES, help="Policies, joined by commas: names, MODULE:FUNCTION, or [bold]all[/]."
    ),
    cluster: str = typer.Option(DEFAULT_CLUSTER, help="NODESxGPUS:TYPE, several joined by commas."),
    profiles: Path = typer.Option(
        None, metavar="DIR", help="Speeds: a folder per device type, or a table of mini-batch seconds."
    ),
    overhead: str = typer.Option("elasticflow", help="Cost of a change: elasticflow, none or constant:SECONDS."),
    synthetic: str = typer.Option(None, metavar="KEYS", help="Draw jobs instead: jobs=1000,gap=1500,seed=0,..."),
    optimum: bool = typer.Option(False, "--optimum", help="Also bound what any scheduler could reach."),
    optimum_s: float = typer.Option(60.0, "--optimum-seconds", help="Time limit of the bound, per trace."),
    plot: Path = typer.Option(None, metavar="FILE", help="Draw devices held and deadlines met over time."),
    parallel: int = typer.Option(1, metavar="N", min=1, help="Processes to use."),
    json_file: str = typer.Option(None, "--json", metavar="FILE|-", help="Write the report as JSON."),
    output: SimulateOutput = typer.Option(SimulateOutput.TABLE, "-o", "--output", help="Form of the result on stdout."),
    skip_bad_rows: bool = typer.Option(False, "--skip-bad-rows", help="Leave out rows that cannot be read."),
    last_of_duplicates: bool = typer.Option(
        False, "--last-of-duplicates", help="Of rows with one id keep the last, as EasyScale's simulator does."
    ),
    time_scale: float = typer.Option(1.0, metavar="FACTOR", help="Stretch every step time by this factor."),
    colocation: str = typer.Option(
        None, metavar="KEYS", help="Run on what a serving system leaves idle: days=7,seed=0,grace_s=60,..."
    ),
    cloud: bool = typer.Option(
        False,
        "--cloud",
        rich_help_panel=RENTED,
        help="Simulate one job on rented machines instead. TRACE: aws, gcp, azure, a spot trace (CSV), or nothing.",
    ),
    points: Path = typer.Option(None, metavar="FILE", rich_help_panel=RENTED, help="Measured points of the job (CSV)."),
    prior: Path = typer.Option(None, metavar="FILE", rich_help_panel=RENTED, help="Points of other models."),
    model: str = typer.Option(None, rich_help_panel=RENTED, help="Which model of the points. Default: the first."),
    steps: int = typer.Option(None, min=1, rich_help_panel=RENTED, help="Steps to train."),
    global_batch: int = typer.Option(None, min=1, rich_help_panel=RENTED, help="Samples per step over all devices."),
    logical_workers: int = typer.Option(None, min=1, rich_help_panel=RENTED, help="Logical workers of the job."),
    deadline: str = typer.Option(None, rich_help_panel=RENTED, help="From its start: 6h, 1h30m."),
    budget: float = typer.Option(None, min=0.01, metavar="USD", rich_help_panel=RENTED, help="Most to spend."),
    region: str = typer.Option("", metavar="NAMES", rich_help_panel=RENTED, help="Regions, joined by commas."),
    kind: str = typer.Option("", "--type", metavar="NAMES", rich_help_panel=RENTED, help="GPU or instance types."),
    catalog: Path = typer.Option(None, metavar="FILE", rich_help_panel=RENTED, help="Your own catalog (CSV)."),
    seeds: int = typer.Option(5, min=1, rich_help_panel=RENTED, help="Runs, each with a seed of its own."),
) -> None:
    """Replay traces under several policies and compare how many deadlines each meets.

    Examples:

      springtide simulate --synthetic jobs=200,gap=600,seed=0 --policy all

      springtide simulate cluster01.csv --policy edf,springtide --cluster 64x8:a100 --json report.json

      springtide simulate --cloud aws --points points.csv --steps 90000 --global-batch 256 --deadline 12h
    """
    job = (points, prior, model, steps, global_batch, logical_workers, deadline, budget, region, kind, catalog)
    if cloud:
        from springtide.cli.simulate_cloud import Asked, simulate_asked

        simulate_asked(Asked(*job, seeds), traces or (), "-" if output is SimulateOutput.JSON else json_file)
        return
    if any(job):
        raise InputError("options of rented machines, such as --points and --deadline, need --cloud")
    from springtide.core.devices import parse_cluster
    from springtide.simulator.front import choose_policies
    from springtide.simulator.mute_stdout import mute_solvers

    borrowing = colocation is not None
    names = choose_policies(BORROWER if borrowing and policy == DEFAULT_POLICIES else policy)
    machines = parse_cluster(cluster)
    sources = TraceSources(traces or [], synthetic, profiles, overhead, skip_bad_rows, last_of_duplicates, time_scale)
    loaded = load_traces(sources, machines)
    check_targets(plot, json_file)
    if borrowing:
        from springtide.cli.simulate_colocation import borrow_all, print_borrowings

        borrowings = borrow_all(colocation, loaded, names, machines)
        write_document({"schema": 1, "runs": [entry.to_json() for entry in borrowings]}, json_file, output)
        if output is SimulateOutput.TABLE and json_file != "-":
            print_borrowings(borrowings)
        return
    with mute_solvers():
        outcomes = run_all(loaded, names, machines, plot is not None, parallel)
        bounds = find_bounds(loaded, outcomes, machines, optimum_s) if optimum else {}
    if plot is not None:
        draw(plot, outcomes)
    document = build_document([outcome.report for outcome in outcomes], bounds, loaded if skip_bad_rows else ())
    write_document(document, json_file, output)
    if output is SimulateOutput.TABLE and json_file != "-":
        print_table([outcome.report for outcome in outcomes], bounds)


@dataclass(frozen=True, slots=True)
class TraceSources:
    """Where the jobs come from, and how to read them."""

    paths: Sequence[Path]
    synthetic: str | None
    profiles: Path | None
    overhead: str
    skip_bad_rows: bool = False
    last_of_duplicates: bool = False
    time_scale: float = 1.0


def load_traces(sources: TraceSources, cluster: "Cluster") -> list["Trace"]:
    """Every trace that was asked for, read or drawn; rows that were left out are reported on stderr."""
    from springtide.simulator.scenarios import load_scenario
    from springtide.simulator.traces import read_trace
    from springtide.simulator.workloads import draw_trace, parse_workload
    from springtide.throughput.overheads import parse_overhead

    if not sources.paths and sources.synthetic is None:
        raise InputError("nothing to simulate; give a TRACE file, or --synthetic jobs=1000,gap=1500,seed=0")
    overhead = parse_overhead(sources.overhead, cluster.total)
    setting = load_scenario(cluster, sources.profiles, overhead, sources.time_scale)
    loaded = [read_trace(path, setting, sources.skip_bad_rows, sources.last_of_duplicates) for path in sources.paths]
    if sources.synthetic is not None:
        loaded.append(draw_trace(parse_workload(sources.synthetic), setting))
    for trace in loaded:
        report_rows(trace)
    return name_apart(loaded, sources.paths)


def name_apart(traces: Sequence["Trace"], paths: Sequence[Path]) -> list["Trace"]:
    """The traces, those of the same file name told apart by their path."""
    counts = Counter(trace.name for trace in traces)
    names = [*map(str, paths), *(trace.name for trace in traces[len(paths) :])]
    return [
        replace(trace, name=name) if counts[trace.name] > 1 else trace
        for trace, name in zip(traces, names, strict=True)
    ]


def report_rows(trace: "Trace") -> None:
    """Say how many rows of a trace were left out or ask for what cannot be had, and why the first of them."""
    skipped, unmet = len(trace.skipped), len(trace.unmet)
    if skipped:
        rows = "row" if skipped == 1 else "rows"
        print(f"{trace.name}: skipped {skipped} bad {rows}; the first: {trace.skipped[0]}", file=sys.stderr)
    if unmet:
        jobs = "job" if unmet == 1 else "jobs"
        print(f"{trace.name}: {unmet} {jobs} without the preferred device type: {trace.unmet[0]}", file=sys.stderr)


def run_all(
    traces: Sequence["Trace"], policies: Sequence[str], cluster: "Cluster", record: bool, processes: int
) -> list["TaskResult"]:
    """Every trace under every policy, with a progress bar when someone is watching."""
    from springtide.simulator.batches import SimulationTask, run_tasks

    tasks = [SimulationTask(trace, policy, cluster, record) for trace in traces for policy in policies]
    with show_progress() as tell:
        return list(run_tasks(tasks, processes, tell))


@contextmanager
def show_progress() -> Iterator["Tell | None"]:
    """A progress bar on stderr, or None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    # No refresh thread: its time would be counted as the simulation's.
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, auto_refresh=False)
    with bar:
        line = bar.add_task("", total=1.0)

        def tell(name: str, done: float) -> None:
            bar.update(line, description=name, completed=done, refresh=True)

        yield tell


def find_bounds(
    traces: Sequence["Trace"], outcomes: Sequence["TaskResult"], cluster: "Cluster", time_limit_s: float
) -> dict[str, "Bound"]:
    """What any scheduler could reach on each trace: at least what the best of the runs did."""
    from springtide.simulator.optimum import upper_bound

    if len(cluster.device_types) > 1:
        raise InputError(f"--optimum needs a cluster of one device type; {cluster.describe()} has several")
    bounds = {trace.name: upper_bound(trace.jobs, cluster, time_limit_s) for trace in traces}
    for report in (outcome.report for outcome in outcomes):
        bound = bounds[report.trace]
        bounds[report.trace] = replace(bound, lower=max(bound.lower, report.met + report.met_unpromised))
    return bounds


def check_targets(plot: Path | None, json_file: str | None) -> None:
    """Refuse files that could not be written, before anything is run for them."""
    if plot is not None:
        check_picture(plot)
    if json_file not in (None, "-") and not Path(str(json_file)).absolute().parent.is_dir():
        raise InputError(f"report {json_file!r} cannot be written; its folder does not exist")


def draw(path: Path, outcomes: Sequence["TaskResult"]) -> None:
    """Write the picture of all runs."""
    from springtide.simulator.run_plots import draw_outcomes

    draw_outcomes(path, outcomes)


def build_document(
    reports: Sequence["SimulationReport"], bounds: dict[str, "Bound"], traces: Sequence["Trace"]
) -> dict[str, Any]:
    """The JSON document: one entry per run; bounds and left-out rows only when they were asked for."""
    runs = [report.to_json() for report in reports]
    for entry in runs:
        bound = bounds.get(str(entry["trace"]))
        if bound is not None:
            entry |= {"optimum_lower": bound.lower, "optimum_upper": bound.upper, "optimum_method": bound.method}
    document: dict[str, Any] = {"schema": 1, "runs": runs}
    if traces:
        document["skipped_rows"] = {trace.name: len(trace.skipped) for trace in traces}
    return document


def write_document(document: dict[str, Any], json_file: str | None, output: SimulateOutput) -> None:
    """Write the JSON document where it was asked for."""
    text = json.dumps(document, indent=2, allow_nan=False)
    if json_file == "-" or output is SimulateOutput.JSON:
        print(text)
    if json_file not in (None, "-"):
        target = Path(str(json_file))
        try:
            target.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"report {json_file!r} cannot be written ({error.strerror})") from None


def print_table(reports: Sequence["SimulationReport"], bounds: dict[str, "Bound"]) -> None:
    """Print one table per trace, a line per policy; a narrow terminal gets the first columns only."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    columns = COLUMNS if console.width >= WIDE else dict(list(COLUMNS.items())[:ESSENTIAL])
    for trace in dict.fromkeys(report.trace for report in reports):
        runs = [report for report in reports if report.trace == trace]
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("policy", no_wrap=True)
        for heading in columns:
            table.add_column(heading, justify="right", no_wrap=True)
        for report in runs:
            table.add_row(report.policy, *(show(report) for show in columns.values()))
        console.print(describe_trace(runs[0], bounds.get(trace)), style="bold", highlight=False, soft_wrap=True)
        console.print(table)


def describe_trace(report: "SimulationReport", bound: "Bound | None") -> str:
    """The heading of one trace's table."""
    parts = [f"{report.trace}: {report.jobs} jobs on {report.gpus} devices"]
    if report.best_effort_jobs:
        parts.append(f"{report.best_effort_jobs} best effort")
    parts.append(f"DSR if each were alone {show_share(report.dsr_alone_bound)}")
    if bound is not None:
        parts.append(f"optimum {bound.describe(report.jobs - report.best_effort_jobs)}")
    return ", ".join(parts)


def show_met(report: "SimulationReport") -> str:
    """Deadlines met by admitted jobs, and by others apart."""
    return f"{report.met}+{report.met_unpromised}" if report.met_unpromised else str(report.met)


def show_share(value: float | None) -> str:
    """A fraction with three digits, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def show_hours(seconds: float | None) -> str:
    """Seconds as hours, or a dash."""
    return "-" if seconds is None else f"{seconds / 3600:.2f}"


COLUMNS: dict[str, Callable[["SimulationReport"], str]] = {
    "met": show_met,
    "DSR": lambda report: show_share(report.dsr),
    "late": lambda report: str(report.late_admitted),
    "admitted": lambda report: str(report.admitted),
    "waitlisted": lambda report: str(report.waitlisted),
    "declined": lambda report: str(report.declined),
    "JCT h": lambda report: show_hours(report.avg_jct_s),
    "cpu s": lambda report: f"{report.cpu_s:.2f}",
    "p95 h": lambda report: show_hours(report.p95_jct_s),
    "best eff. h": lambda report: show_hours(report.avg_jct_best_effort_s),
    "used": lambda report: show_share(report.gpu_utilization),
    "efficiency": lambda report: show_share(report.cluster_efficiency),
    "starts": lambda report: str(report.starts),
    "rescales": lambda report: str(report.rescales),
    "moves": lambda report: str(report.migrations),
}
ESSENTIAL = 8  # columns that fit into 80 characters
WIDE = 140  # characters that all columns need; also the width where the output is no terminal
