"""The baselines against their published results: Figs 8a and 8b of ElasticFlow, and the ranking of Fig 10.

    python -m benchmarks.baselines --data DIR [--figure 8a|8b|10] [--policies tiresias,gandiva]

The published value is the one measured by running the published code where there is one, else the plotted one
(marked p). A difference above five points is marked; where it comes from is for docs/ to say.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.elasticflow.published import FIGURE_8A, FIGURE_8B, FIGURE_10
from experiments.sources import CLUSTERS
from rich.console import Console

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from springtide.core.devices import parse_cluster
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport
from springtide.simulator.scenarios import Scenario
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead
from springtide.throughput.tables.profiles import read_profiles

POINTS = 0.05


@dataclass(frozen=True, slots=True)
class Published:
    """The DSR published for a policy on a trace and cluster."""

    figure: str
    trace: str
    cluster: str
    policy: str
    dsr: float
    plotted: bool = False


def list_published() -> Iterator[Published]:
    """Every published value that we compare with."""
    for policy, (dsr, plotted) in FIGURE_8A.items():
        yield Published("8a", "elasticVpollux_e", CLUSTERS["elasticVpollux_e"], policy, dsr, plotted)
    for trace in ("cluster01", "cluster02", "cluster08", "cluster10", "philly_103959"):
        for policy, (dsr, plotted) in FIGURE_8B[trace].items():
            yield Published("8b", trace, CLUSTERS[trace], policy, dsr, plotted)


FIGURE_10_WORKLOAD = "jobs=100,gap=1500,seed=0,min_factor=1.5,max_factor=1.5"
LAYOUT = "{:6} {:18} {:12} {:14} {:>10} {:>7} {:>7} {:>8} {:>7} {:>8}"


def main() -> None:
    """Print the comparisons that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--figure", choices=("8a", "8b", "10"))
    parser.add_argument("--only", default="", help="rows whose 'trace cluster' contains this")
    parser.add_argument("--policies", default="")
    args = parser.parse_args()
    data, chosen = require_data(args.data), [name for name in args.policies.split(",") if name]
    console = Console(width=130)
    rows = [
        row
        for row in list_published()
        if args.figure in (None, row.figure) and args.only in f"{row.trace} {row.cluster}"
        if not chosen or row.policy in chosen
    ]
    print_rows(console, data, rows)
    if args.figure in (None, "10"):
        print_ranking(console, data, chosen)


def print_rows(console: Console, data: Path, rows: Sequence[Published]) -> None:
    """The comparison of Figs 8a and 8b, each row printed as soon as it is measured."""
    heads = ("figure", "trace", "cluster", "policy", "published", "ours", "differ", "", "late", "cpu s")
    if rows:
        console.print(LAYOUT.format(*heads), style="bold")
    for row in rows:
        console.print(LAYOUT.format(*compare(data, row)), highlight=False)


def compare(data: Path, row: Published) -> Sequence[str]:
    """The cells of one policy beside its published value."""
    cluster = parse_cluster(row.cluster)
    with mute_solvers():
        report = simulate(load_trace(data, row.trace, cluster), row.policy, cluster)
    dsr = count_met(report)
    difference = dsr - row.dsr
    return (
        row.figure,
        row.trace,
        row.cluster,
        row.policy,
        f"{row.dsr:.3f}{'p' if row.plotted else ' '}",
        f"{dsr:.3f}",
        f"{difference:+.3f}",
        "differs" if abs(difference) > POINTS else "",
        str(report.late_admitted),
        f"{report.cpu_s:.2f}",
    )


def count_met(report: SimulationReport) -> float:
    """The share of deadlines met, promised or not: what the published counters count."""
    return (report.met + report.met_unpromised) / max(1, report.jobs - report.best_effort_jobs)


def print_ranking(console: Console, data: Path, chosen: Sequence[str]) -> None:
    """Fig 10 on our own generator: only the order can be compared, the published trace is not at hand."""
    cluster = parse_cluster("16x8:a100")
    profiles = read_profiles(data / "profiles", cluster.device_types)
    trace = draw_trace(
        parse_workload(FIGURE_10_WORKLOAD), Scenario(cluster, profiles, parse_overhead("elasticflow", cluster.total))
    )
    console.print(f"\nFig 10, ranking only, on {trace.name} and {cluster.describe()}", style="bold")
    for policy, (published, *_) in FIGURE_10.items():
        if not chosen or policy in chosen:
            with mute_solvers():
                report = simulate(trace, policy, cluster)
            figures = f"mean JCT {(report.avg_jct_s or 0) / 3600:5.1f} h, efficiency {report.cluster_efficiency:.3f}"
            console.print(
                f"{policy:14} published {published:.2f}  ours {count_met(report):.3f}  {figures}", highlight=False
            )


if __name__ == "__main__":
    main()
