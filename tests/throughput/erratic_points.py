"""Measurements of clusters that misbehave: heavy-tailed noise, a slow link, a pair of nodes slower than others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp

import numpy as np
from tests.throughput.made_up_points import BATCHES, PLACES

from springtide.throughput.tables.points import Point

Disturb = Callable[[Point, np.random.Generator], float]  # the factor on one measured step


def jitter_heavily(_point: Point, draws: np.random.Generator) -> float:
    """Noise with heavy tails everywhere: Student's t of three degrees, 10 %."""
    return exp(0.10 * float(np.clip(draws.standard_t(3), -6, 12)))


def slow_link(point: Point, draws: np.random.Generator) -> float:
    """A network that is busy with others now and then: a third of all steps across nodes take up to twice as long."""
    usual = exp(0.03 * float(draws.standard_normal()))
    return usual * (1.0 + float(draws.random())) if point.layout.nodes > 1 and draws.random() < 1 / 3 else usual


def slow_pair(point: Point, draws: np.random.Generator) -> float:
    """One pair of nodes is slower: the more nodes, the likelier it is among them."""
    usual = exp(0.03 * float(draws.standard_normal()))
    chance = min(1.0, 0.15 * (point.layout.nodes - 1))
    return usual * 1.6 if draws.random() < chance else usual


KINDS: dict[str, Disturb] = {"heavy tails": jitter_heavily, "slow link": slow_link, "slow pair": slow_pair}

# What is measured of the places and batches that are asked for; of the first, half of the places were never seen.
DESIGNS = {
    "9 points up to 2 nodes": (((1, 1), (1, 4), (2, 8)), (8, 32, 64)),
    "12 points": (PLACES, (8, 64)),
    "24 points": (PLACES, BATCHES),
}


def disturb(points: Sequence[Point], kind: str, seed: int) -> list[Point]:
    """The points as they are measured on such a cluster."""
    draws = np.random.default_rng(seed)
    return [replace(point, step_s=point.step_s * KINDS[kind](point, draws)) for point in points]
