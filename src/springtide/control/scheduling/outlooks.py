"""The history of what was predicted of a job: when it should end as expected, and as its promise counts.

Kept so that everybody can see whether a prediction flinched. Pure but for the staging it writes to.
"""

from math import inf

from springtide.control.scheduling.live_jobs import predict_finish
from springtide.control.scheduling.live_world import find_rate
from springtide.control.storage.records import PredictionRecord
from springtide.control.storage.staging import Staging
from springtide.core.decisions import JobView

LEAST_MOVE_S = 1.0
LEAST_MOVE = 0.01  # of the time that is left: smaller moves cannot be seen in a chart


def note_outlook(staging: Staging, view: JobView, predicted_s: float, now_s: float) -> None:
    """Stage the prediction of a job, if it moved enough to be seen since the last one."""
    last = staging.predictions.get(view.job.id)
    late_s = predict_late(view, now_s)
    if last is None or has_moved(last.predicted_s, predicted_s, now_s) or has_moved(last.late_s, late_s, now_s):
        staging.add_prediction(PredictionRecord(view.job.id, now_s, predicted_s, late_s))


def predict_late(view: JobView, now_s: float) -> float | None:
    """When a job ends at the speeds that promises count on: the slow end of what is known, not what is expected."""
    job, promise = view.job, view.promise
    curve = job.curve if job.typed is None or promise is None else job.typed.curves.get(promise.device_type, job.curve)
    planned = dict(zip(curve.shares, curve.rates, strict=True))
    late_s = predict_finish(view, find_rate(job, view.share, view.mix), planned, now_s)
    return None if late_s == inf else late_s


def has_moved(before_s: float | None, after_s: float | None, now_s: float) -> bool:
    """Whether an instant moved by more than a hundredth of the time until then."""
    if before_s is None or after_s is None:
        return before_s is not after_s
    return abs(after_s - before_s) > max(LEAST_MOVE_S, LEAST_MOVE * (after_s - now_s))
