"""The jobs of an array as one line of a table: sums, the last end that is expected, the least slack."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from springtide.client.replies import JobInfo


def group_arrays(jobs: "Iterable[JobInfo]") -> "list[list[JobInfo]]":
    """A line for each job, and one for all listed jobs of an array, where its first would stand."""
    lines: dict[str, list[JobInfo]] = {}
    for job in jobs:
        lines.setdefault(job.id if job.array is None else job.array.id, []).append(job)
    return list(lines.values())


def find_latest(jobs: "Sequence[JobInfo]") -> "JobInfo":
    """The job that is expected to end last."""
    return max(jobs, key=lambda job: job.predicted_finish_in_s or 0.0)


def find_tightest(jobs: "Sequence[JobInfo]") -> "JobInfo":
    """The job with the least slack."""
    return min(jobs, key=lambda job: float("inf") if job.slack_s is None else job.slack_s)


def count_states(jobs: "Sequence[JobInfo]") -> str:
    """How many are in which state."""
    return ", ".join(f"{count} {state}" for state, count in Counter(str(job.state) for job in jobs).most_common())


def sum_steps(jobs: "Sequence[JobInfo]") -> str:
    """How far they are together."""
    step, total = sum(job.step for job in jobs), sum(job.total_steps or 0 for job in jobs)
    return f"{step}/{total}" if total else str(step)


def tell_size(jobs: "Sequence[JobInfo]") -> str:
    """How many jobs the array has, and how many of them are listed."""
    place = jobs[0].array
    assert place is not None, "a line of several jobs is that of an array"
    return f"array of {place.count}" + (f", {len(jobs)} listed" if len(jobs) < place.count else "")
