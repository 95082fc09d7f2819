"""Promises said and kept at 50 to 99.9 %, under wrong speeds, wrong steps and failing nodes: the price of each nine.

    python -m benchmarks.calibration [--with-data DIR] [--jobs 300] [--seeds 3] [--plot FILE] [--record FILE]
                                     [--only "steps 10"]

Drawn workloads, and with --with-data two published traces at a quarter of their size. *said* is the mean probability
that promises were made with, *kept* the share of them that was kept. Bars: within 2 points, broken no more than said. A
second table puts the promises of each setting into five bins by what was said of each: means may agree where bins do
not. Runs in --record are not made again, so that a run that was broken off goes on where it ended.
"""

import argparse
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console

from benchmarks.elasticflow_data import load_trace, shrink
from benchmarks.kept_runs import KeptRuns
from springtide.core.devices import Cluster, parse_cluster
from springtide.simulator.batches import mute_solvers
from springtide.simulator.calibration import UncertainReport, replay_uncertain
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace
from springtide.simulator.uncertainty import Faults, Uncertainty
from springtide.simulator.workloads import Workload, draw_trace
from springtide.throughput.overheads import parse_overhead

CONFIDENCES = (0.5, 0.9, 0.95, 0.99, 0.999)
SETTINGS = {
    "speed 5 %": Uncertainty(speed_error=0.05),
    "speed 15 %": Uncertainty(speed_error=0.15),
    "steps 10 %": Uncertainty(steps_error=0.1),
    "speed 5 %, a failure per 100 node-hours": Uncertainty(speed_error=0.05, faults=Faults(mtbf=100.0)),
    "speed 5 %, one node in ten slow": Uncertainty(speed_error=0.05, faults=Faults(slow=0.1)),
}
PUBLISHED = (("195job", "16x8:a100"), ("cluster10", "32x8:a100"))
BINS = (0.0, 0.8, 0.9, 0.95, 0.99)  # where each begins
BIN_LAYOUT = "{:42}" + " {:>20}" * len(BINS)
LAYOUT = "{:42} {:>10} {:>8} {:>7} {:>7} {:>7} {:>7} {:>9} {:7}"


@dataclass(frozen=True, slots=True)
class PooledRow:
    """All workloads of one setting at one confidence."""

    setting: str
    confidence: float
    promised: int
    said: float
    kept: float
    dsr: float


def main() -> None:
    """Print the table, and draw the price of each nine where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with-data", type=Path, help="folder of the public data: two published traces, too")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policy", default="springtide")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--record", type=Path, help="where finished runs are kept (JSON lines)")
    parser.add_argument("--only", default="", help="errors and faults whose name contains this")
    args = parser.parse_args()
    settings = {name: setting for name, setting in SETTINGS.items() if args.only in name}
    record = KeptRuns(args.record)
    workloads = [*draw_workloads(args.jobs, args.seeds), *read_published(args.with_data)]
    console = Console(width=160)
    heads = ("errors and faults", "confidence", "promised", "said", "kept", "differ", "broken", "deadlines", "")
    console.print(LAYOUT.format(*heads), style="bold")
    rows: list[PooledRow] = []
    outcomes: dict[str, list[tuple[float, bool]]] = {}
    for name, setting in settings.items():
        outcomes[name] = []
        for confidence in CONFIDENCES:
            reports = run_all(workloads, args.policy, replace(setting, confidence=confidence), record)
            rows.append(pool(name, confidence, reports))
            outcomes[name] += [pair for report in reports for pair in report.outcomes]
            console.print(LAYOUT.format(*show(rows[-1])), highlight=False)
    print_bins(console, outcomes)
    if args.plot is not None:
        draw_plot(args.plot, rows)


def print_bins(console: Console, outcomes: Mapping[str, Sequence[tuple[float, bool]]]) -> None:
    """What was kept of the promises of each bin, over all confidences of a setting."""
    ends = [*[f"{end:g}" for end in BINS[1:]], "1"]
    heads = [f"said {begin:g} to {end}" for begin, end in zip(BINS, ends, strict=True)]
    console.print(BIN_LAYOUT.format("said, kept (promises)", *heads), style="bold")
    for name, pairs in outcomes.items():
        console.print(BIN_LAYOUT.format(name, *map(show_bin, bin_outcomes(pairs))), highlight=False)


def bin_outcomes(outcomes: Sequence[tuple[float, bool]]) -> list[list[tuple[float, bool]]]:
    """The promises of each bin, by the probability that was said."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in BINS]
    for said, met in outcomes:
        bins[bisect_right(BINS, said) - 1].append((said, met))
    return bins


def show_bin(outcomes: Sequence[tuple[float, bool]]) -> str:
    """The mean that was said, the share that was kept, and of how many."""
    if not outcomes:
        return "-"
    return f"{fmean(said for said, _ in outcomes):.3f}, {fmean(met for _, met in outcomes):.3f} ({len(outcomes)})"


def draw_workloads(jobs: int, seeds: int) -> Iterable[tuple[Trace, Cluster]]:
    """Drawn workloads on 32 devices, busy and less busy."""
    cluster = parse_cluster("4x8:a100")
    scenario = load_scenario(cluster, None, parse_overhead("elasticflow", cluster.total))
    for seed in range(seeds):
        for gap in (600.0, 1500.0):
            yield draw_trace(Workload(jobs=jobs, gap=gap, seed=seed), scenario), cluster


def read_published(data: Path | None) -> Iterable[tuple[Trace, Cluster]]:
    """Published traces on a quarter of their clusters."""
    for trace, cluster in PUBLISHED if data is not None else ():
        machines = parse_cluster(shrink(cluster, 4))
        assert data is not None
        yield load_trace(data, trace, machines), machines


def run_all(
    workloads: Sequence[tuple[Trace, Cluster]], policy: str, uncertain: Uncertainty, record: KeptRuns
) -> list[UncertainReport]:
    """One report per workload, each with a seed of its own."""
    return [
        run_one(trace, cluster, policy, replace(uncertain, seed=seed), record)
        for seed, (trace, cluster) in enumerate(workloads)
    ]


def run_one(trace: Trace, cluster: Cluster, policy: str, uncertain: Uncertainty, record: KeptRuns) -> UncertainReport:
    """The report of a workload, from the record if it is there."""
    key = f"{trace.name}, {len(trace.jobs)} jobs, {cluster.describe()}, {policy}, {uncertain}"
    kept = record.read().get(key)
    if kept is not None:
        return UncertainReport(**kept | {"outcomes": tuple((said, met) for said, met in kept["outcomes"])})
    with mute_solvers():
        report = replay_uncertain(trace, policy, cluster, uncertain)
    record.add(key, asdict(report))
    return report


def pool(setting: str, confidence: float, reports: Sequence[UncertainReport]) -> PooledRow:
    """The reports of one setting taken together, promise by promise."""
    promised = sum(report.promised for report in reports)
    said = sum((report.said or 0.0) * report.promised for report in reports) / promised
    kept = 1.0 - sum(report.broken for report in reports) / promised
    jobs = sum(report.jobs for report in reports)
    dsr = sum((report.dsr or 0.0) * report.jobs for report in reports) / jobs
    return PooledRow(setting, confidence, promised, said, kept, dsr)


def show(row: PooledRow) -> tuple[str, ...]:
    """The cells of one line."""
    return (
        row.setting,
        f"{row.confidence:g}",
        str(row.promised),
        f"{row.said:.3f}",
        f"{row.kept:.3f}",
        f"{row.kept - row.said:+.3f}",
        f"{1.0 - row.kept:.3f}",
        f"{row.dsr:.3f}",
        "ok" if row.kept >= row.confidence and abs(row.kept - row.said) <= 0.02 else "OFF",
    )


def draw_plot(path: Path, rows: Sequence[PooledRow]) -> None:
    """Said against kept, and deadlines met against confidence."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in dict.fromkeys(row.setting for row in rows):
        mine = [row for row in rows if row.setting == name]
        left.plot([row.said for row in mine], [row.kept for row in mine], "o-", label=name)
        right.plot(range(len(mine)), [row.dsr for row in mine], "o-", label=name)
    low = min(min(row.said, row.kept) for row in rows) - 0.01
    left.plot([low, 1.0], [low, 1.0], color="grey", linewidth=0.8)
    left.set(xlabel="said (mean probability)", ylabel="kept (share of promises)")
    right.set_xticks(range(len(CONFIDENCES)), [f"{one:g}" for one in CONFIDENCES])
    right.set(xlabel="confidence asked of a promise", ylabel="deadlines met")
    left.legend(fontsize=8)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
