"""Probes: a job run on one device, then on two, for its speeds; it leaves nothing to go on from.

The bound (30 steps or 15 s after the first step, by default) is shared evenly among the shares. A share's first step
is not measured: it carries the warm-up. All else is as with any job.
"""

import time
from dataclasses import dataclass, field, replace

from springtide.executors.local.jobs.attempt import AgentContext
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.jobs.worker_messages import MetricsMessage
from springtide.executors.local.journal import AssignedJob
from springtide.executors.protocol import Probe, Probed, SpeedPoint, Stopped


@dataclass
class ProbeMeasurement:
    """A probe under way."""

    shares: int
    max_steps: int
    max_s: float
    points: list[SpeedPoint] = field(default_factory=list)
    first_s: float | None = None
    first_step: int = 0
    last_s: float = 0.0
    last_step: int = 0
    #: When the whole probe is over at the latest; None before its first step.
    until_s: float | None = None
    #: Pause of the change to the second share.
    pause_s: float | None = None

    @property
    def share(self) -> int:
        """The share being measured, from 1."""
        return len(self.points) + 1

    def add_step(self, step: int, now_s: float) -> bool:
        """Count a step; True when this share has been measured."""
        if self.until_s is None:
            self.until_s = now_s + self.max_s
        if self.first_s is None:
            self.first_s, self.first_step = now_s, step
        self.last_s, self.last_step = now_s, step
        return step - self.first_step + 1 >= max(2, self.max_steps // self.shares)

    def is_over(self, now_s: float) -> bool:
        """Whether the time of this share is up; never before its first step."""
        return self.first_s is not None and now_s - self.first_s >= self.max_s / self.shares

    def close(self, now_s: float) -> None:
        """Keep the point of this share and begin the next.

        Without a whole step on one device its speed is at most 1/(the time waited); on more devices there is no point.
        """
        steps = self.last_step - self.first_step
        if self.first_s is None or (self.points and not steps):
            return
        seconds = self.last_s - self.first_s if steps else now_s - self.first_s
        self.points.append(SpeedPoint(self.share, steps, max(1, steps) / max(seconds, 1e-9)))
        self.first_s = None

    @property
    def is_last(self) -> bool:
        """Whether no other share is to be measured after this one."""
        return self.share >= self.shares


def make_measurement(order: Probe) -> ProbeMeasurement:
    """The measurement that a probe makes."""
    return ProbeMeasurement(min(2, len(order.devices)), order.max_steps, order.max_s)


class ProbeRunner(JobRunner):
    """The runner of a probe: no retries, no checkpoints, and an end when every share is measured or the time is up."""

    attempt_kind = "probe"

    def __init__(self, context: AgentContext, assigned: AssignedJob, order: Probe) -> None:
        super().__init__(context, assigned)
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

    def handle_step(self) -> None:
        """A global step was completed."""
        super().handle_step()
        now_s = time.monotonic()
        if self.phase == "running" and self.measurement.add_step(self.progress.step, now_s):
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
        """Watch over processes that run, until the time of a share or of all is up."""
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
        points = tuple(self.measurement.points)
        pause_s = self.measurement.pause_s if len(points) > 1 else None
        self.clear(Probed(**self.common, points=points, startup_s=self.progress.startup_s, pause_s=pause_s))

    def stop(self) -> None:
        """End the processes at once: there is nothing to save."""
        if self.phase not in ("stopping", "clearing", "over"):
            self.clear(None)

    def make_stopped(self) -> Stopped:
        """The devices are free, and nothing is lost."""
        return replace(super().make_stopped(), clean=True, lost=0)

    def keep_metrics(self, message: MetricsMessage) -> None:
        """What a probe records is not part of the job's series, which begins with its first step."""

    def report_checkpoint(self) -> None:
        """Checkpoints in scratch are nobody's business."""


def make_runner(context: AgentContext, assigned: AssignedJob) -> JobRunner:
    """The runner for what a job was told: to run, or to be measured."""
    order = assigned.order
    return ProbeRunner(context, assigned, order) if isinstance(order, Probe) else JobRunner(context, assigned)
