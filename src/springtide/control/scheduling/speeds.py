"""How fast a job will go: from measured points to the curve a plan may rest on.

*Known* means the same code, command, environment, logical workers, device type and torch: the batch is part of code or
command, and total steps are not in the key. There is a record for each device type. Shares that were not measured come
from the physical form of `springtide.throughput`, with its interval; plans use the slow end of it, and a quarter more
time until one whole epoch has been seen.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from math import ceil, log
from typing import TypeAlias

from springtide.control.storage.records import SpeedRecord
from springtide.core.curves import Curve
from springtide.core.job_file import JobFile
from springtide.core.jobs import Overhead
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
    return {kind: speed for kind, speed in known.items() if speed.points}


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
    from springtide.throughput.tables.points import make_columns, make_sample

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
