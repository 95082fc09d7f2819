"""When jobs are expected to end: at the speeds that were seen, not at those that a plan dares to count on.

What was expected of a job is kept, so that everybody can see whether a prediction flinched; beside it when the job
should end as its promise counts.
"""

from collections.abc import Mapping
from math import inf

from springtide.control.scheduling.live_jobs import AskedBlend, SpeedsByType, expect_along
from springtide.control.scheduling.live_world import PlatformWorld, find_rate
from springtide.control.storage.records import JobRecord, PredictionRecord, SpeedRecord
from springtide.control.storage.staging import Staging
from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Plan
from springtide.core.jobs import Purpose
from springtide.core.timelines import list_stretches
from springtide.core.typed_curves import Mix, TypedCurves

SETTLED_S = 30.0  # how long a job makes its steps on fewer devices than it holds before that is believed to last
LEAST_MOVE_S = 1.0
LEAST_MOVE = 0.01  # of the time that is left: smaller moves cannot be seen in a chart


def expect_rates(speed: SpeedRecord | None, curve: Curve) -> dict[int, float]:
    """The same, by share."""
    expected = expect_along(speed, curve)
    return dict(zip(expected.shares, expected.rates, strict=True))


def expect_mix(known: SpeedsByType, typed: TypedCurves, mix: Mix) -> float:
    """Expected steps per second on devices of one type or several."""
    if len(mix) == 1:
        ((device_type, share),) = mix.items()
        return (
            expect_rates(known.get(device_type), typed.curves[device_type]).get(share, 0.0)
            if device_type in typed.curves
            else 0.0
        )
    return typed.blend.model.rate(mix) if mix and isinstance(typed.blend, AskedBlend) else 0.0


def predict(
    record: JobRecord, view: JobView, speeds: Mapping[str, SpeedsByType], world: PlatformWorld, now_s: float
) -> float | None:
    """When a job is expected to end, at the speeds that were seen; None while nobody can say."""
    if view.job.purpose is Purpose.PROBE or record.total_steps is None:
        return None
    known = speeds[record.speed_key]
    held, planned = expect(known, view, world.inventory.device_types[0])
    if (used := find_used(record, view, world, now_s)) < view.share:
        held = max((rate for share, rate in planned.items() if share <= used), default=held)
        planned = {share: min(rate, held) for share, rate in planned.items()}
    is_measured = any(speed.points for speed in known.values())
    slowdown = expect_slowdown(record, view, world) if is_measured else 1.0  # what plans count on is slowed already
    finish_s = predict_finish(view, held / slowdown, {share: one / slowdown for share, one in planned.items()}, now_s)
    return None if finish_s == inf else finish_s


def find_used(record: JobRecord, view: JobView, world: PlatformWorld, now_s: float) -> int:
    """On how many of the devices that a job holds it makes its steps.

    Fewer than all for long only where its executor has it leave hosts idle that do not reach each other.
    """
    used = world.used_shares.get(record.id)
    is_settled = used is not None and now_s - used.since_s >= SETTLED_S and record.condition("rescaling") is None
    return min(used.share, view.share) if used is not None and is_settled else view.share


def expect_slowdown(record: JobRecord, view: JobView, world: PlatformWorld) -> float:
    """How many times longer a job takes for others on its machines: as its steps have shown, or else as they tell."""
    inventory = world.inventory
    if not inventory.slowdowns:
        return 1.0
    if record.devices:
        slowest = inventory.find_slowest(record.devices)
        return world.paces.get(record.id, slowest) if slowest > 1.0 else 1.0
    device_type = (view.promise.device_type if view.promise is not None else "") or inventory.device_types[0]
    return inventory.find_slowdown(device_type, view.job.curve.shares[0])


def expect(known: SpeedsByType, view: JobView, only: str) -> tuple[float, dict[int, float]]:
    """Expected steps per second on what a job holds, and by share of what its plan holds ready.

    That is what was seen, not what a plan dares to count on. `only` is the device type where there is but one.
    """
    typed = view.job.typed
    if typed is None:
        rates = expect_rates(known.get(only), view.job.curve)
        return rates.get(view.share, 0.0), rates
    held = expect_mix(known, typed, view.mix or {})
    planned = view.promise.device_type if view.promise is not None else ""
    if planned not in typed.curves:  # a block of several types, held to the end
        return held, {view.share: held}
    return held, expect_rates(known.get(planned), typed.curves[planned])


def predict_finish(view: JobView, held: float, rates: Mapping[int, float], now_s: float) -> float:
    """When a job ends: at the speed of what it `held`, or of what its plan holds ready (by share) if that is sooner."""
    left = view.progress.work_left_at(now_s)
    ready_s = max(now_s, view.progress.paused_until_s)
    alone_s = ready_s + left / held if held > 0 else inf
    return min(alone_s, _follow(view.promise.plan, rates, left, ready_s) if view.promise else inf)


def _follow(plan: Plan, rates: Mapping[int, float], left: float, now_s: float) -> float:
    """When so much work ends if the plan is followed; its last share is kept for as long as it takes."""
    stretches = list(list_stretches(plan, now_s))
    for start_s, end_s, share in stretches:
        rate, is_last = rates.get(share, 0.0), end_s == stretches[-1].end_s
        if rate > 0 and (is_last or left <= rate * (end_s - start_s)):
            return start_s + left / rate
        left -= rate * (end_s - start_s)
    return inf


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
