"""How often a job was started again, to what avail, and when the next start may be. Pure: the clock is an argument."""

from dataclasses import dataclass

#: Seconds before the next start after faults in a row without a new step; the last one holds for all further.
BACK_OFF_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass
class Restarts:
    """The restarts of one job: all of them, and those in a row that led to no step beyond `best_step`."""

    best_step: int
    limit: int
    count: int = 0
    futile: int = 0

    def note_step(self, step: int) -> None:
        """Hear of a step; a new one means that the last restart was worth it."""
        if step > self.best_step:
            self.best_step, self.futile = step, 0

    @property
    def are_hopeless(self) -> bool:
        """Whether restarts have led nowhere too often."""
        return self.futile >= self.limit

    def add(self, now_s: float) -> float:
        """Count one more; returns when it may begin."""
        begins_s = now_s + BACK_OFF_S[min(self.futile, len(BACK_OFF_S) - 1)]
        self.count += 1
        self.futile += 1
        return begins_s
