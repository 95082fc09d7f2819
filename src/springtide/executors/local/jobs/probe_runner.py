"""A crew that measures: it runs a job on one device, then on two, tells the speeds, and leaves nothing to go on from.

How long to measure at each share and what the points are is in `probes`; all else is as with any crew.
"""

import time

from springtide.executors.local.jobs.attempt import AgentContext
from springtide.executors.local.jobs.measurement import ProbeMeasurement, make_measurement
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.journal import AssignedJob
from springtide.executors.protocol import Probe


class ProbeRunner(JobRunner):
    """The crew of a probe: no retries, no checkpoints, and an end when every share is measured or the time is up."""

    def __init__(self, house: AgentContext, standing: AssignedJob, order: Probe) -> None:
        super().__init__(house, standing)
        self.order = order
        self.measurement: ProbeMeasurement = make_measurement(order)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The devices to use now: as many as the share being measured."""
        return super().wanted[: self.measurement.share]

    @property
    def may_retry(self) -> bool:
        """Never: the user waits for an answer."""
        return False

    def launch(self) -> None:
        """Start the processes, and the measurement from its beginning."""
        self.measurement = make_measurement(self.order)
        super().launch()

    def note_step(self) -> None:
        """A global step was completed."""
        super().note_step()
        now_s = time.monotonic()
        if self.phase == "running" and self.measurement.note(self.words.step, now_s):
            self.measure_next(now_s)

    def measure_next(self, now_s: float) -> None:
        """A share was measured: go on to the next, or end if there is none."""
        workers = self.workers
        if self.measurement.is_last or (workers is not None and workers.total == 1):
            self.finish()
        else:
            self.measurement.close(now_s)

    def complete_change(self, step: int, pause_s: float) -> None:
        """The second share can be measured; what the change cost is part of the result."""
        self.measurement.pause_s = pause_s
        super().complete_change(step, pause_s)

    def oversee(self, now_s: float) -> None:
        """Look after processes that run, until the time of a share or of all is up."""
        super().oversee(now_s)
        until_s = self.measurement.until_s
        if self.phase == "clearing" or until_s is None:
            return
        if now_s >= until_s:
            self.finish()
        elif self.phase == "running" and self.measurement.is_over(now_s):
            self.measure_next(now_s)

    def finish(self) -> None:
        """End with what was measured: all of it, or what there is when the time is up or the job done."""
        self.measurement.close(time.monotonic())
        self.clear(self.reports.make_probed(self.measurement, self.words))

    def stop(self) -> None:
        """End the processes at once: there is nothing to save."""
        if self.phase not in ("stopping", "clearing", "over"):
            self.clear(None)

    def look_for_checkpoint(self) -> None:
        """Nobody is told of checkpoints in scratch."""


def make_runner(house: AgentContext, standing: AssignedJob) -> JobRunner:
    """The crew for what a job was told: to run, or to be measured."""
    order = standing.order
    return ProbeRunner(house, standing, order) if isinstance(order, Probe) else JobRunner(house, standing)
