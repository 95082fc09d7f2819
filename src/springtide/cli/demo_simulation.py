"""The simulated half of `springtide demo`: one synthetic day under several policies, as a table.

It needs neither torch nor a server: seconds to run, the same code that decides live, on a virtual clock.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from springtide.simulator.reports import SimulationReport

CLUSTER = "4x8:a100"
WORKLOAD = "jobs=150,gap=500,seed=7,best_effort=0.1"
POLICIES = ("fifo", "edf", "tiresias", "elasticflow", "springtide")


def simulate_demo() -> list["SimulationReport"]:
    """The reports of the built-in workload under every policy of the comparison."""
    from springtide.core.devices import parse_cluster
    from springtide.simulator.front import simulate
    from springtide.simulator.scenarios import Scenario
    from springtide.simulator.workloads import draw_trace, parse_workload
    from springtide.throughput.overheads import parse_overhead
    from springtide.throughput.tables.profiles import read_profiles

    cluster = parse_cluster(CLUSTER)
    profiles = read_profiles(None, cluster.device_types)
    trace = draw_trace(
        parse_workload(WORKLOAD), Scenario(cluster, profiles, parse_overhead("elasticflow", cluster.total))
    )
    return [simulate(trace, policy, cluster) for policy in POLICIES]


def print_reports(reports: list["SimulationReport"]) -> None:
    """One line per policy: deadlines met, promises broken, mean completion time, rescales."""
    from rich.console import Console
    from rich.table import Table

    table = Table("policy", title=f"the same {reports[0].jobs} jobs on {reports[0].gpus} simulated devices")
    for heading in ("deadlines met", "promises broken", "declined", "mean hours", "rescales"):
        table.add_column(heading, justify="right")
    for report in reports:
        broken = str(report.late_admitted) if report.policy in PROMISING else "promises nothing"
        hours = "-" if report.avg_jct_s is None else f"{report.avg_jct_s / 3600:.1f}"
        met = f"{report.met + report.met_unpromised} of {report.jobs - report.best_effort_jobs}"
        table.add_row(report.policy, met, broken, str(report.declined), hours, str(report.rescales))
    Console(width=None if sys.stdout.isatty() else 110).print(table)


PROMISING = frozenset({"elasticflow", "springtide"})
