"""How far a run has come, and where it ends."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Position:
    """Completed work: `step` global steps in all, `step_in_epoch` of them in `epoch`."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0

    def after_step(self) -> "Position":
        """The position one global step later."""
        return replace(self, step=self.step + 1, step_in_epoch=self.step_in_epoch + 1)

    def after_epoch(self) -> "Position":
        """The position at the start of the next epoch."""
        return Position(self.epoch + 1, 0, self.step)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a run ends: after `epochs` epochs or `steps` global steps, and never beyond `cap` steps."""

    epochs: int | None = None
    steps: int | None = None
    cap: int | None = None

    def total_steps(self, steps_per_epoch: int) -> int | None:
        """All global steps of the run, if a goal is set."""
        if self.steps is None and self.epochs is None:
            return self.cap
        wanted = self.steps if self.steps is not None else (self.epochs or 0) * steps_per_epoch
        return wanted if self.cap is None else min(wanted, self.cap)

    def is_reached(self, position: Position) -> bool:
        """Whether no further epoch begins from this position."""
        limits = [limit for limit in (self.steps, self.cap) if limit is not None]
        if limits and position.step >= min(limits):
            return True
        return self.epochs is not None and position.epoch >= self.epochs

    def allows_step(self, position: Position) -> bool:
        """Whether another global step may begin."""
        limits = [limit for limit in (self.steps, self.cap) if limit is not None]
        return not limits or position.step < min(limits)
