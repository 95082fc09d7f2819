"""Points and layouts as columns of numbers: what every form computes with. It reads and judges nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from springtide.throughput.tables.points import Layout, Point

Array = NDArray[np.float64]


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
