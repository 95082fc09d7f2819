"""With what probability a job ends in time: its time is known within an interval, and faults may undo some work.

One rule for both clocks: the simulator says it of a promise when it is made, a server of how it stands now.
"""

from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

MOST_FAULTS = 1000  # of one job
RARE = 1e-9  # a probability that is left out
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class FaultReserve:
    """Faults that a job is expected to meet, and those that are reserved for: `reserved` is the part of its work.

    `undone` is the part of its work that one of them takes on average.
    """

    expected: float = 0.0
    reserved: float = 0.0
    undone: float = 0.0


NO_RESERVE = FaultReserve()


def find_chance(room: float, reserve: FaultReserve, spread: float, confidence: float) -> float:
    """The probability that a job takes no more than `room` times what is planned for it.

    What is planned holds for the slow end of its time and for the faults reserved for. With k faults the rest of the
    job may take what they leave: their number is Poisson's, the logarithm of its time normal.
    """
    normal, chance, total = NormalDist(), exp(-reserve.expected), 0.0
    for faults in range(MOST_FAULTS):
        if faults:
            chance *= reserve.expected / faults
        left = (room - faults * reserve.undone) / (1.0 - reserve.reserved)
        if (chance < RARE and faults > reserve.expected) or left <= 0:
            break
        if spread > 0:
            total += chance * normal.cdf(log(left) / spread + normal.inv_cdf(confidence))
        elif left >= 1.0 - ROUNDING:
            total += chance
    return min(total, 1.0)
