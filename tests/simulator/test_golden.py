"""A small trace and its stored report: a change of any number here is a change of behaviour."""

import json
from pathlib import Path

from springtide.core.devices import parse_cluster
from springtide.simulator.front import simulate
from springtide.simulator.scenarios import Scenario
from springtide.simulator.traces import read_trace
from springtide.throughput.overheads import parse_overhead
from springtide.throughput.tables.profiles import Profiles

GOLDEN = Path(__file__).parent / "golden"


def test_fifo_on_the_golden_trace() -> None:
    cluster = parse_cluster("2x4:a100")
    setting = Scenario(cluster, Profiles("nothing", {}), parse_overhead("elasticflow", cluster.total))
    report = simulate(read_trace(GOLDEN / "trace.csv", setting), "fifo", cluster).to_json()
    del report["wall_s"], report["cpu_s"]
    assert json.dumps(report, indent=2) + "\n" == (GOLDEN / "fifo.json").read_text()
