"""Steps of the reconciler that fail, as while the store does: tried again after ever longer pauses, and told once."""

import logging
import time
from dataclasses import dataclass
from math import inf

from springtide.control.scheduling.loop.health import show_safely

LEAST_PAUSE_S = 0.05
MOST_PAUSE_S = 2.0  # a store that is back is used again within this
TOLD_AGAIN_S = 60.0
logger = logging.getLogger("springtide.control")


@dataclass(slots=True)
class BadSteps:
    """The failures in a row: how long to wait before the next try, and what the log has been told."""

    pause_s: float = LEAST_PAUSE_S
    told: str = ""
    told_s: float = -inf
    count: int = 0

    def note(self, error: Exception) -> float:
        """Log a failure, with traceback if it is new, else at most one line a minute; returns how long to wait."""
        why, now_s = show_safely(error), time.monotonic()
        pause_s, self.pause_s, self.count = self.pause_s, min(2 * self.pause_s, MOST_PAUSE_S), self.count + 1
        if why != self.told:
            logger.error("a step of the reconciler failed; it begins again from what is stored", exc_info=error)
            self.told, self.told_s = why, now_s
        elif now_s - self.told_s >= TOLD_AGAIN_S:
            logger.error("%d steps of the reconciler have failed in a row: %s", self.count, why)
            self.told_s = now_s
        return pause_s

    def forget(self) -> None:
        """A step was good."""
        self.pause_s, self.told, self.told_s, self.count = LEAST_PAUSE_S, "", -inf, 0
