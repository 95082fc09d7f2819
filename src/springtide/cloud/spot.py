"""What spot machines cost in time: checkpoints, lost work and restarts, from the rate at which nodes are taken away.

With N nodes, each revoked at a rate of `lambda` per hour, a job loses a node at rate L = N lambda. Checkpoints of cost
d every t seconds and restarts of R seconds leave the share 1 - d/t - L(t/2 + R) of the time for work, best at Young's
t = sqrt(2 d / L). That is valid while the loss is small; beyond, the share is simulated (seeded, revocations Poisson).
"""

from dataclasses import dataclass
from functools import cache
from math import inf, sqrt

import numpy as np

from springtide.throughput.tables.points import Array

# Young's first-order loss is off by about half its square; at 0.2 that is 2 % of the time.
LARGEST_APPROXIMATE_LOSS = 0.2
SIMULATED_REVOCATIONS = 100_000
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class SpotTerms:
    """How spot is reckoned: revocations per node-hour, seconds for a checkpoint, seconds to come back."""

    revocations_per_node_h: float = 0.1
    checkpoint_s: float = 20.0
    restart_s: float = 300.0


@dataclass(frozen=True, slots=True)
class SpotLoss:
    """The share of time that goes into work, the interval between checkpoints, and how the share was found."""

    share: float
    checkpoint_every_s: float
    simulated: bool


NO_LOSS = SpotLoss(1.0, inf, False)


@cache
def find_loss(nodes: int, terms: SpotTerms) -> SpotLoss:
    """What so many spot nodes leave for work, at Young's interval."""
    rate_per_s = nodes * terms.revocations_per_node_h / HOUR_S
    if rate_per_s == 0:
        return NO_LOSS
    every_s = sqrt(2 * terms.checkpoint_s / rate_per_s) if terms.checkpoint_s else 60.0
    loss = terms.checkpoint_s / every_s + rate_per_s * (every_s / 2 + terms.restart_s)
    if loss <= LARGEST_APPROXIMATE_LOSS:
        return SpotLoss(1 - loss, every_s, False)
    return SpotLoss(_simulate_share(rate_per_s, every_s, terms), every_s, True)


@cache
def _draw_calm() -> Array:
    """Times between two revocations, in means."""
    return np.random.default_rng(0).standard_exponential(SIMULATED_REVOCATIONS)


def _simulate_share(rate_per_s: float, every_s: float, terms: SpotTerms) -> float:
    """The share of time in work over many revocations: between two of them, a restart and then whole pieces."""
    calm_s = _draw_calm() / rate_per_s
    pieces = np.floor(np.maximum(calm_s - terms.restart_s, 0.0) / (every_s + terms.checkpoint_s))
    return float(pieces.sum() * every_s / calm_s.sum())
