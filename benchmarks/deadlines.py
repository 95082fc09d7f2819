"""Deadlines met on the published traces: ours beside the published value, the bar, and the alone bound.

    python -m benchmarks.deadlines --data DIR [--only cluster01] [--sweep]

`--sweep` replays every trace on a quarter and an eighth of its published cluster too, where admission matters.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data, shrink
from springtide.core.devices import parse_cluster
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport

POLICIES = ("elasticflow", "springtide")
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
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--sweep", action="store_true", help="also a quarter and an eighth of the published sizes")
    args = parser.parse_args()
    data, policies = require_data(args.data), args.policies.split(",")
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


if __name__ == "__main__":
    main()
