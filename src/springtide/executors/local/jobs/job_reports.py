"""What is reported of a job that runs: its script's plan, how far it is, what its processes remark, what it leaves.

What processes say is bounded, so that one that talks without end is heard in its log only.
"""

import time
from collections.abc import Callable, Sequence
from math import inf

from springtide.executors.delivery import EventFields
from springtide.executors.local.jobs.attempt import AgentContext, Attempt
from springtide.executors.local.jobs.progress import AttemptProgress, RemarkBudget
from springtide.executors.local.journal import AssignedJob
from springtide.executors.protocol import (
    Cancel,
    CheckpointFailing,
    Lagging,
    Progressed,
    Running,
    ScriptInfo,
    Stopped,
    Warned,
)

#: How long processes that were killed may take to end before that is said, and what is said then.
LEFT_S = 30.0
LEFT = (
    f"was killed {LEFT_S:g} s ago and has not ended: it waits inside the system for a disk, a network file system or a "
    "GPU driver that does not answer. Until it ends the job goes on nowhere, for there would be two of it; see `dmesg` "
    "on that machine, or restart it"
)


class JobReports:
    """The reports of one job; `common` gives the fields of every event."""

    def __init__(self, context: AgentContext, common: Callable[[], EventFields]) -> None:
        self.context = context
        self.common = common
        #: How many of its processes' warnings, and how many plans, may be reported.
        self.remarks, self.plans = RemarkBudget(), RemarkBudget()
        #: What the script was last reported to have said of itself, and when progress was.
        self.script: tuple[int | None, ...] = ()
        self.reported_s = 0.0
        #: Whether one of its processes was last reported to hold the others up.
        self.is_lagging = False

    def report(self, event: Warned | CheckpointFailing | Lagging) -> bool:
        """Report what a process has said, unless it says too much: that is in its log only. Returns whether it was."""
        is_told = self.remarks.take(time.monotonic())
        if is_told:
            self.context.emit(event)
        return is_told

    def report_lagging(self, event: Lagging) -> None:
        """Report who holds the others up; that nobody does any more takes back what was reported, so it is always."""
        if event.device:
            self.is_lagging |= self.report(event)
        elif self.is_lagging:
            self.is_lagging = False
            self.context.emit(event)

    def warn(self, reason: str) -> None:
        """Report what the user should know."""
        self.report(Warned(**self.common(), reason=reason))

    def report_left(self, attempt: Attempt | None, now_s: float) -> None:
        """Report once what was killed long ago and does not end; nothing else can be started before."""
        if attempt is None:
            return
        if attempt.overdue_s is None:
            attempt.overdue_s = now_s + LEFT_S
        elif now_s >= attempt.overdue_s:
            attempt.overdue_s = inf
            names = [f"{one.name} on {one.device}" for one in attempt.processes.alive()]
            left = f"process {', '.join(names)}" if names else "what its processes have started"
            self.context.emit(Warned(**self.common(), reason=f"{left} {LEFT}"))

    def report_plan(self, attempt: Attempt, progress: AttemptProgress) -> None:
        """Report what the script has said of itself, if that is new."""
        script = (progress.logical_workers, progress.total_steps, progress.steps_per_epoch)
        if script == self.script:
            return
        if not self.plans.take(time.monotonic()):
            raise ValueError("another plan, again and again; a script has one")
        self.script = script
        self.context.emit(
            ScriptInfo(
                **self.common(),
                logical_workers=progress.logical_workers,
                total_steps=progress.total_steps,
                steps_per_epoch=progress.steps_per_epoch,
                device_type=self.context.devices[attempt.devices[0]].type,
                torch_version=attempt.processes.torch_version,
                startup_s=progress.startup_s,
            )
        )

    def make_running(
        self, devices: Sequence[str], state: str, attempt: Attempt | None, progress: AttemptProgress
    ) -> Running:
        """The job as `running()` shows it."""
        alive = attempt.processes.alive() if attempt is not None else []
        forked = [(process.pid, process.device) for process in alive if process.pid is not None]
        known = self.context.devices
        return Running(
            **self.common(),
            devices=tuple(devices),
            state=state,
            step=progress.step,
            total_steps=progress.total_steps,
            pids=tuple(pid for pid, _ in forked),
            pid_devices=tuple(device for _, device in forked),
            uuids={name: known[name].uuid for name in devices if name in known},
        )

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to report how far the job is."""
        return now_s - self.reported_s >= self.context.options.report_s

    def report_progress(self, attempt: Attempt | None, progress: AttemptProgress) -> None:
        """Report how far the job is, if it has moved."""
        self.reported_s = time.monotonic()
        if attempt is not None and progress.has_stepped and progress.step != progress.reported_step:
            share = max(1, len(attempt.roster.names))
            self.context.emit(Progressed(**self.common(), **progress.report(), share=share))

    def make_stopped(self, assigned: AssignedJob, reason: str, progress: AttemptProgress, seen: int) -> Stopped:
        """That the job has given its devices back; `seen` is the step of its newest checkpoint, -1 if there is none.

        What is saved of an elastic job its checkpoints tell, not its last words; one that was killed may have made
        steps of which it said nothing yet. A gang saves what it likes, so its word is taken.
        """
        spec = assigned.order.spec
        saved = max(seen, spec.checkpoint.saved_step if spec.elastic else progress.step)
        lost = max(0, progress.step - saved) if progress.has_stepped else 0
        return Stopped(
            **self.common(),
            step=saved,
            reason=reason,
            cancelled=isinstance(assigned.ending, Cancel),
            clean=not lost and (progress.terminated or not progress.has_stepped),
            lost=lost,
        )
