"""Least squares by Levenberg and Marquardt, with Nielsen's rule for the damping (Madsen, Nielsen, Tingleff 2004).

Twenty lines instead of `scipy.optimize`: the server fits speeds while it decides, and that import takes as long as all
of its others and 44 MB. Meant for what is fitted here: some tens of parameters, each held by a belief.
"""

from collections.abc import Callable

import numpy as np

from springtide.throughput.tables.points import Array

#: Relative change of the cost, or of the parameters, below which a minimum counts as found.
TOLERANCE = 1e-8
FIRST_DAMPING = 1e-3
LEAST_DAMPING = 1e-12
LEAST_GAIN_FACTOR = 1 / 3
#: Part of the promised gain that must have come for a small gain to mean a minimum, and not a step that was too short.
TRUSTED_GAIN = 0.25


def find_minimum(
    residuals: Callable[[Array], Array], jacobian: Callable[[Array], Array], start: Array, scale: Array, most: int
) -> tuple[Array, float]:
    """Parameters near a start whose residuals have the least sum of squares, and half of that sum.

    `scale` is how far each parameter may be expected to move; `most` is how often the residuals are found.
    """
    at, values, slopes = start, residuals(start), jacobian(start) * scale
    cost = 0.5 * float(values @ values)
    if not np.isfinite(cost):
        raise ValueError(f"the residuals at the start {start.tolist()} are not finite; begin elsewhere")
    damping, factor = max(LEAST_DAMPING, FIRST_DAMPING * float((slopes**2).sum(axis=0).max())), 2.0
    for _ in range(most):
        normal, downhill = slopes.T @ slopes, -(slopes.T @ values)
        step = np.linalg.solve(normal + damping * np.eye(len(at)), downhill)
        promised = 0.5 * float(step @ (damping * step + downhill))
        if np.linalg.norm(step) <= TOLERANCE * (TOLERANCE + np.linalg.norm(at / scale)):
            break
        there = at + step * scale
        new_values = residuals(there)
        gained = cost - 0.5 * float(new_values @ new_values)
        if not gained > 0:
            damping, factor = damping * factor, factor * 2
            continue
        at, values, slopes, cost = there, new_values, jacobian(there) * scale, cost - gained
        damping, factor = damping * max(LEAST_GAIN_FACTOR, 1 - (2 * gained / promised - 1) ** 3), 2.0
        if gained <= TOLERANCE * cost and gained > TRUSTED_GAIN * promised:
            break
    return at, cost
