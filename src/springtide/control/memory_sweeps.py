"""Full garbage collections, kept short on a server of many jobs: what has survived one is left out of the next.

Python looks through all that lives now and then, in the middle of whatever happens to be going on: with 5,000 jobs that
is a third of a second, and a decision waits for it. What the server keeps for long (records, views, plans) holds no
cycles and is freed the moment it is replaced; nothing is found by looking at it again. A cycle among what has survived
once is found when all is looked through, every hour.
"""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

OLDEST = 2  # the generation that is everything
WHOLE_S = 3600.0  # after which a full collection looks at everything again


@dataclass(slots=True)
class Sweeps:
    """Hears of every collection: sets aside what a full one leaves, and takes it back in where it is time."""

    steady_s: Callable[[], float] = time.monotonic
    whole_at_s: float = 0.0

    def __call__(self, phase: str, about: Mapping[str, int]) -> None:
        """Be told that a collection starts or stops."""
        if about["generation"] < OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif (now_s := self.steady_s()) >= self.whole_at_s:
            self.whole_at_s = now_s + WHOLE_S
            gc.unfreeze()


def shorten_sweeps() -> Sweeps:
    """Keep the full collections of this process short from now on."""
    for known in gc.callbacks:
        if isinstance(known, Sweeps):
            return known
    sweeps = Sweeps()
    gc.callbacks.append(sweeps)
    return sweeps
