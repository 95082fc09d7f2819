"""What was used since an instant, by user, project or job: device-hours, money, promises kept and missed. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from springtide.control.storage.records import JobRecord, UsageRecord
from springtide.core.job_states import JobState


class UsageGroup(StrEnum):
    """By what usage is added up."""

    USER = "user"
    PROJECT = "project"
    JOB = "job"


@dataclass(slots=True)
class UsageLine:
    """Sums of one user, project or job."""

    device_s: float = 0.0
    usd: float = 0.0
    kept: int = 0
    missed: int = 0

    def write(self, name: str, is_priced: bool) -> dict[str, Any]:
        """The sums as a document."""
        return {
            "name": name,
            "device_h": round(self.device_s / 3600, 4),
            "usd": round(self.usd, 4) if is_priced else None,
            "kept": self.kept,
            "missed": self.missed,
        }


def list_running(records: Iterable[JobRecord], now_s: float) -> list[UsageRecord]:
    """What jobs that hold devices now have used since that was last noted."""
    return [
        UsageRecord(
            *(record.id, record.owner, record.user, record.project, record.settled_s, now_s),
            len(record.devices) * (now_s - record.settled_s),
            (record.hourly_usd or 0.0) * (now_s - record.settled_s) / 3600.0,
        )
        for record in records
        if record.devices and record.state is not JobState.PROBING and now_s > record.settled_s
    ]


def clip(used: UsageRecord, since_s: float) -> float:
    """The part of a stretch, on the same devices all along, that lies after an instant."""
    span_s = used.end_s - used.start_s
    return 1.0 if span_s <= 0 or used.start_s >= since_s else max(0.0, (used.end_s - since_s) / span_s)


def add_up(
    group: UsageGroup, used: Iterable[UsageRecord], jobs: Sequence[JobRecord], since_s: float, is_priced: bool
) -> list[dict[str, Any]]:
    """A line for each user, project or job that used anything or was promised something that ended since then."""
    lines: dict[str, UsageLine] = {}
    for one in used:
        key = {UsageGroup.USER: one.user, UsageGroup.PROJECT: one.project, UsageGroup.JOB: one.job}[group]
        line, part = lines.setdefault(key, UsageLine()), clip(one, since_s)
        line.device_s += part * one.device_s
        line.usd += part * one.usd
    names = {record.id: record.name for record in jobs}
    for record in jobs:
        if not record.promised or (record.finished_s or 0.0) <= since_s:
            continue
        key = {UsageGroup.USER: record.user, UsageGroup.PROJECT: record.project, UsageGroup.JOB: record.id}[group]
        line = lines.setdefault(key, UsageLine())
        line.missed += bool(record.missed)
        line.kept += not record.missed and record.state is JobState.SUCCEEDED
    ordered = sorted(lines.items(), key=lambda item: (-item[1].usd, -item[1].device_s, item[0]))
    if group is UsageGroup.JOB:
        return [line.write(names.get(key, key), is_priced) | {"job": key} for key, line in ordered]
    return [line.write(key or "(none)", is_priced) for key, line in ordered]
