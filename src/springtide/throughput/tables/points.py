"""Measured points: the step time of one model in one layout, read from CSV, checked row by row, given as columns.

A file has the columns `model,device_type,nodes,devices,local_batch,step_s` and optionally `max_per_node` (devices on
the fullest node) and `sync_s`. A query file is the same without `step_s`. What cannot be right is refused here, with
its row and the rule; what is merely noisy is left to the fit, which is robust. Nothing is fitted here.

Beside `x.points.csv` may lie `x.points.json`, the notes of `springtide profile`: sizes, transport, noise; no times.
Planning reads from them what a job's file need not repeat.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.errors import ProfileError
from springtide.throughput.tables.csv_rows import read_rows

LAYOUT_COLUMNS = ("model", "device_type", "nodes", "devices", "local_batch")
POINT_COLUMNS = (*LAYOUT_COLUMNS, "step_s")
OPTIONAL_COLUMNS = ("max_per_node", "sync_s")
SUFFIX = ".points.csv"

Array = NDArray[np.float64]

LONGEST_STEP_S = 3600.0
# Repeats of one configuration on real clusters differ by 11 % at the 90th percentile; a factor of three is no noise.
CONTRADICTION_RATIO = 3.0
# More devices at the same local batch cannot shorten a step; this leaves room for noise on the faster side.
SPEEDUP_AT_SAME_BATCH = 0.55


@dataclass(frozen=True, slots=True)
class Layout:
    """A model on some devices: how many, on how many nodes, how full the fullest node is, samples per device."""

    model: str
    device_type: str
    nodes: int
    devices: int
    local_batch: float
    max_per_node: int

    @property
    def group(self) -> tuple[str, str]:
        """What is fitted together: one model on one device type."""
        return self.model, self.device_type


@dataclass(frozen=True, slots=True)
class Point:
    """A layout with its measured step time, and the time of synchronisation where it was measured apart."""

    layout: Layout
    step_s: float
    sync_s: float | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Query:
    """A layout whose step time is asked for, with the cells of its row as given."""

    layout: Layout
    cells: Mapping[str, str]


def read_points(path: Path) -> list[Point]:
    """The points of a file, each checked alone and against the others of its model."""
    points = [_read_point(where, cells) for where, cells in read_rows(path, POINT_COLUMNS)]
    if not points:
        raise ProfileError(f"{path}: holds no points; give at least two rows under the header")
    check_points(points, str(path))
    return points


def read_queries(path: Path) -> list[Query]:
    """The layouts a query file asks for, in its order."""
    queries = [Query(_read_layout(where, cells), cells) for where, cells in read_rows(path, LAYOUT_COLUMNS)]
    if not queries:
        raise ProfileError(f"{path}: asks for nothing; give at least one row under the header")
    return queries


def write_points(points: Iterable[Point]) -> str:
    """These points as the text of a CSV file that `read_points` accepts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*POINT_COLUMNS, *OPTIONAL_COLUMNS))
    for point in points:
        at = point.layout
        sync = "" if point.sync_s is None else f"{point.sync_s:.9g}"
        row = (at.model, at.device_type, at.nodes, at.devices, f"{at.local_batch:.9g}", f"{point.step_s:.9g}")
        writer.writerow((*row, at.max_per_node, sync))
    return text.getvalue()


def group_points(points: Iterable[Point]) -> dict[tuple[str, str], list[Point]]:
    """Points by (model, device type), in order of first appearance."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault(point.layout.group, []).append(point)
    return groups


def make_layout(
    model: str, device_type: str, nodes: int, devices: int, local_batch: float, max_per_node: int | None = None
) -> Layout:
    """A layout with the fullest node as even as it can be, unless it is given."""
    return Layout(model, device_type, nodes, devices, local_batch, max_per_node or ceil(devices / nodes))


Line = tuple[int, Point]  # a point and where it stands: the header is line 1


def check_points(points: Sequence[Point], origin: str) -> None:
    """Refuse points that contradict each other or whose batch cannot be per device; errors count lines from 2."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for number, point in enumerate(points, start=2):
        groups.setdefault(point.layout.group, []).append((number, point))
    for lines in groups.values():
        _check_repeats(lines, origin)
        _check_batch_unit(lines, origin)


def _check_repeats(lines: Sequence[Line], origin: str) -> None:
    fastest: dict[Layout, Line] = {}
    slowest: dict[Layout, Line] = {}
    for line in lines:
        at = line[1].layout
        low = fastest[at] = min(line, fastest.get(at, line), key=lambda found: found[1].step_s)
        high = slowest[at] = max(line, slowest.get(at, line), key=lambda found: found[1].step_s)
        if high[1].step_s > CONTRADICTION_RATIO * low[1].step_s:
            raise ProfileError(
                f"{origin}, lines {min(low[0], high[0])} and {max(low[0], high[0])}: {at.model!r} on {at.devices} "
                f"{at.device_type!r} of {at.nodes} nodes at local batch {at.local_batch:g} took both "
                f"{low[1].step_s:g} s and {high[1].step_s:g} s; repeats of one configuration may differ by a factor "
                f"of {CONTRADICTION_RATIO:g} at most; remove the wrong row"
            )


def _check_batch_unit(lines: Sequence[Line], origin: str) -> None:
    """Refuse a batch that is the same for all counts while the step gets shorter as for a divided batch.

    Compared is with the fewest devices of one node: between nodes, odd pairs of counts do differ that much.
    """
    by_batch: dict[float, dict[tuple[int, int], tuple[float, int]]] = {}
    for number, point in lines:
        steps = by_batch.setdefault(point.layout.local_batch, {})
        place, found = (point.layout.nodes, point.layout.devices), (point.step_s, number)
        steps[place] = min(found, steps.get(place, found))
    for batch, steps in sorted(by_batch.items()):
        (nodes, fewer), (before_s, first) = min(steps.items())
        for (_, more), (after_s, second) in sorted(steps.items()):
            if nodes == 1 and more > fewer and after_s < SPEEDUP_AT_SAME_BATCH * before_s:
                raise ProfileError(
                    f"{origin}, lines {first} and {second}: at local_batch {batch:g} a step of "
                    f"{point.layout.model!r} takes {before_s:g} s on {fewer} devices and {after_s:g} s on {more}: "
                    f"the same work per device cannot get that much faster, so this looks like the global batch; "
                    f"local_batch is samples per device (global batch / devices)"
                )


def _read_point(where: str, cells: Mapping[str, str]) -> Point:
    layout = _read_layout(where, cells)
    step_s = _read_number(where, "step_s", cells.get("step_s", ""))
    if step_s > LONGEST_STEP_S:
        raise ProfileError(f"{where}: step_s {step_s:g} is above {LONGEST_STEP_S:g}; give seconds per step, not ms")
    sync = cells.get("sync_s", "")
    return Point(layout, step_s, _read_number(where, "sync_s", sync, zero=True) if sync else None)


def _read_layout(where: str, cells: Mapping[str, str]) -> Layout:
    for name in ("model", "device_type"):
        if not cells.get(name):
            raise ProfileError(f"{where}: {name} is empty; name the {name.replace('_', ' ')}")
    nodes, devices = (_read_count(where, name, cells.get(name, "")) for name in ("nodes", "devices"))
    batch = _read_number(where, "local_batch", cells.get("local_batch", ""))
    if devices < nodes:
        raise ProfileError(f"{where}: {devices} devices on {nodes} nodes; every node holds at least one device")
    fullest = cells.get("max_per_node", "")
    most = _read_count(where, "max_per_node", fullest) if fullest else ceil(devices / nodes)
    if not ceil(devices / nodes) <= most <= devices - nodes + 1:
        raise ProfileError(
            f"{where}: max_per_node {most} does not fit {devices} devices on {nodes} nodes; "
            f"it lies between {ceil(devices / nodes)} and {devices - nodes + 1}"
        )
    return Layout(cells["model"], cells["device_type"], nodes, devices, batch, most)


def _read_count(where: str, name: str, text: str) -> int:
    value = _read_number(where, name, text)
    if value != int(value):
        raise ProfileError(f"{where}: {name} {text!r} must be a whole number")
    return int(value)


def _read_number(where: str, name: str, text: str, zero: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ProfileError(f"{where}: {name} {text!r} is not a number") from None
    if not isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ProfileError(f"{where}: {name} {text!r} must be a positive number")
    return value


@dataclass(frozen=True, slots=True)
class Columns:
    """Layouts of one model and device type, one entry per layout in each column."""

    nodes: Array
    devices: Array
    fullest: Array  # devices on the fullest node
    batch: Array  # samples per device

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured layouts with the logarithm of their step seconds and their weights."""

    at: Columns
    log_step: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.log_step)


def make_columns(layouts: Iterable[Layout]) -> Columns:
    """These layouts as columns."""
    rows = [(at.nodes, at.devices, at.max_per_node, at.local_batch) for at in layouts]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    return Columns(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def make_sample(points: Sequence[Point]) -> Sample:
    """These points as a sample."""
    steps = np.log(np.array([point.step_s for point in points], dtype=np.float64))
    weights = np.array([point.weight for point in points], dtype=np.float64)
    return Sample(make_columns(point.layout for point in points), steps, weights)


def thin_sample(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` of the points, evenly over their order, so that large tables cost no more than they teach."""
    if len(points) <= most:
        return list(points)
    return [points[int(i)] for i in np.linspace(0, len(points) - 1, most).round()]


@dataclass(frozen=True, slots=True)
class Notes:
    """Of a profiled script: samples per step of one logical worker, how many it has, and all its global steps.

    None is not noted; the steps are those of these workers at this batch.
    """

    worker_batch: int | None = None
    logical_workers: int | None = None
    steps: int | None = None


def find_notes_file(points: Path) -> Path:
    """Where the notes of a points file are."""
    return points.with_suffix(".json")


def write_notes(points: Path, notes: Mapping[str, Any]) -> Path:
    """Write notes beside a points file; returns where."""
    target = find_notes_file(points)
    target.write_text(json.dumps({"schema": 1, **notes}, indent=2) + "\n", encoding="utf-8")
    return target


def read_notes(points: Path) -> Notes:
    """The notes beside a points file; empty where there are none, as for a table that was imported."""
    path = find_notes_file(points)
    if not path.is_file():
        return Notes()
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: cannot be read ({error}); profile the script again, or remove it") from None
    if not isinstance(told, dict):
        raise ProfileError(f"{path}: holds no notes of a profile; profile the script again, or remove it")
    return Notes(
        *(_read_noted(path, told, name) for name in ("worker_batch", "script_logical_workers", "script_steps"))
    )


def _read_noted(path: Path, told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ProfileError(f"{path}: {name} {value!r} must be a whole number of at least 1")
    return value
