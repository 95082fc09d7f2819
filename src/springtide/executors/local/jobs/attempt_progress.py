"""What a job's processes have said in one attempt: step, goal, speed, and how they meant to end.

State without effects; the words themselves are those of `training.channels`.
"""

from dataclasses import dataclass, field
from typing import Any, TypedDict

from springtide.executors.local.jobs.speedometer import Speedometer


class ReportedStep(TypedDict):
    """The fields of a `Progressed` event that the words tell."""

    step: int
    total_steps: int | None
    epoch: int
    steps_per_s: float | None
    outside_s: float


@dataclass
class AttemptProgress:
    """What was heard since the attempt began at `began_s`."""

    began_s: float
    step: int = 0
    epoch: int = 0
    speed: Speedometer = field(default_factory=Speedometer)
    logical_workers: int | None = None
    total_steps: int | None = None
    steps_per_epoch: int | None = None
    startup_s: float = 0.0
    #: When the last step of this attempt was heard of.
    stepped_s: float | None = None
    reported_step: int = -1
    finished: bool = False
    finish_reason: str | None = None
    terminated: bool = False
    #: Why the last checkpoint, which is the result, could not be written; empty if that has not been said.
    result_failure: str = ""

    def note(self, message: dict[str, Any], now_s: float) -> None:
        """Keep what a word tells."""
        self.step = int(message.get("step", self.step))
        match message.get("event"):
            case "planned":
                self.startup_s = now_s - self.began_s
                self.logical_workers = message["logical_workers"]
                self.total_steps = message["total_steps"]
                self.steps_per_epoch = message["steps_per_epoch"]
            case "progressed":
                self.stepped_s = now_s
                self.epoch = int(message["epoch"])
                self.speed.note(self.step, now_s)
            case "epoch":
                self.speed.note_outside(float(message["outside_s"]))
            case "finished":
                self.finished = True
                self.finish_reason = message.get("reason")
            case "checkpoint_failing" if message.get("is_result"):
                self.result_failure = str(message.get("reason"))
            case "terminated":
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
