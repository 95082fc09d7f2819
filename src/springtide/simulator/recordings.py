"""Remembers a run for drawing: how many devices were held, and how many deadlines were met, over time."""

from dataclasses import dataclass, field

from springtide.core.decisions import JobView
from springtide.core.jobs import Job
from springtide.simulator.engine import Observer
from springtide.simulator.reports import meets

Steps = list[tuple[float, int]]  # (since, value), ascending; the value holds until the next entry


@dataclass(slots=True)
class Recording(Observer):
    """An Observer that keeps step functions: devices held, and deadline jobs submitted and met so far."""

    held: Steps = field(default_factory=list)
    submitted: Steps = field(default_factory=list)
    met: Steps = field(default_factory=list)

    def arrived(self, job: Job, now_s: float) -> None:
        """Count a deadline job."""
        if not job.best_effort:
            _add(self.submitted, now_s, 1)

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """Note the devices taken or given back."""
        _add(self.held, now_s, after.share - before.share)

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """Note the devices given back, and a deadline met."""
        _add(self.held, now_s, -last.share)
        if not last.job.best_effort and meets(last.job, now_s):
            _add(self.met, now_s, 1)


def _add(steps: Steps, now_s: float, change: int) -> None:
    value = (steps[-1][1] if steps else 0) + change
    if steps and steps[-1][0] == now_s:
        steps[-1] = now_s, value
    else:
        steps.append((now_s, value))
