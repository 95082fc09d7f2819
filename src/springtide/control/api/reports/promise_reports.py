"""What became of all jobs, by user and week: what an owner shows to those who pay. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from springtide.control.storage.records import JobLedgerEntry
from springtide.core.job_states import JobState


@dataclass(slots=True)
class Tally:
    """Sums over some jobs."""

    jobs: int = 0
    kept: int = 0
    missed: int = 0
    device_s: float = 0.0
    lent_s: float = 0.0
    lost_steps: int = 0
    errors: float = 0.0
    predicted: int = 0
    early: int = 0
    usd: float = 0.0

    def add(self, job: JobLedgerEntry) -> None:
        """Count one job."""
        self.jobs += 1
        self.kept += job.promised and not job.missed and job.state is JobState.SUCCEEDED
        self.missed += bool(job.missed)
        self.device_s += job.served
        self.lent_s += 0.0 if job.promised else job.served
        self.lost_steps += job.lost_steps
        self.usd += job.cost_usd
        error = find_error(job)
        if error is not None:
            self.errors, self.predicted = self.errors + abs(error), self.predicted + 1
            self.early += error < 0

    def write(self, is_priced: bool) -> dict[str, Any]:
        """The sums as a document."""
        return {
            "jobs": self.jobs,
            "kept": self.kept,
            "missed": self.missed,
            "device_h": round(self.device_s / 3600, 3),
            "lent_h": round(self.lent_s / 3600, 3),
            "lost_steps": self.lost_steps,
            "prediction_error": round(self.errors / self.predicted, 4) if self.predicted else None,
            "predicted": self.predicted,
            "ended_early": self.early,
            "usd": round(self.usd, 4) if is_priced else None,
        }


def find_error(job: JobLedgerEntry) -> float | None:
    """How far the end was from what was expected when the promise was made, as a part of the span; below 0: sooner."""
    if job.state is not JobState.SUCCEEDED or not job.promised:
        return None
    if job.finished_s is None or job.expected_s is None or job.answered_s is None or job.expected_s <= job.answered_s:
        return None
    return (job.finished_s - job.expected_s) / (job.expected_s - job.answered_s)


def write_report(
    jobs: Iterable[JobLedgerEntry], price_per_device_hour: float | None, is_priced: bool
) -> dict[str, Any]:
    """All of it, by user and by week of the end, and by both; money where anything has or had a price."""
    ended = [(job, name_week(job.finished_s)) for job in jobs if job.finished_s is not None]
    is_priced = is_priced or any(job.cost_usd for job, _ in ended)
    whole, users, weeks, both = Tally(), dict[str, Tally](), dict[str, Tally](), dict[tuple[str, str], Tally]()
    for job, week in ended:
        for tally in (
            whole,
            users.setdefault(job.user, Tally()),
            weeks.setdefault(week, Tally()),
            both.setdefault((job.user, week), Tally()),
        ):
            tally.add(job)
    ends = [job.finished_s or 0.0 for job, _ in ended]
    return {
        "schema": 1,
        "from_s": min(ends, default=None),
        "to_s": max(ends, default=None),
        "price_per_device_hour": price_per_device_hour,
        "total": whole.write(is_priced),
        "users": [{"name": name, **tally.write(is_priced)} for name, tally in sorted(users.items())],
        "weeks": [{"name": name, **tally.write(is_priced)} for name, tally in sorted(weeks.items(), reverse=True)],
        "users_by_week": [
            {"user": user, "week": week, **tally.write(is_priced)} for (user, week), tally in sorted(both.items())
        ],
    }


def name_week(at_s: float) -> str:
    """The week of an instant, as ISO 8601 counts them."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%G-W%V")
