"""Splits: which rows of a table are fitted and which are predicted. They are rules, and do not change with a form.

A split is a rule over layouts, never over model names, so that it means the same on any table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from springtide.errors import ProfileError
from springtide.throughput.tables.points import Point

Rule = Callable[[Sequence[Point]], tuple[list[Point], list[Point]]]


@dataclass(frozen=True, slots=True)
class Split:
    """A named rule that divides one model's points into those fitted and those predicted."""

    name: str
    what: str
    divide: Rule


def by_devices(fitted: frozenset[int], predicted: frozenset[int]) -> Rule:
    """Fit the points on some device counts, predict those on others."""

    def divide(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
        return (
            [point for point in points if point.layout.devices in fitted],
            [point for point in points if point.layout.devices in predicted],
        )

    return divide


def up_to(most: int) -> Rule:
    """Fit every point on at most so many devices, predict the larger ones."""

    def divide(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
        small = [point for point in points if point.layout.devices <= most]
        return small, [point for point in points if point.layout.devices > most]

    return divide


def nine_probes(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Fit nine probes and predict the rest: one device at three batches; a full node, two and four full nodes at two.

    Full means the most devices any node of this model held. Where a layout was not measured at a batch, the nearest
    batch of that layout is taken; a layout that was never measured is left out.
    """
    full = max(point.layout.max_per_node for point in points)
    wanted = [(1, 1, (0.0, 0.5, 1.0)), *((nodes, full * nodes, (0.0, 1.0)) for nodes in (1, 2, 4))]
    chosen: list[int] = []
    for nodes, devices, quantiles in wanted:
        rows = [
            row for row, point in enumerate(points) if (point.layout.nodes, point.layout.devices) == (nodes, devices)
        ]
        rows.sort(key=lambda row: (points[row].layout.local_batch, row))
        chosen += [rows[round(quantile * (len(rows) - 1))] for quantile in quantiles if rows]
    probes = sorted(set(chosen))
    return [points[row] for row in probes], [point for row, point in enumerate(points) if row not in set(probes)]


SPLITS = {
    split.name: split
    for split in (
        Split(
            "sparse",
            "fit 1, 8, 16 devices; predict 2, 4, 32, 64",
            by_devices(frozenset({1, 8, 16}), frozenset({2, 4, 32, 64})),
        ),
        Split(
            "dense",
            "fit 1, 2, 4, 8, 16 devices; predict 32, 64",
            by_devices(frozenset({1, 2, 4, 8, 16}), frozenset({32, 64})),
        ),
        Split("small", "fit up to 8 devices; predict more", up_to(8)),
        Split("probes", "fit nine probes (1 device, a full node, 2 and 4 full nodes); predict the rest", nine_probes),
    )
}


def find_split(name: str) -> Split:
    """A frozen split by name, or one written as counts: `1,8,16:2,4,32,64`, or `<=8`."""
    if name in SPLITS:
        return SPLITS[name]
    try:
        if name.startswith("<="):
            return Split(name, f"fit up to {int(name[2:])} devices; predict more", up_to(int(name[2:])))
        fitted, predicted = (frozenset(map(int, part.split(","))) for part in name.split(":"))
        return Split(name, f"fit and predict by devices {name}", by_devices(fitted, predicted))
    except ValueError:
        known = "; ".join(f"{split.name}: {split.what}" for split in SPLITS.values())
        raise ProfileError(f"split {name!r} is unknown; there are {known}; or write 1,8,16:2,4 or <=8") from None
