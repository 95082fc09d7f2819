"""Watching one job for hangs through all its starts: what its past has taught, and when to look again.

What counts as a hang is in `hangs`.
"""

from springtide.executors.local.jobs.attempt import Attempt, AttemptOptions
from springtide.executors.local.jobs.hangs import Hang, Patience, Standstill, Watch
from springtide.executors.local.jobs.progress import AttemptProgress


class HangWatch:
    """The watch over one job; `given_s` is how long its file lets it stand still."""

    def __init__(self, options: AttemptOptions, given_s: float | None) -> None:
        self.options = options
        self.given_s = given_s
        #: Hangs so far in which nothing was stopped, and the longest time between two steps: what may be usual here.
        self.hangs = 0
        self.longest_gap_s = 0.0
        self.inspected_s = 0.0
        self.signs = Watch(self.patience)

    @property
    def patience(self) -> Patience:
        """How long the job may stand still: as its file says, or as long as its own past has taught."""
        usual = self.options.patience
        return usual.after_hangs(self.hangs) if self.given_s is None else usual.given(self.given_s)

    def begin(self, before: AttemptProgress) -> None:
        """A start of the job, after one that has come so far."""
        self.signs = Watch(self.patience)
        self.longest_gap_s = max(self.longest_gap_s, before.speed.longest_gap_s)

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look; if so, it is looked now."""
        if now_s - self.inspected_s < self.options.inspect_s:
            return False
        self.inspected_s = now_s
        return True

    def check(self, attempt: Attempt, progress: AttemptProgress, now_s: float) -> Hang | None:
        """The hang of processes that should train, if they hang."""
        hang = self.signs.check(attempt.sample(), self.find_standstill(attempt, progress), now_s)
        self.hangs += hang is not None and hang.cause == "hung"
        return hang

    def is_stuck(self, attempt: Attempt, now_s: float) -> bool:
        """Whether a process that should end will never do so by itself, because it is stopped (SIGSTOP)."""
        return self.is_due(now_s) and self.signs.check(attempt.sample(), Standstill(None), now_s) is not None

    def find_standstill(self, attempt: Attempt, progress: AttemptProgress) -> Standstill:
        """What is known of the job between two steps."""
        alive = [process for process in attempt.ranked if process.is_alive]
        busy = next((process.busy for process in alive if process.busy), "")
        gap_s = max(self.longest_gap_s, progress.speed.longest_gap_s)
        return Standstill(progress.stepped_s, gap_s, any(process.outside for process in alive), busy)
