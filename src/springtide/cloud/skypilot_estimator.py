"""A run-time estimator for SkyPilot's `Task.set_time_estimator`, from a points file.

    from springtide.cloud.estimators import estimate_run_time
    task.set_time_estimator(estimate_run_time("points.csv", steps=90_000, global_batch=1024))

SkyPilot calls it with one `Resources` at a time and wants seconds. This module and all it imports need nothing but the
standard library, numpy and scipy; SkyPilot itself is only looked at, not imported.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from springtide.cloud.catalog import normalise
from springtide.cloud.plans import Work
from springtide.cloud.splitting import cut_alone
from springtide.cloud.step_times import Speeds, measure_speeds
from springtide.errors import CatalogError
from springtide.throughput.tables.points import read_points

STARTUP_S = 300.0


def estimate_run_time(
    points: str | Path, steps: int, global_batch: int, model: str | None = None, num_nodes: int = 1
) -> Callable[[Any], float]:
    """A function from SkyPilot resources to the seconds a job takes on so many nodes of them."""
    measured = read_points(Path(points))
    name = model or measured[0].layout.model
    speeds = measure_speeds(measured, [], name)
    work = Work(name, steps, global_batch)

    def estimate(resources: Any) -> float:
        return _estimate(speeds, work, num_nodes, resources)

    return estimate


def _estimate(speeds: Speeds, work: Work, nodes: int, resources: Any) -> float:
    accelerators = dict(resources.accelerators or {})
    speed = speeds.get(normalise(str(getattr(resources, "instance_type", "") or "")))
    for device_type in accelerators:
        speed = speed or speeds.get(normalise(device_type))
    if speed is None or not accelerators:
        known = ", ".join(found.device_type for found in speeds.values())
        raise CatalogError(f"resources {resources} have no measured device type; there are points of {known}")
    per_node = int(next(iter(accelerators.values())))
    cut = cut_alone(speed, np.array([float(nodes)]), per_node, work)
    return STARTUP_S + work.steps * float(np.exp(cut.log_step[0]))
