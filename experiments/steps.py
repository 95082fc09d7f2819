"""Step functions over time, as recordings keep them: their value at an instant and their mean over a while."""

from bisect import bisect_right
from itertools import pairwise

from springtide.simulator.recordings import Steps


def value_at(steps: Steps, at_s: float) -> int:
    """The value that holds at an instant; 0 before the first step."""
    place = bisect_right(steps, at_s, key=lambda step: step[0])
    return steps[place - 1][1] if place else 0


def average_over(steps: Steps, start_s: float, end_s: float) -> float:
    """The mean value between two instants."""
    inside = [(since_s, value) for since_s, value in steps if start_s < since_s < end_s]
    points = [(start_s, value_at(steps, start_s)), *inside, (end_s, 0)]
    area = sum(value * (after_s - since_s) for (since_s, value), (after_s, _) in pairwise(points))
    return area / (end_s - start_s)
