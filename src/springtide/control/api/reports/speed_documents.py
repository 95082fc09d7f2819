"""What is known of the speed of a job's code: as measured, and as predicted on every number of devices it may hold."""

from collections.abc import Iterable, Iterator, Mapping

from springtide.control.scheduling.live_jobs import UNCOUNTED, list_shares, look_up
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.speeds import plan_curve, predict_rates
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.core.shared_types import Document

MOST_NAMES = 5  # of jobs with the same code
FEW_SHARES = 8  # that a table tells all of


def write_measured(speeds: Iterable[SpeedRecord]) -> list[Document]:
    """What was measured, by device type and share."""
    return [
        {"type": speed.device_type, "share": share, "steps": steps, "steps_per_s": round(rate, 4)}
        for speed in speeds
        for share, (steps, rate) in sorted(speed.points.items())
    ]


def write_known(speeds: Iterable[SpeedRecord], names: Mapping[str, Iterable[str]]) -> list[Document]:
    """What was measured of the code of some jobs, whose names are given by the key of their speed."""
    return [
        {
            "jobs": list(names[key])[:MOST_NAMES],
            "type": speed.device_type,
            "points": [[share, steps, round(rate, 4)] for share, (steps, rate) in sorted(speed.points.items())],
        }
        for speed in speeds
        if (key := speed.key.rpartition("@")[0]) in names
    ]


def write_predicted(record: JobRecord, speeds: Iterable[SpeedRecord], inventory: Inventory) -> Iterator[Document]:
    """What the form predicts from what was measured, and what promises count on; of many shares some."""
    facts = look_up(record, {record.speed_key: {one.device_type: one for one in speeds}}, inventory)
    if not record.spec.elastic:
        return
    possible = list_shares(record.spec, tuple(facts.measured), facts.workers or UNCOUNTED, inventory)
    for device_type, shares in possible.items():
        speed = facts.measured[device_type]
        shown = choose_shown(shares, len(record.devices), *speed.points)
        rates, planned = predict_rates(speed, shown), plan_curve(speed, shown)
        for share, slow in zip(planned.shares, planned.rates, strict=True):
            told = {"steps_per_s": round(rates[share], 4), "planned_steps_per_s": round(slow, 4)}
            yield {"type": device_type, "share": share, **told}


def choose_shown(shares: tuple[int, ...], *others: int) -> tuple[int, ...]:
    """The shares that a table shows: powers of two, the largest, and others that matter, where there are many."""
    if len(shares) <= FEW_SHARES:
        return shares
    return tuple(one for one in shares if one & (one - 1) == 0 or one == shares[-1] or one in others)
