"""EasyScale's workload on 32 V100, 16 P100 and 16 T4: every policy in one run, its specification's figures beside.

    python -m benchmarks.heterogeneous --data DIR [--policies fifo,srtf,...]

Average JCT and makespan in seconds, free rescales and 20 s at every change of devices, on the mini-batch tables as they
are and x1.38, for the 62 jobs that the published simulator runs and for all 68 rows. `first` charges 20 s at the first
start only, as the published simulator does; the bars compare 20 s everywhere with it and with free. Below them stands
what the first starts alone make of that bar: the best schedule at 20 s takes at least 20 s more than the best without
costs (shift its work 20 s earlier, and it is one without costs).
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.elasticflow_data import add_data_option, require_data
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, Overhead
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace, read_trace

CLUSTER = "4x8:v100,2x8:p100,4x4:t4"
POLICIES = ("yarn-cs", "fifo", "fifo-backfill", "srtf", "easyscale-homo", "easyscale-heter", "springtide")
COSTS = {"free": FREE, "first": Overhead(start_s=20.0), "20 s": Overhead(base_s=20.0)}
# average JCT / makespan of the published simulator on these tables (60 s rounds, 20 s at the first start only)
PUBLISHED = {
    ("yarn-cs", 1.0): "6228/13020",
    ("fifo", 1.0): "4761/10140",
    ("fifo-backfill", 1.0): "2600/9240",
    ("srtf", 1.0): "565/9480",
    ("easyscale-homo", 1.0): "566/5340",
    ("easyscale-heter", 1.0): "503/5220",
    ("yarn-cs", 1.38): "8772/16320",
    ("fifo", 1.38): "6923/12720",
    ("fifo-backfill", 1.38): "3757/11700",
    ("srtf", 1.38): "705/12060",
    ("easyscale-homo", 1.38): "1100/6780",
    ("easyscale-heter", 1.38): "860/5640",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One way to read the workload: how much slower than the tables, and whether repeated names overwrite."""

    time_scale: float
    last_only: bool

    def describe(self) -> str:
        """The case in words."""
        return f"tables x{self.time_scale:g}, {62 if self.last_only else 68} jobs"


def main() -> None:
    """Print a table per case, and the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args()
    data, policies = require_data(args.data), args.policies.split(",")
    for case in (Case(1.0, True), Case(1.38, True), Case(1.0, False), Case(1.38, False)):
        reports = {(policy, cost): run_one(data, case, policy, COSTS[cost]) for policy in policies for cost in COSTS}
        print_case(case, policies, reports)
        if case.last_only:
            print_bars(case, policies, reports)


def run_one(data: Path, case: Case, policy: str, overhead: Overhead) -> SimulationReport:
    """One policy on the workload."""
    with mute_solvers():
        return simulate(load_workload(data, case, overhead), policy, parse_cluster(CLUSTER))


def load_workload(data: Path, case: Case, overhead: Overhead) -> Trace:
    """The workload as read for a case."""
    setting = load_scenario(parse_cluster(CLUSTER), data / "profiles" / "easyscale", overhead, case.time_scale)
    return read_trace(data / "traces" / "easyscale" / "workload.csv", setting, last_of_duplicates=case.last_only)


Reports = dict[tuple[str, str], SimulationReport]


def print_case(case: Case, policies: Sequence[str], reports: Reports) -> None:
    """One line per policy."""
    print(f"\n{case.describe()}: average JCT / makespan in s")
    print(f"{'policy':16} {'spec':>12} " + " ".join(f"{cost:>14}" for cost in COSTS) + "  changes   cpu s")
    for policy in policies:
        spec = PUBLISHED.get((policy, case.time_scale), "-") if case.last_only else "-"
        cells = " ".join(f"{show(reports[policy, cost]):>14}" for cost in COSTS)
        paid = reports[policy, "20 s"]
        print(f"{policy:16} {spec:>12} {cells} {paid.starts + paid.rescales + paid.migrations:8d} {paid.cpu_s:7.2f}")


def show(report: SimulationReport) -> str:
    """Average JCT and makespan."""
    return f"{jct_s(report):.0f}/{report.makespan_s:.0f}"


def jct_s(report: SimulationReport) -> float:
    """The average completion time; every job of this workload is best effort."""
    assert report.avg_jct_best_effort_s is not None
    return report.avg_jct_best_effort_s


def print_bars(case: Case, policies: Sequence[str], reports: Reports) -> None:
    """What the figures are to reach, measured in the same run."""
    if not {"fifo", "srtf", "easyscale-heter"} <= set(policies):
        return
    paid = {policy: reports[policy, "20 s"] for policy in policies}
    heter = jct_s(paid["easyscale-heter"])
    rows = [
        ("easyscale-heter, 20 s / free", heter / jct_s(reports["easyscale-heter", "free"]), 1.1, "<="),
        ("easyscale-heter, 20 s / first start only", heter / jct_s(reports["easyscale-heter", "first"]), 1.1, "<="),
        ("fifo / easyscale-heter", jct_s(paid["fifo"]) / heter, 7.0, ">="),
    ]
    if "springtide" in policies:
        ours, makespan_s = jct_s(paid["springtide"]), paid["springtide"].makespan_s
        rows += [
            ("springtide / easyscale-heter", ours / heter, 1.0, "<="),
            ("springtide / srtf", ours / jct_s(paid["srtf"]), 1.05, "<="),
            ("springtide / easyscale-heter, makespan", makespan_s / paid["easyscale-heter"].makespan_s, 1.0, "<="),
        ]
    rows.append(("most cpu s of a policy", max(report.cpu_s for report in reports.values()), 1.0, "<="))
    for name, value, bar, sign in rows:
        reached = value <= bar if sign == "<=" else value >= bar
        print(f"  {name:42} {value:7.3f}  ({sign} {bar:g}) {'ok' if reached else 'NOT REACHED'}")
    print_floor(case, policies, reports)


def print_floor(case: Case, policies: Sequence[str], reports: Reports) -> None:
    """How near to its result without costs any policy can come, if every job pays for its first start."""
    start_s = COSTS["20 s"].base_s
    free = {policy: jct_s(reports[policy, "free"]) for policy in policies}
    best = min(free, key=lambda policy: free[policy])
    heter, paid = free["easyscale-heter"], jct_s(reports["easyscale-heter", "20 s"])
    spec_s = float(PUBLISHED["easyscale-heter", case.time_scale].split("/")[0])
    print(f"  easyscale-heter free and {start_s:g} s for each first start: {1.0 + start_s / heter:.3f} of free")
    print(f"  the best schedule at 20 s: at least {1.0 + start_s / free[best]:.3f} of the best without costs ({best})")
    print(f"  easyscale-heter at 20 s: {paid / spec_s:.3f} of the specification's free-rescale {spec_s:g} s")


if __name__ == "__main__":
    main()
