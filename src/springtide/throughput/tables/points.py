"""Measured points: the step time of one model in one layout, read from CSV and checked row by row.

A file has the columns `model,device_type,nodes,devices,local_batch,step_s` and optionally `max_per_node` (devices on
the fullest node) and `sync_s`. A query file is the same without `step_s`. What cannot be right is refused here, with
its row and the rule; what is merely noisy is left to the fit, which is robust. Nothing is fitted here.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path

from springtide.errors import ProfileError

LAYOUT_COLUMNS = ("model", "device_type", "nodes", "devices", "local_batch")
POINT_COLUMNS = (*LAYOUT_COLUMNS, "step_s")
OPTIONAL_COLUMNS = ("max_per_node", "sync_s")

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
    points = [_read_point(where, cells) for where, cells in _read_rows(path, POINT_COLUMNS)]
    if not points:
        raise ProfileError(f"{path}: holds no points; give at least two rows under the header")
    check_points(points, str(path))
    return points


def read_queries(path: Path) -> list[Query]:
    """The layouts a query file asks for, in its order."""
    queries = [Query(_read_layout(where, cells), cells) for where, cells in _read_rows(path, LAYOUT_COLUMNS)]
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


def _read_rows(path: Path, needed: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            header = [name.strip() for name in reader.fieldnames or ()]
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(f"{path}: cannot be read ({error})") from None
    missing = [name for name in needed if name not in header]
    if missing:
        raise ProfileError(f"{path}, line 1: missing column {', '.join(missing)}; needed are {','.join(needed)}")
    return [(f"{path}, line {number}", _clean_row(row)) for number, row in enumerate(rows, start=2)]


def _clean_row(row: Mapping[str | None, str | list[str] | None]) -> dict[str, str]:
    return {name.strip(): value.strip() for name, value in row.items() if name and isinstance(value, str)}


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
