"""Published tables read as points: ElasticFlow's speeds by global batch, Pollux' step times by placement.

An importer only translates. ElasticFlow's tables were measured at the best placement: devices fill whole nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from springtide.errors import ProfileError
from springtide.throughput.tables.csv_rows import read_rows
from springtide.throughput.tables.points import Point, make_layout
from springtide.throughput.tables.profiles import read_table

PLACEMENT_COLUMNS = ("placement", "local_bsz", "step_time")
SCALABILITY_COLUMNS = ("num_nodes", "num_replicas", "local_bsz", "step_time")


@dataclass(frozen=True, slots=True)
class TableFormat:
    """Where published tables lie, and what they leave unsaid: the device type and the devices of a full node."""

    path: Path
    device_type: str
    per_node: int


def import_points(source: TableFormat, name: str) -> list[Point]:
    """The points in a table, or in every table of a folder, of a published format."""
    if name not in FORMATS:
        raise ProfileError(f"format {name!r} is unknown; there are {', '.join(FORMATS)}")
    files = sorted(source.path.glob("*.csv")) if source.path.is_dir() else [source.path]
    points = [point for path in files for point in FORMATS[name](path, source)]
    if not points:
        raise ProfileError(f"{source.path}: holds no table of format {name!r}")
    return points


def read_elasticflow(path: Path, source: TableFormat) -> Iterator[Point]:
    """Points of `<model>.csv`: steps per second by global batch (row) and devices (column)."""
    for batch, curve in read_table(path).items():
        for devices, rate in zip(curve.shares, curve.rates, strict=True):
            nodes = ceil(devices / source.per_node)
            yield Point(make_layout(path.stem, source.device_type, nodes, devices, batch / devices), 1 / rate)


def read_pollux(path: Path, source: TableFormat) -> Iterator[Point]:
    """Points of `<model>-placements.csv` (digits: devices on each node) or `<model>-scalability.csv`."""
    model = path.stem.rsplit("-", 1)[0]
    for where, row in read_rows(path):
        try:
            nodes, devices, fullest = _read_place(row)
            layout = make_layout(model, source.device_type, nodes, devices, float(row["local_bsz"]), fullest)
            yield Point(layout, float(row["step_time"]), float(row["sync_time"]) if row.get("sync_time") else None)
        except (KeyError, ValueError) as error:
            raise ProfileError(f"{where}: {error}; needed are {_describe_pollux()}") from None


def _read_place(row: Mapping[str, str]) -> tuple[int, int, int]:
    if "placement" in row:
        counts = [int(digit) for digit in row["placement"]]
        return len(counts), sum(counts), max(counts)
    nodes, devices = int(row["num_nodes"]), int(row["num_replicas"])
    return nodes, devices, ceil(devices / nodes)


def _describe_pollux() -> str:
    return f"{','.join(PLACEMENT_COLUMNS)} or {','.join(SCALABILITY_COLUMNS)}"


FORMATS: Mapping[str, Callable[[Path, TableFormat], Iterable[Point]]] = {
    "elasticflow": read_elasticflow,
    "pollux": read_pollux,
}
