"""How far a job is in one attempt, by what its processes have said: step, goal, speed, and how they meant to end.

State without effects; the clock is an argument. The messages are those of `worker_messages`. Time
outside steps (evaluation, checkpoints, the user's code between epochs) is measured by the training runtime and taken
off the time between two steps.
"""

from dataclasses import dataclass, field
from typing import TypedDict

from springtide.executors.local.jobs.worker_messages import (
    EpochMessage,
    FailingMessage,
    FinishMessage,
    NoteMessage,
    PlanMessage,
    StepMessage,
    WorkerMessage,
)


@dataclass
class Speedometer:
    """Steps since the processes started."""

    step: int = 0
    stepped_s: float | None = None
    #: Longest time between two steps, whatever lay between them.
    longest_gap_s: float = 0.0
    outside_s: float = 0.0
    #: Of that, since the last step.
    outside_now_s: float = 0.0
    #: Since the last report: steps, and the seconds they took.
    steps: int = 0
    inside_s: float = 0.0

    def add_step(self, step: int, now_s: float) -> None:
        """Count a step; several may have passed since the last."""
        if self.stepped_s is not None and step > self.step:
            gap_s = now_s - self.stepped_s
            inside_s = max(0.0, gap_s - self.outside_now_s)
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
            self.steps += step - self.step
            self.inside_s += inside_s
        self.step, self.stepped_s, self.outside_now_s = step, now_s, 0.0

    def add_outside(self, seconds: float) -> None:
        """Count time outside steps."""
        self.outside_s += seconds
        self.outside_now_s += seconds

    def pause(self) -> None:
        """Forget the speed so far, as after a change of devices; the next interval does not count."""
        self.stepped_s = None
        self.steps, self.inside_s = 0, 0.0

    def report(self) -> float | None:
        """Steps per second since the last report; None if there were no steps."""
        speed = self.steps / self.inside_s if self.inside_s > 0 else None
        self.steps, self.inside_s = 0, 0.0
        return speed


class ReportedStep(TypedDict):
    """The fields of a `Progressed` event that are known here."""

    step: int
    total_steps: int | None
    epoch: int
    steps_per_s: float | None
    outside_s: float


@dataclass
class AttemptProgress:
    """What was said since the attempt began at `began_s`."""

    began_s: float
    step: int = 0
    epoch: int = 0
    speed: Speedometer = field(default_factory=Speedometer)
    logical_workers: int | None = None
    total_steps: int | None = None
    steps_per_epoch: int | None = None
    startup_s: float = 0.0
    #: When the last step of this attempt was reported.
    stepped_s: float | None = None
    reported_step: int = -1
    finished: bool = False
    finish_reason: str | None = None
    terminated: bool = False
    #: Why the last checkpoint, which is the result, could not be written; empty if that has not been said.
    result_failure: str = ""

    def update(self, message: WorkerMessage, now_s: float) -> None:
        """Keep what a message says."""
        step: int | None = getattr(message, "step", None)
        self.step = self.step if step is None else step
        match message:
            case PlanMessage():
                self.startup_s = now_s - self.began_s
                self.logical_workers = message.logical_workers
                self.total_steps = message.total_steps
                self.steps_per_epoch = message.steps_per_epoch
            case StepMessage():
                self.stepped_s = now_s
                self.epoch = message.epoch
                self.speed.add_step(self.step, now_s)
            case EpochMessage():
                self.speed.add_outside(message.outside_s)
            case FinishMessage():
                self.finished, self.finish_reason = True, message.reason
            case FailingMessage(is_result=True):
                self.result_failure = message.reason
            case NoteMessage(event="terminated"):
                self.terminated = True

    @property
    def has_stepped(self) -> bool:
        """Whether this attempt has made a step."""
        return self.stepped_s is not None

    def report(self) -> ReportedStep:
        """How far the job is, and its speed since the last report."""
        self.reported_step = self.step
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "epoch": self.epoch,
            "steps_per_s": self.speed.report(),
            "outside_s": self.speed.outside_s,
        }

    def describe_early_exit(self) -> str:
        """What to tell of a script that ended with code 0 and without having trained to its end."""
        goal = f" of {self.total_steps}" if self.total_steps is not None else ""
        return (
            f"the script ended with code 0 after step {self.step}{goal}; walk run.epochs to its end, or call "
            'run.stop("why") to end early'
        )


@dataclass
class RemarkBudget:
    """How many remarks of a job's processes may still be reported: a hundred, and one more each second."""

    most: float = 100.0
    left: float = 100.0
    counted_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Use one up; False if there is none."""
        since_s = 0.0 if self.counted_s is None else now_s - self.counted_s
        self.left, self.counted_s = min(self.most, self.left + since_s), now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True
