"""Curves for the scheduler from few points, and better ones as the job runs.

What a running job shows of its steps becomes points too, weighted by how many steps they average, so that a curve moves
from what was profiled to what is observed. The old points stay: they know the shares the job does not hold now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from springtide.core.curves import Curve
from springtide.throughput.points import Layout, Point, make_layout
from springtide.throughput.predictions import Predictor

STEPS_PER_POINT = 20  # as many as a profile averages
LARGEST_WEIGHT = 10.0  # so that one long phase does not drown the other shares


@dataclass(frozen=True, slots=True)
class Observation:
    """The mean step time over so many steps of a running job in one layout."""

    layout: Layout
    step_s: float
    steps: int


@dataclass(frozen=True, slots=True)
class Task:
    """A job as its curve sees it: what it trains, on which devices, how its global batch is cut."""

    model: str
    device_type: str
    global_batch: int
    per_node: int
    logical_workers: int | None = None


def add_observations(points: Sequence[Point], observed: Iterable[Observation]) -> list[Point]:
    """The points with what was observed since, each weighted by its steps."""
    weighted = [
        replace(Point(seen.layout, seen.step_s), weight=min(seen.steps / STEPS_PER_POINT, LARGEST_WEIGHT))
        for seen in observed
        if seen.steps > 0
    ]
    return [*points, *weighted]


def predict_curve(predictor: Predictor, task: Task, shares: Sequence[int]) -> Curve:
    """Steps per second at each share, with the pessimistic end of the interval.

    With logical workers each device runs ceil(L / share) of them in turn: one full step, then compute alone.
    """
    rates, low = [], []
    for share in shares:
        layout, turns = _cut(task, share)
        alone = make_layout(task.model, task.device_type, 1, 1, layout.local_batch)
        step, turn = predictor.predict([layout, alone])
        rates.append(1 / (step.step_s + (turns - 1) * turn.step_s))
        low.append(1 / (step.high_s + (turns - 1) * turn.high_s))
    return Curve(tuple(shares), tuple(rates), tuple(low))


def _cut(task: Task, share: int) -> tuple[Layout, int]:
    """The layout of a share that fills whole nodes, and the turns each device takes."""
    workers = task.logical_workers
    turns = ceil(workers / share) if workers else 1
    batch = task.global_batch / workers if workers else task.global_batch / share
    return make_layout(task.model, task.device_type, ceil(share / task.per_node), share, batch), turns
