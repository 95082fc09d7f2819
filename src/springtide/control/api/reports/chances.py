"""With what probability a promise is kept: how far its deadline lies beyond the expected end, in spreads of its speed.

The simulator's rule (`throughput.fault_chances`) on a live job: the logarithm of its time is normal around what is
expected, and one time in twenty it is beyond the slow end of its interval, on which its plan counts. Faults come as
often as they have come so far, and each undoes half of what lies between two checkpoints. Steps that were stated wrong,
and devices that a lost machine takes from all, are not in it. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot, log
from statistics import NormalDist

from springtide.control.scheduling.speeds import UNSEEN_EPOCH_MARGIN, expect_curve
from springtide.control.storage.records import JobLedgerEntry, JobRecord, SpeedRecord
from springtide.core.job_states import JobState
from springtide.throughput.fault_chances import NO_RESERVE, FaultReserve, find_chance

SLOW_END = NormalDist().inv_cdf(0.95)  # spreads between what is expected and the slow end of an interval of 90 %


EVEN = 0.5  # the confidence of what is expected: as often sooner as later


@dataclass(frozen=True, slots=True)
class FaultHistory:
    """The faults that jobs went on after, and the device-seconds they had; half a fault is believed beside them.

    Where none was seen, none is expected.
    """

    faults: int = 0
    device_s: float = 0.0

    @property
    def rate(self) -> float:
        """Faults per device-second."""
        return (self.faults + 0.5) / self.device_s if self.faults and self.device_s > 0 else 0.0


NO_FAULTS = FaultHistory()


def read_history(jobs: Iterable[JobLedgerEntry]) -> FaultHistory:
    """The faults so far; those of jobs that failed or were cancelled are left out: most are their script's own."""
    counted = [job for job in jobs if job.state is JobState.SUCCEEDED or job.finished_s is None]
    return FaultHistory(sum(job.faults for job in counted), sum(job.served for job in counted))


def expect_faults(
    record: JobRecord, speeds: Iterable[SpeedRecord], share: int, expected_s: float, history: FaultHistory
) -> FaultReserve:
    """The faults that a job will meet, and what each takes of the time it is expected to need."""
    if not history.rate:
        return NO_RESERVE
    undone_s = record.spec.checkpoint.every_s / 2 + max(speed.startup_s for speed in speeds)
    return FaultReserve(history.rate * share * expected_s, undone=undone_s / expected_s)


def measure_spread(speed: SpeedRecord, share: int) -> float:
    """How far the logarithm of a step's time strays at a share; further until time outside steps has been seen."""
    curve = expect_curve(speed, (share,))
    unseen = 0.0 if speed.whole_epoch else log(UNSEEN_EPOCH_MARGIN)
    return hypot(log(curve.rates[0] / curve.low[0]), unseen) / SLOW_END


def judge_promise(
    record: JobRecord,
    speeds: Iterable[SpeedRecord],
    now_s: float,
    slowdown: float = 1.0,
    history: FaultHistory = NO_FAULTS,
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
    faults = expect_faults(record, measured, share, expected_s, history)
    return find_chance((record.deadline_s - now_s) / expected_s, faults, spread, EVEN)


def tell_chance(chance: float) -> str:
    """A probability in words; nothing is certain."""
    return "more than 99 %" if chance > 0.99 else "less than 1 %" if chance < 0.01 else f"about {100 * chance:.0f} %"
