"""A policy that fails again and again in the same place: is one newcomer why? Then it is held, and others go on.

Each newcomer is left out for once, on a world that is rolled back; only one without which a decision succeeds, and with
which it then fails again, is to blame. A policy that fails by itself, or sometimes, costs nobody their place.
"""

import logging
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from springtide.control.scheduling import transitions
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.storage.database.databases import is_unavailable
from springtide.core.decisions import Status

if TYPE_CHECKING:
    from springtide.control.scheduling.reconciler import Reconciler

FAILURES_IN_A_ROW = 3  # before anybody is suspected
MOST_SUSPECTS = 8
logger = logging.getLogger("springtide.control")


@dataclass(slots=True)
class DecisionFailures:
    """How often in a row decisions have failed in the same place, and at which number it is looked for the reason."""

    place: tuple[object, ...] = ()
    count: int = 0
    look_at: int = FAILURES_IN_A_ROW

    def note(self, error: Exception) -> bool:
        """Count a failure; returns whether to look for the newcomer that is why, ever more rarely."""
        place = find_place(error)
        if place != self.place:
            self.forget()
            self.place = place
        self.count += 1
        if self.count < self.look_at:
            return False
        self.look_at *= 2
        return True

    def forget(self) -> None:
        """A decision was good, or its reason is found."""
        self.place, self.count, self.look_at = (), 0, FAILURES_IN_A_ROW


def find_place(error: Exception) -> tuple[object, ...]:
    """What equal failures have in common: the kind of the error, and the line that raised it; no instants."""
    frames = traceback.extract_tb(error.__traceback__)
    return (type(error), frames[-1].filename, frames[-1].lineno) if frames else (type(error),)


def put_culprit_aside(reconciler: "Reconciler", error: Exception) -> None:
    """Hold the newcomer that makes every decision fail, if there is one, and keep why for the operator."""
    world, staging = reconciler.context.world, reconciler.context.staging
    pending = [view.job.id for view in world.jobs.values() if view.status is Status.PENDING]
    for job_id in reversed(pending[-MOST_SUSPECTS:]):
        if succeeds(reconciler, job_id):
            if succeeds(reconciler, None):
                return  # it has recovered by itself
            why = f"no decision can be made while it waits: {show_safely(error)}"
            transitions.hold(staging, world, job_id, False, why)
            staging.put_aside("decision", job_id, job_id, error)
            logger.error("job %s makes every decision fail; it is held, and all others go on", job_id)
            reconciler.failures.forget()
            reconciler.dirty = True
            return


def succeeds(reconciler: "Reconciler", without: str | None) -> bool:
    """Whether a decision could be made now, without one of the jobs; nothing is changed by asking."""
    context, mark = reconciler.context, reconciler.mark()
    try:
        if without is not None:
            transitions.hold(context.staging, context.world, without, False, "")
        reconciler.take_decision(reconciler.now_s)
    except Exception as error:  # a policy may be anybody's code
        if is_unavailable(error):
            raise
        return False
    finally:
        reconciler.roll_back(mark)
    return True
