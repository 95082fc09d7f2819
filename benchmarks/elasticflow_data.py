"""The public ElasticFlow traces and profiles for the scheduling benchmarks, by `--data` or $SPRINGTIDE_DATA."""

import argparse
import os
import sys
from functools import cache
from pathlib import Path

from springtide.core.devices import Cluster, parse_cluster
from springtide.simulator.scenarios import Scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.throughput.overheads import parse_overhead
from springtide.throughput.tables.profiles import Profiles, read_profiles

FOLDERS = ("traces/elasticflow", "traces/elasticflow-artifact")
MISSING = """no data: give the folder that holds traces/elasticflow/NAME.csv and profiles/TYPE/MODEL.csv (the public
ElasticFlow traces and tables) with --data DIR or $SPRINGTIDE_DATA"""


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Let a benchmark be told where the data is."""
    parser.add_argument("--data", type=Path, default=os.environ.get("SPRINGTIDE_DATA"), metavar="DIR")


def require_data(folder: Path | None) -> Path:
    """The data folder, or a clear message and the end of the benchmark, as for other bad input."""
    if folder is None or not (Path(folder) / "profiles").is_dir():
        print(MISSING, file=sys.stderr)
        raise SystemExit(2)
    return Path(folder)


def load_trace(data: Path, name: str, cluster: Cluster, overhead: str = "elasticflow") -> Trace:
    """A trace by its short name, on a cluster, with the published speeds."""
    path = next(path for folder in FOLDERS if (path := data / folder / f"{name}.csv").is_file())
    setting = Scenario(cluster, _load_profiles(data, cluster.device_types), parse_overhead(overhead, cluster.total))
    return read_trace(path, setting)


@cache
def _load_profiles(data: Path, device_types: tuple[str, ...]) -> Profiles:
    return read_profiles(data / "profiles", device_types)


def shrink(cluster: str, divisor: int) -> str:
    """The cluster with so many times fewer nodes."""
    group = parse_cluster(cluster).groups[0]
    return f"{group.nodes // divisor}x{group.devices_per_node}:{group.device_type}"
