"""How fast a job will go: from measured points to the curves a plan may rest on, one for each device type.

*Known* means the same code, command, environment, logical workers, device type and torch: the batch is part of code or
command, and total steps are not in the key. There is a record for each device type. Shares that were not measured come
from the physical form of `springtide.throughput`, with its interval; plans use the slow end of it, and a quarter more
time until one whole epoch has been seen.

Where there are several device types: below D2 the bits depend on the type, so a job stays with the one it first ran on.
At D2 it may change types and hold several at once; its logical workers are then dealt out by the speed of each device.
On a platform of one type none of this has a part: jobs have one curve.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from math import ceil, log
from typing import TypeAlias

from springtide.control.scheduling.inventory import Inventory
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.core.curves import Curve
from springtide.core.decisions import JobView
from springtide.core.job_file import JobFile
from springtide.core.jobs import Overhead
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.throughput.heterogeneous import LogicalWorkers, fit_workers
from springtide.throughput.tables.points import Layout, Point, make_layout

UNSEEN_EPOCH_MARGIN = 1.25
# Repeats of one configuration differ by 3-5 %; a point of many steps is trusted this far.
MEASURED_MARGIN = 1.10
WELL_MEASURED_STEPS = 20
RATE_GRID = 1.02
MOST_WEIGHT_STEPS = 500  # an old point counts like so many steps at most, so that it follows change
USUAL_STARTUP_S = 5.0
USUAL_PAUSE_S = 1.0
STARTUP_MARGIN = 1.5
# What an unmeasured best-effort job is taken to be, until it has run: ten minutes of steps of a second.
GUESSED_STEPS = 600
GUESSED_RATE = 1.0
#: What is known of a job's speed: a record for each device type that it may use and of which there is any.
Known: TypeAlias = Mapping[str, SpeedRecord]
MIXING = "D2"  # the level at which a job may change device types
UNCOUNTED = 1 << 16  # logical workers of a script that has not said how many: as many as anyone could want


def find_torch_version() -> str:
    """The version of torch beside this server, without importing it; empty if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def make_key(job: JobFile, archive: str, torch_version: str) -> str:
    """The name under which the speed of this code is remembered, on whatever devices."""
    facts = [
        archive,
        list(job.words),
        sorted(job.env.items()),
        job.logical_workers,
        job.determinism,
        job.python or "",
        torch_version,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def name_key(key: str, device_type: str) -> str:
    """The key of the record for devices of one type."""
    return f"{key}@{device_type}"


def list_measured(known: Known) -> dict[str, SpeedRecord]:
    """The records of the types on which a speed was measured."""
    return {device_type: speed for device_type, speed in known.items() if speed.points}


def is_measured(known: Known) -> bool:
    """Whether a speed was measured on any type."""
    return bool(list_measured(known))


def has_margin(known: Known) -> bool:
    """Whether plans add a margin, because somewhere no whole epoch has been seen."""
    return any(not speed.whole_epoch for speed in list_measured(known).values())


def find_total(known: Known) -> int | None:
    """The steps that the code announced, on whatever devices."""
    return next((speed.total_steps for speed in known.values() if speed.total_steps is not None), None)


def find_workers(known: Known) -> int | None:
    """The logical workers that the code asked for, on whatever devices."""
    return next((speed.logical_workers for speed in known.values() if speed.logical_workers is not None), None)


def expect_curve(speed: SpeedRecord, shares: tuple[int, ...]) -> Curve:
    """Expected steps per second at each share, with the slow end of the interval as `low`."""
    points = tuple(sorted((share, steps, rate) for share, (steps, rate) in speed.points.items()))
    return _fit_curve(points, speed.logical_workers or max(shares), shares)


def plan_curve(speed: SpeedRecord, shares: tuple[int, ...]) -> Curve:
    """The speeds that a promise may count on."""
    margin = 1.0 if speed.whole_epoch else UNSEEN_EPOCH_MARGIN
    expected = expect_curve(speed, shares)
    return Curve(shares, tuple(rate / margin for rate in expected.low))


def guess_curve(shares: tuple[int, ...]) -> Curve:
    """Speeds of a job nobody has measured: only their order matters."""
    return Curve(shares, tuple(GUESSED_RATE * share**0.8 for share in shares))


def plan_overhead(known: Known) -> Overhead:
    """Seconds that a start and a change of devices cost a plan: the most on any type."""
    measured = list_measured(known).values()
    if not measured:
        return Overhead(base_s=USUAL_PAUSE_S, start_s=USUAL_STARTUP_S)
    pause_s = max(USUAL_PAUSE_S if speed.pause_s is None else speed.pause_s for speed in measured)
    startup_s = max(speed.startup_s for speed in measured)
    return Overhead(base_s=pause_s * STARTUP_MARGIN, start_s=startup_s * STARTUP_MARGIN)


@lru_cache(maxsize=4096)
def _fit_curve(points: tuple[tuple[int, int, float], ...], workers: int, shares: tuple[int, ...]) -> Curve:
    seen = {share: (steps, rate) for share, steps, rate in points}
    unseen = [share for share in shares if seen.get(share, (0, 0.0))[0] < WELL_MEASURED_STEPS]
    fitted = (
        _fit_shares(tuple((share, _round_rate(rate)) for share, _, rate in points), workers, shares) if unseen else {}
    )
    rates, low = [], []
    for share in shares:
        steps, rate = seen.get(share, (0, 0.0))
        step_s, high_s = fitted.get(share, (0.0, 0.0))
        rate = rate or 1.0 / step_s
        rates.append(rate)
        low.append(rate / MEASURED_MARGIN if steps >= WELL_MEASURED_STEPS else min(rate, 1.0 / high_s))
    return Curve(shares, tuple(rates), tuple(low))


def _round_rate(rate: float) -> float:
    """A rate on a grid of 2 %, so that a job that runs on does not call for a fit with every report."""
    return float(RATE_GRID ** round(log(rate, RATE_GRID)))


@lru_cache(maxsize=4096)
def _fit_shares(
    points: tuple[tuple[int, float], ...], workers: int, shares: tuple[int, ...]
) -> dict[int, tuple[float, float]]:
    """Seconds per step at each share, and the slow end of their interval. Takes 15-90 ms."""
    # scipy takes 44 MB: a server that has nothing to fit does without
    from springtide.throughput.model.forms import DEFAULT_FORM, FORMS
    from springtide.throughput.model.priors import DEFAULT_PRIOR
    from springtide.throughput.tables.samples import make_columns, make_sample

    measured = [Point(_lay_out(share, workers), 1.0 / rate) for share, rate in points]
    fit = FORMS[DEFAULT_FORM](make_sample(measured), DEFAULT_PRIOR)
    estimate = fit(make_columns([_lay_out(share, workers) for share in shares]))
    ends = zip(estimate.step_s.tolist(), estimate.high_s.tolist(), strict=True)
    return dict(zip(shares, ends, strict=True))


def _lay_out(share: int, workers: int) -> Layout:
    """A share on one machine; the batch of the fullest device in units of one logical worker's."""
    return make_layout("job", "device", 1, share, ceil(workers / share))


def learn_point(speed: SpeedRecord, share: int, steps: int, seconds: float) -> SpeedRecord:
    """The record with so many more steps at a share, an older point weighing like `MOST_WEIGHT_STEPS` at most."""
    if steps <= 0 or seconds <= 0:
        return speed
    old_steps, old_rate = speed.points.get(share, (0, 1.0))
    kept = min(old_steps, MOST_WEIGHT_STEPS)
    rate = (kept + steps) / (kept / old_rate + seconds)
    return replace(speed, points={**speed.points, share: (kept + steps, rate)})


def learn_costs(speed: SpeedRecord, startup_s: float | None = None, pause_s: float | None = None) -> SpeedRecord:
    """The record with a start-up or a pause seen: the longer of it and three quarters of what was known."""
    if startup_s is not None:
        speed = replace(speed, startup_s=max(startup_s, 0.75 * speed.startup_s))
    if pause_s is not None:
        speed = replace(speed, pause_s=max(pause_s, 0.75 * (speed.pause_s or 0.0)))
    return speed


@dataclass(frozen=True, slots=True)
class AskedBlend:
    """The speed of logical workers on several types, for the numbers of devices that a job asked for.

    `model` is what is expected; plans count on as much less as they do on the least certain of the types.
    """

    model: LogicalWorkers
    margin: float
    shares: tuple[int, ...]

    @property
    def most(self) -> int:
        """The largest number of devices it can hold."""
        return self.shares[-1]

    def rate(self, mix: Mix) -> float:
        """Steps per second on a mix; 0 on a number of devices that was not asked for."""
        return self.model.rate(mix) / self.margin if sum(mix.values()) in self.shares else 0.0


def find_known(record: JobRecord, speeds: Known, inventory: Inventory) -> dict[str, SpeedRecord]:
    """What is known of a job's speed on the device types it may use; types of which nothing is are left out."""
    allowed = list_device_types(record, inventory)
    return {device_type: speeds[device_type] for device_type in allowed if device_type in speeds}


def find_held(record: JobRecord, speeds: Known, inventory: Inventory) -> SpeedRecord:
    """What is known of a job's speed on the devices it holds (if they are of several types, on the first)."""
    held = next(iter(inventory.count_types(record.devices)), record.first_device_type or inventory.device_types[0])
    known = speeds.get(held)
    return known if known is not None else SpeedRecord(name_key(record.speed_key, held), device_type=held)


def list_device_types(record: JobRecord, inventory: Inventory) -> tuple[str, ...]:
    """The types a job may run on: those it names, of those there are; below D2 the one it first ran on."""
    if record.first_device_type and record.spec.determinism != MIXING:
        return (record.first_device_type,)
    named = record.spec.device_types
    if named is None:
        return inventory.device_types
    wanted = {device_type.lower() for device_type in named}
    return tuple(device_type for device_type in inventory.device_types if device_type in wanted)


def list_shares(
    job: JobFile, device_types: Sequence[str], workers: int, inventory: Inventory
) -> dict[str, tuple[int, ...]]:
    """The numbers of devices of each type that a job may hold alone; types that have too few are left out."""
    found = {device_type: job.shares(workers, inventory.totals.get(device_type, 0)) for device_type in device_types}
    return {device_type: shares for device_type, shares in found.items() if shares}


def find_curves(job: JobFile, shares: Mapping[str, tuple[int, ...]], known: Known, promised: bool) -> dict[str, Curve]:
    """The speeds that a plan may count on, by type.

    Where nothing is promised, they are those expected (how sure each is must not decide between types), and an
    unmeasured type is guessed at.
    """
    if not job.elastic:
        return {device_type: Curve(some[-1:], (1.0,)) for device_type, some in shares.items()}
    measured = list_measured(known)
    read = plan_curve if promised else expect_curve
    curves = {
        device_type: read(measured[device_type], some)
        for device_type, some in shares.items()
        if device_type in measured
    }
    if promised and curves:
        return curves
    return {
        device_type: curves.get(device_type) or borrow_curve(some, measured.values())
        for device_type, some in shares.items()
    }


def borrow_curve(shares: tuple[int, ...], measured: Iterable[SpeedRecord]) -> Curve:
    """Speeds on a type that nobody has measured: those of the slowest type that was."""
    others = [expect_curve(speed, shares) for speed in measured]
    return min(others, key=lambda curve: curve.rates[0]) if others else guess_curve(shares)


def find_speeds(
    record: JobRecord, known: Known, workers: int, inventory: Inventory
) -> tuple[Curve, TypedCurves | None]:
    """The speeds that plans count on, and where there are several device types those on each of them."""
    job = record.spec
    if inventory.is_mixed:
        typed = type_job(record, known, workers, inventory)
        return typed.curves[typed.fastest], typed
    (device_type,) = inventory.device_types
    shares = {device_type: job.shares(workers, inventory.cluster.total) or (1,)}
    return find_curves(job, shares, known, promised=True)[device_type], None


def type_job(record: JobRecord, known: Known, workers: int, inventory: Inventory) -> TypedCurves:
    """A job's speeds by type, on several at once where its level allows that and its logical workers are counted."""
    job, promised = record.spec, record.deadline_s is not None
    device_types = list_device_types(record, inventory)
    shares = list_shares(job, device_types, workers, inventory) or dict.fromkeys(
        device_types or inventory.device_types[:1], (1,)
    )
    curves = find_curves(job, shares, known, promised)
    moves = job.determinism == MIXING and job.elastic
    counted = workers < UNCOUNTED
    if not moves or not counted or len(curves) == 1:
        return TypedCurves(curves, movable=moves)
    asked = job.shares(workers, sum(inventory.totals[device_type] for device_type in curves))
    return TypedCurves(curves, blend_types(curves, known, workers, asked), movable=True)


def blend_types(curves: Mapping[str, Curve], known: Known, workers: int, asked: tuple[int, ...]) -> AskedBlend:
    """The speed on several types at once, of a job with these speeds on each alone."""
    expected = {device_type: expect_along(known.get(device_type), curve) for device_type, curve in curves.items()}
    margins = [
        fast / slow
        for device_type, curve in curves.items()
        for fast, slow in zip(expected[device_type].rates, curve.rates, strict=True)
    ]
    return AskedBlend(fit_workers(workers, expected), max(margins), asked)


def deal_workers(typed: TypedCurves | None, inventory: Inventory, names: Sequence[str]) -> tuple[int, ...]:
    """The logical workers of each of these devices, more on faster ones; empty where they are to be spread evenly."""
    mix = inventory.count_types(names)
    is_whole = sum(mix.values()) == len(names)  # a device may have left the machine while the server was away
    if len(mix) == 1 or not is_whole or typed is None or not isinstance(typed.blend, AskedBlend):
        return ()
    deal = typed.blend.model.deal(mix)
    if deal is None:
        return ()
    left = {device_type: list(counts) for device_type, counts in deal.spread().items()}
    return tuple(left[inventory.type_of(name)].pop(0) for name in names)


def learn_mix(known: Known, workers: int, mix: Mix, steps: int, seconds: float) -> dict[str, SpeedRecord]:
    """The records of those types of a mix whose speed explains why its steps took as long as they did.

    What one device of the type would take for all workers is noted like a measurement of share 1.
    """
    curves = {
        device_type: expect_curve(known[device_type], (1, mix[device_type])[: mix[device_type]]) for device_type in mix
    }
    before = fit_workers(workers, curves)
    after = before.learn(mix, seconds / steps)
    wrong = [device_type for device_type in mix if after.speeds[device_type] != before.speeds[device_type]]
    return {
        device_type: learn_point(known[device_type], 1, steps, steps * workers * after.speeds[device_type].seconds)
        for device_type in wrong
    }


def expect_along(speed: SpeedRecord | None, curve: Curve) -> Curve:
    """Expected steps per second at the shares of a curve that plans count on; its own where nothing was measured."""
    return curve if speed is None or not speed.points else expect_curve(speed, curve.shares)


def expect_rates(speed: SpeedRecord | None, curve: Curve) -> dict[int, float]:
    """The same, by share."""
    expected = expect_along(speed, curve)
    return dict(zip(expected.shares, expected.rates, strict=True))


def expect_mix(known: Known, typed: TypedCurves, mix: Mix) -> float:
    """Expected steps per second on devices of one type or several."""
    if len(mix) == 1:
        ((device_type, share),) = mix.items()
        return (
            expect_rates(known.get(device_type), typed.curves[device_type]).get(share, 0.0)
            if device_type in typed.curves
            else 0.0
        )
    return typed.blend.model.rate(mix) if mix and isinstance(typed.blend, AskedBlend) else 0.0


def expect(known: Known, view: JobView) -> tuple[float, dict[int, float]]:
    """Expected steps per second on what a job holds, and by share of what its plan holds ready.

    That is what was seen, not what a plan dares to count on.
    """
    typed = view.job.typed
    if typed is None:
        (speed,) = known.values() or (None,)
        rates = expect_rates(speed, view.job.curve)
        return rates.get(view.share, 0.0), rates
    held = expect_mix(known, typed, view.mix or {})
    planned = view.promise.device_type if view.promise is not None else ""
    if planned not in typed.curves:  # a block of several types, held to the end
        return held, {view.share: held}
    return held, expect_rates(known.get(planned), typed.curves[planned])
