"""With what probability a promise is kept: how far its deadline lies beyond the expected end, in spreads of its speed.

The simulator's rule (`simulator.uncertainty`) on a live job: the logarithm of its time is normal around what is
expected, and one time in twenty it is beyond the slow end of its interval, on which its plan counts. Faults of
machines and steps that were stated wrong are not in it. Pure.
"""

from collections.abc import Iterable
from math import hypot, log
from statistics import NormalDist

from springtide.control.scheduling.speeds import UNSEEN_EPOCH_MARGIN, expect_curve
from springtide.control.storage.records import JobRecord, SpeedRecord

SLOW_END = NormalDist().inv_cdf(0.95)  # spreads between what is expected and the slow end of an interval of 90 %


def measure_spread(speed: SpeedRecord, share: int) -> float:
    """How far the logarithm of a step's time strays at a share; further until time outside steps has been seen."""
    curve = expect_curve(speed, (share,))
    unseen = 0.0 if speed.whole_epoch else log(UNSEEN_EPOCH_MARGIN)
    return hypot(log(curve.rates[0] / curve.low[0]), unseen) / SLOW_END


def judge_promise(
    record: JobRecord, speeds: Iterable[SpeedRecord], now_s: float, slowdown: float = 1.0
) -> float | None:
    """The probability that a job ends by its promised deadline; None where nothing is promised, or nobody can say.

    `slowdown` is what others on its machine make of its time: it may grow or end any moment, so it widens the spread.
    """
    measured = [speed for speed in speeds if speed.points]
    if not record.active or not record.promised or record.missed or not measured:
        return None
    if record.deadline_s is None or record.predicted_s is None or record.deadline_s <= now_s:
        return None
    expected_s = record.predicted_s - now_s
    if expected_s <= 0:
        return 1.0
    planned = [share for _, share in record.plan.segments] if record.plan is not None else []
    share = len(record.devices) or max(planned, default=0) or 1
    spread = hypot(max(measure_spread(speed, share) for speed in measured), log(slowdown) / SLOW_END)
    return NormalDist().cdf(log((record.deadline_s - now_s) / expected_s) / spread)


def tell_chance(chance: float) -> str:
    """A probability in words; nothing is certain."""
    return "more than 99 %" if chance > 0.99 else "less than 1 %" if chance < 0.01 else f"about {100 * chance:.0f} %"
