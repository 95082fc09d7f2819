"""How fast some code was measured to run, and the curves that are made of it; what a running job teaches.

A speed is that of the same code, command, environment, logical workers, device type and torch: the batch is part of
code or command, and total steps are not in the key. There is a record for each device type. Shares that were not
measured come from the physical form of `springtide.throughput`, with its interval; plans use the slow end of it, and a
quarter more time until one whole epoch has been seen.
"""

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from math import ceil, log

from springtide.control.storage.records import SpeedRecord
from springtide.core.curves import Curve
from springtide.core.job_file import JobFile
from springtide.throughput.model.forms import DEFAULT_FORM, FORMS
from springtide.throughput.model.priors import DEFAULT_PRIOR
from springtide.throughput.tables.points import Layout, Point, make_columns, make_layout, make_sample

UNSEEN_EPOCH_MARGIN = 1.25
# Repeats of one configuration differ by 3-5 %; a point of many steps is trusted this far.
MEASURED_MARGIN = 1.10
WELL_MEASURED_STEPS = 20
RATE_GRID = 1.02
MOST_WEIGHT_STEPS = 500  # an old point counts like so many steps at most, so that it follows change


def find_torch_version() -> str:
    """The version of torch beside this server, without importing it; empty if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def make_key(job: JobFile, code: str, torch_version: str) -> str:
    """The name under which the speed of some code (`code_versions`) is remembered, on whatever devices."""
    facts = [
        code,
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


def expect_curve(speed: SpeedRecord, shares: tuple[int, ...]) -> Curve:
    """Expected steps per second at each share, with the slow end of the interval as `low`."""
    points = tuple(sorted((share, steps, rate) for share, (steps, rate) in speed.points.items()))
    return _fit_curve(points, speed.logical_workers or max(shares), shares)


def plan_curve(speed: SpeedRecord, shares: tuple[int, ...]) -> Curve:
    """The speeds that a promise may count on."""
    margin = 1.0 if speed.whole_epoch else UNSEEN_EPOCH_MARGIN
    expected = expect_curve(speed, shares)
    return Curve(shares, tuple(rate / margin for rate in expected.low))


def predict_rates(speed: SpeedRecord, shares: tuple[int, ...]) -> dict[int, float]:
    """Steps per second at each share as the form has them from all that was measured, also where that was measured."""
    points = tuple(sorted((share, _round_rate(rate)) for share, (_, rate) in speed.points.items()))
    fitted = _fit_shares(points, speed.logical_workers or max(shares), shares)
    return {share: 1.0 / step_s for share, (step_s, _) in fitted.items()}


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
