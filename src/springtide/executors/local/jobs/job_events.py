"""The events of one job, made from what is known of it. Values only: whom to tell is given."""

from collections.abc import Callable

from springtide.executors.delivery import EventFields
from springtide.executors.local.jobs.attempt_progress import AttemptProgress
from springtide.executors.local.jobs.measurement import ProbeMeasurement
from springtide.executors.protocol import (
    Cancel,
    Checkpointed,
    CheckpointFailing,
    Event,
    Failed,
    Faulted,
    Finished,
    Probed,
    Progressed,
    Resized,
    ScriptInfo,
    Started,
    Stop,
    Stopped,
    Warned,
)


class JobEvents:
    """What is told of one job as it runs; `generation` says which instruction it carries out."""

    def __init__(self, job: str, generation: Callable[[], int], tell: Callable[[Event], None]) -> None:
        self.job = job
        self.generation = generation
        self.tell = tell
        self.told_info: tuple[int | None, ...] = ()

    @property
    def common(self) -> EventFields:
        """The fields of every event."""
        return {"job": self.job, "generation": self.generation()}

    def tell_started(self, devices: tuple[str, ...], step: int) -> None:
        """The processes run."""
        self.tell(Started(**self.common, devices=devices, step=step))

    def tell_info(self, words: AttemptProgress, device_type: str, torch_version: str) -> None:
        """What the script has said of itself, if that is news."""
        info = (words.logical_workers, words.total_steps, words.steps_per_epoch)
        if info == self.told_info:
            return
        self.told_info = info
        self.tell(
            ScriptInfo(
                **self.common,
                logical_workers=words.logical_workers,
                total_steps=words.total_steps,
                steps_per_epoch=words.steps_per_epoch,
                device_type=device_type,
                torch_version=torch_version,
                startup_s=words.startup_s,
            )
        )

    def tell_progress(self, words: AttemptProgress, share: int) -> None:
        """How far the job is, if it has moved."""
        if words.has_stepped and words.step != words.reported_step:
            self.tell(Progressed(**self.common, **words.report(), share=max(1, share)))

    def tell_resized(self, generation: int, devices: tuple[str, ...], step: int, pause_s: float) -> None:
        """The devices have changed as a generation asked, which need not be the newest."""
        self.tell(Resized(job=self.job, generation=generation, devices=devices, step=step, pause_s=pause_s))

    def tell_checkpoint(self, step: int) -> None:
        """A checkpoint is on disk."""
        self.tell(Checkpointed(**self.common, step=step))

    def tell_checkpoint_failing(self, step: int, reason: str) -> None:
        """A checkpoint could not be written."""
        self.tell(CheckpointFailing(**self.common, step=step, reason=reason))

    def tell_warning(self, reason: str) -> None:
        """Something that the user should know."""
        self.tell(Warned(**self.common, reason=reason))

    def tell_fault(self, cause: str, reason: str, step: int, user_fault: bool) -> None:
        """The job starts again."""
        self.tell(Faulted(**self.common, cause=cause, reason=reason, step=step, user_fault=user_fault))

    def make_finished(self, words: AttemptProgress) -> Finished:
        """The job is done."""
        return Finished(**self.common, step=words.step, reason=words.finish_reason)

    def make_failed(self, step: int, code: str, reason: str, exit_code: int | None, user_fault: bool) -> Failed:
        """The job is given up."""
        return Failed(**self.common, step=step, exit_code=exit_code, reason=reason, user_fault=user_fault, code=code)

    def make_probed(self, measurement: ProbeMeasurement, words: AttemptProgress) -> Probed:
        """The probe is done."""
        points = tuple(measurement.points)
        pause = measurement.pause_s if len(points) > 1 else None
        return Probed(**self.common, points=points, startup_s=words.startup_s, pause_s=pause)

    def make_stopped(self, words: AttemptProgress, ending: Stop | Cancel | None, leaving: str | None) -> Stopped:
        """The devices are free, by an instruction or because the agent leaves."""
        return Stopped(
            **self.common,
            step=words.step,
            reason=ending.reason if ending is not None else leaving or "",
            cancelled=isinstance(ending, Cancel),
            clean=words.terminated or not words.has_stepped,
        )
