"""`springtide simulate`: replay traces under policies, and compare them in a table, as JSON and as a picture.

Three modes: the comparison, on a cluster of its own (here); on what a serving system leaves idle (`--colocation`:
`experiments/colocation.py` of the repository); and one job on rented machines instead (`--cloud`: `simulate_cloud`).
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from springtide.cli.checkout import import_experiment
from springtide.cli.option_groups import flatten, list_given, option, refuse_given
from springtide.cli.outputs import OutputForm, check_picture, tell_legend
from springtide.cli.simulate_cloud import RentalOptions, simulate_rental
from springtide.errors import InputError

if TYPE_CHECKING:
    from experiments.optimum import Bound

    from springtide.core.devices import Cluster
    from springtide.simulator.batches import TaskResult, TellShare
    from springtide.simulator.reports import SimulationReport
    from springtide.simulator.traces import Trace

DEFAULT_POLICIES = "elasticflow,springtide"
CLUSTER = "16x8:a100"
BORROWER = "easyscale-heter"  # the policy that --colocation takes by default


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Where the jobs come from, how they are read, and how fast they run."""

    profiles: Path | None = option(
        None, "Speeds: a folder per device type, or a table of mini-batch seconds.", metavar="DIR"
    )
    overhead: str = option("elasticflow", "Cost of a change: elasticflow, none or constant:SECONDS.")
    synthetic: str | None = option(None, "Draw jobs instead: jobs=1000,gap=1500,seed=0,...", metavar="KEYS")
    skip_bad_rows: bool = option(False, "Leave out rows that cannot be read.", "--skip-bad-rows")
    last_of_duplicates: bool = option(
        False, "Of rows with one id keep the last, as EasyScale's simulator does.", "--last-of-duplicates"
    )
    time_scale: float = option(1.0, "Stretch every step time by this factor.", metavar="FACTOR")


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What a comparison is to bring beside its runs, and with how many processes."""

    optimum: bool = option(False, "Also bound what any scheduler could reach.", "--optimum")
    optimum_s: float = option(60.0, "Time limit of the bound, per trace.", "--optimum-seconds")
    plot: Path | None = option(None, "Draw devices held and deadlines met over time.", metavar="FILE")
    parallel: int = option(1, "Processes to use.", metavar="N", min=1)


@dataclass(frozen=True, slots=True)
class UncertainOptions:
    """How far from what is stated things really are."""

    speed_error: float = option(0.0, "Speeds are wrong: standard deviation of their logarithm, as 0.05.", metavar="SD")
    steps_error: float = option(0.0, "Numbers of steps are wrong, likewise.", metavar="SD")
    faults: str = option("", "Machines fail: mtbf=100,device_mtbf=5000,mttr=1 (hours), slow=0.05,...", metavar="KEYS")
    confidence: float | None = option(None, "How sure a promise is to be under errors and faults: 0.95.")
    error_seed: int = option(0, "Seed of errors and faults.", min=0)

    @property
    def is_given(self) -> bool:
        """Whether anything is to be uncertain."""
        return bool(self.speed_error or self.steps_error or self.faults)


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """What is to be compared: traces under policies on a cluster."""

    traces: "list[Trace]"
    policies: list[str]
    cluster: "Cluster"


@flatten
def run(
    sources: SourceOptions,
    wanted: CompareOptions,
    unsure: UncertainOptions,
    rental: RentalOptions,
    form: OutputForm,
    traces: Annotated[list[Path] | None, typer.Argument(metavar="TRACE...", help="Trace files (CSV).")] = None,
    policy: Annotated[
        str, typer.Option(help="Policies, joined by commas: names, MODULE:FUNCTION, or [bold]all[/].")
    ] = DEFAULT_POLICIES,
    cluster: Annotated[str, typer.Option(help="NODESxGPUS:TYPE, several joined by commas.")] = CLUSTER,
    colocation: Annotated[
        str | None,
        typer.Option(metavar="KEYS", help="Run on what a serving system leaves idle: days=7,seed=0,grace_s=60,..."),
    ] = None,
) -> None:
    """Replay traces under several policies and compare how many deadlines each meets.

    Examples:

      springtide simulate --synthetic jobs=200,gap=600,seed=0 --policy all

      springtide simulate cluster01.csv --policy edf,springtide --cluster 64x8:a100 --json report.json

      springtide simulate --synthetic jobs=200,gap=600 --speed-error 0.05 --faults mtbf=100,mttr=1

      springtide simulate --cloud aws --points points.csv --steps 90000 --global-batch 256 --deadline 12h
    """
    form.check_writable()
    if rental.cloud:
        loose = {"--policy": policy != DEFAULT_POLICIES, "--cluster": cluster != CLUSTER, "--colocation": colocation}
        of_clusters = [*(name for name, given in loose.items() if given), *list_given(sources, wanted, unsure)]
        refuse_given(of_clusters, "--cloud simulates one job on rented machines and would ignore this; leave it out")
        simulate_rental(rental, traces or (), form)
        return
    rental.check_unused()
    check_mode(wanted, unsure, colocation)
    from springtide.core.devices import parse_cluster
    from springtide.simulator.front import choose_policies

    names = choose_policies(BORROWER if colocation is not None and policy == DEFAULT_POLICIES else policy)
    machines = parse_cluster(cluster)
    compared = PolicyComparison(load_traces(sources, traces or (), machines), names, machines)
    if unsure.is_given:
        compare_uncertain(compared, unsure, form)
    elif colocation is None:
        compare_policies(compared, wanted, sources.skip_bad_rows, form)
    else:
        compare_lent(compared, colocation, form)


def check_mode(wanted: CompareOptions, unsure: UncertainOptions, colocation: str | None) -> None:
    """Refuse what a comparison of this kind would ignore, and a picture that could not be written."""
    if unsure.is_given:
        given = [*list_given(wanted), *(["--colocation"] if colocation is not None else [])]
        refuse_given(given, "--speed-error, --steps-error and --faults go without it; leave one of the two out")
        return
    refuse_given(list_given(unsure), "this needs something uncertain: --speed-error, --steps-error or --faults")
    if colocation is not None:
        refuse_given(list_given(wanted), "--colocation goes without it; leave one of the two out")
    if wanted.plot is not None:
        check_picture(wanted.plot)


def compare_lent(compared: PolicyComparison, colocation: str, form: OutputForm) -> None:
    """Run every trace under every policy on what a serving system leaves idle."""
    command = "springtide simulate --colocation KEYS"
    study = import_experiment("colocation", "clusters that lend their idle devices are studied", command)
    runs = study.compare(colocation, compared.traces, compared.policies, compared.cluster)
    if not form.write({"schema": 1, "runs": [entry.to_json() for entry in runs]}):
        study.print_borrowings(runs)


def compare_policies(compared: PolicyComparison, wanted: CompareOptions, tell_skipped: bool, form: OutputForm) -> None:
    """Run every trace under every policy, then write, draw or print what came of it."""
    from springtide.simulator.batches import mute_solvers
    from springtide.simulator.run_plots import draw_outcomes

    with mute_solvers():
        outcomes = run_all(compared, wanted.plot is not None, wanted.parallel)
        bounds = find_bounds(compared, outcomes, wanted.optimum_s) if wanted.optimum else {}
    if wanted.plot is not None:
        draw_outcomes(wanted.plot, outcomes)
    reports = [outcome.report for outcome in outcomes]
    if not form.write(build_document(reports, bounds, compared.traces if tell_skipped else ())):
        print_reports(reports, bounds)


def compare_uncertain(compared: PolicyComparison, unsure: UncertainOptions, form: OutputForm) -> None:
    """Run every trace under every policy while speeds, steps and machines are not what they seem."""
    from springtide.cli.outputs import print_table
    from springtide.simulator.batches import mute_solvers
    from springtide.simulator.calibration import HEADINGS, replay_uncertain, show_reports
    from springtide.simulator.uncertainty import Uncertainty, parse_faults

    uncertain = Uncertainty(
        unsure.speed_error,
        unsure.steps_error,
        parse_faults(unsure.faults),
        0.95 if unsure.confidence is None else unsure.confidence,
        unsure.error_seed,
    )
    with mute_solvers():
        reports = [
            replay_uncertain(trace, policy, compared.cluster, uncertain)
            for trace in compared.traces
            for policy in compared.policies
        ]
    if not form.write({"schema": 1, "uncertain": [report.to_json() for report in reports]}):
        legend = "said: mean probability told with the promises; kept: share of promises kept; failures: of machines"
        print_table(HEADINGS, show_reports(reports), legend=legend)


def load_traces(sources: SourceOptions, paths: Sequence[Path], cluster: "Cluster") -> list["Trace"]:
    """Every trace that was asked for, read or drawn; rows that were left out are reported on stderr."""
    from springtide.simulator.scenarios import load_scenario
    from springtide.simulator.traces import read_trace
    from springtide.simulator.workloads import draw_trace, parse_workload
    from springtide.throughput.overheads import parse_overhead

    if not paths and sources.synthetic is None:
        raise InputError("nothing to simulate; give a TRACE file, or --synthetic jobs=1000,gap=1500,seed=0")
    overhead = parse_overhead(sources.overhead, cluster.total)
    setting = load_scenario(cluster, sources.profiles, overhead, sources.time_scale)
    loaded = [read_trace(path, setting, sources.skip_bad_rows, sources.last_of_duplicates) for path in paths]
    if sources.synthetic is not None:
        loaded.append(draw_trace(parse_workload(sources.synthetic), setting))
    for trace in loaded:
        report_rows(trace)
    return name_apart(loaded, paths)


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


def run_all(compared: PolicyComparison, record: bool, processes: int) -> list["TaskResult"]:
    """Every trace under every policy, with a progress bar when someone is watching."""
    from springtide.simulator.batches import SimulationTask, run_tasks

    tasks = [
        SimulationTask(trace, policy, compared.cluster, record)
        for trace in compared.traces
        for policy in compared.policies
    ]
    with show_progress() as tell:
        return list(run_tasks(tasks, processes, tell))


@contextmanager
def show_progress() -> Iterator["TellShare | None"]:
    """A progress bar on stderr, or None where stderr is not a terminal."""
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
    compared: PolicyComparison, outcomes: Sequence["TaskResult"], time_limit_s: float
) -> dict[str, "Bound"]:
    """What any scheduler could reach on each trace: at least what the best of the runs did."""
    cluster = compared.cluster
    if len(cluster.device_types) > 1:
        raise InputError(f"--optimum needs a cluster of one device type; {cluster.describe()} has several")
    what = "the bound on all schedulers is found"
    study = import_experiment("optimum", what, "springtide simulate TRACE --optimum")
    bounds: dict[str, Bound] = {
        trace.name: study.upper_bound(trace.jobs, cluster, time_limit_s) for trace in compared.traces
    }
    for report in (outcome.report for outcome in outcomes):
        bound = bounds[report.trace]
        bounds[report.trace] = replace(bound, lower=max(bound.lower, report.met + report.met_unpromised))
    return bounds


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


def print_reports(reports: Sequence["SimulationReport"], bounds: dict[str, "Bound"]) -> None:
    """Print one table per trace, a line per policy; a narrow terminal gets the first columns only."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 2 * WIDE)
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
    tell_legend("; ".join(f"{name}: {LEGEND[name]}" for name in columns if name in LEGEND))


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
    "best eff. waited h": lambda report: show_hours(report.longest_wait_best_effort_s),
    "used": lambda report: show_share(report.gpu_utilization),
    "efficiency": lambda report: show_share(report.cluster_efficiency),
    "starts": lambda report: str(report.starts),
    "rescales": lambda report: str(report.rescales),
    "moves": lambda report: str(report.migrations),
}
LEGEND = {
    "met": "deadlines met (+ those of jobs without a promise)",
    "DSR": "share of deadlines met",
    "late": "promises broken",
    "JCT h": "mean hours from submission to end",
    "cpu s": "what deciding took",
    "p95 h": "hours that 95 % of the jobs ended within",
    "best eff. h": "mean hours of jobs without a deadline",
    "best eff. waited h": "the longest that a best-effort job was without devices in all, up to its end",
    "used": "share of device time that jobs held",
    "efficiency": "useful part of the device-hours: what the jobs would have taken on one device each",
}
ESSENTIAL = 8  # columns that fit into 80 characters
WIDE = 140  # characters that all columns need; where the output is not a terminal nothing is cut
