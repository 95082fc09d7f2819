"""What decisions cost: with much to plan, compiled kernels are worth their memory, and they are loaded then."""

import logging
from dataclasses import dataclass

from springtide.policies.planning.compilation import start_compiling

SLOW_DECISION_S = 0.02  # of CPU
SLOW_DECISIONS = 5
logger = logging.getLogger("springtide.control")


@dataclass(slots=True)
class Effort:
    """How many decisions were slow so far."""

    slow: int = 0

    def note(self, cpu_s: float) -> None:
        """Load the compiled planner once decisions are slow; until then it would only take memory."""
        if cpu_s <= SLOW_DECISION_S:
            return
        self.slow += 1
        if self.slow == SLOW_DECISIONS:
            from springtide.policies.planning import columns, filling  # with numpy: not before they are needed

            start_compiling(filling, columns.make_samples())
            logger.info("decisions take more than %g ms: loading the compiled planner", 1000 * SLOW_DECISION_S)
