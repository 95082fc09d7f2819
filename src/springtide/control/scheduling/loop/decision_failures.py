"""Decisions that fail again and again in the same place: is one newcomer why? Then it is held, and others go on.

The cause is looked for in trials that are rolled back: with which newcomers, from the oldest on, does a decision first
fail? A newcomer is to blame only if the decision succeeds with others in its place; an array counts as one. A policy
that fails by itself, with any newcomer at all, or sometimes, costs nobody their place.
"""

import logging
import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from springtide.control.scheduling import transitions
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.storage.database.databases import is_unavailable
from springtide.core.decisions import Status
from springtide.core.jobs import Job, JobId

if TYPE_CHECKING:
    from springtide.control.scheduling.reconciler import Reconciler

FAILURES_IN_A_ROW = 3  # before anybody is suspected
MOST_COMPARED = 8  # newcomers, with the oldest one if that is suspected
ASKED_AGAIN = 2  # a policy that fails sometimes is not taken for poison
STAND_IN = JobId("~")  # the id of no job
logger = logging.getLogger("springtide.control")


#: The jobs that came together: one, or those of an array.
Newcomer = tuple[str, ...]


@dataclass(slots=True)
class DecisionFailures:
    """How often in a row decisions have failed in the same place, and at which count to look for the cause."""

    place: tuple[object, ...] = ()
    count: int = 0
    look_at: int = FAILURES_IN_A_ROW
    newest: str | None = None  # the last newcomer when the cause was looked for; None: it has not been

    def note(self, error: Exception, newest: str) -> bool:
        """Count a failure; returns whether to look for the newcomer that causes it: whenever another has come since
        the last look, else ever more rarely.
        """
        place = find_place(error)
        if place != self.place:
            self.forget()
            self.place = place
        self.count += 1
        if self.count < self.look_at and self.newest in (None, newest):
            return False
        self.look_at, self.newest = max(self.look_at, 2 * self.count), newest
        return True

    def forget(self) -> None:
        """A decision was good, or the cause is found."""
        self.place, self.count, self.look_at, self.newest = (), 0, FAILURES_IN_A_ROW, None


def find_place(error: Exception) -> tuple[object, ...]:
    """What equal failures have in common: the kind of the error, and the line that raised it; no instants."""
    frames = traceback.extract_tb(error.__traceback__)
    return (type(error), frames[-1].filename, frames[-1].lineno) if frames else (type(error),)


def note_failure(reconciler: "Reconciler", error: Exception) -> None:
    """Count a decision that could not be made or stored; after several in a row put aside the newcomer to blame."""
    newcomers = list_newcomers(reconciler)
    if reconciler.failures.note(error, newcomers[-1][0] if newcomers else ""):
        put_culprit_aside(reconciler, newcomers, error)


def list_newcomers(reconciler: "Reconciler") -> list[Newcomer]:
    """Those that no policy has answered yet, the oldest first."""
    staging, found = reconciler.context.staging, dict[str, Newcomer]()
    for view in reconciler.context.world.jobs.values():
        if view.status is Status.PENDING:
            record = staging.jobs.get(view.job.id)
            place = None if record is None else record.array_place
            key = view.job.id if place is None else f"array {place.id}"
            found[key] = (*found.get(key, ()), view.job.id)
    return list(found.values())


def put_culprit_aside(reconciler: "Reconciler", newcomers: Sequence[Newcomer], error: Exception) -> None:
    """Hold the newcomer that makes every decision fail, if there is one, and keep why for the operator."""
    trials = Trials(reconciler, newcomers)
    culprit = trials.find_culprit()
    if culprit is None:
        return
    staging, world = reconciler.context.staging, reconciler.context.world
    why = f"no decision can be made while it waits: {show_safely(error)}"
    for job_id in culprit:
        transitions.hold(staging, world, job_id, False, why)
        staging.put_aside("decision", job_id, job_id, error)
        logger.error("job %s makes every decision fail; it is held, and all others go on", job_id)
    reconciler.failures.forget()
    reconciler.dirty = True


@dataclass(frozen=True, slots=True)
class Trials:
    """Decisions that are tried with some of the newcomers, as if the others had not come; nothing is changed."""

    reconciler: "Reconciler"
    newcomers: Sequence[Newcomer]

    def find_culprit(self) -> Newcomer | None:
        """The first newcomer, by age, with which no decision succeeds any more, if it would with another one."""
        if not self.newcomers or self.succeed(self.newcomers) or not self.succeed(()):
            return None  # it has recovered, or fails by itself
        good, bad = 0, len(self.newcomers)  # so many, from the oldest on, with which a decision succeeds, and fails
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.succeed(self.newcomers[:middle]) else (good, middle)
        for _ in range(ASKED_AGAIN):
            if self.succeed(self.newcomers[:bad]) or not self.succeed(self.newcomers[:good]):
                return None
        culprit = self.newcomers[good]
        return culprit if good or self.is_worse(culprit) else None

    def is_worse(self, oldest: Newcomer) -> bool:
        """Whether a decision succeeds with another newcomer, where it does not with the oldest one."""
        others = random.sample(self.newcomers[1:], min(MOST_COMPARED, len(self.newcomers) - 1))
        return self.is_worse_than_answered(oldest) or any(self.succeed([one]) for one in others)

    def is_worse_than_answered(self, newcomer: Newcomer) -> bool:
        """Whether the policy fails with a newcomer, and would not if a job that it has answered came again."""
        jobs = self.reconciler.context.world.jobs
        answered = next((one.job for one in jobs.values() if one.status is not Status.PENDING), None)
        if answered is None:
            return False
        mark = self.reconciler.mark()
        try:
            came = [jobs[JobId(job_id)].job for job_id in newcomer]
            self.leave_out(self.newcomers)
            stand_in = replace(answered, id=STAND_IN, index=came[0].index)
            return self.bears([stand_in]) and not self.bears(came)
        finally:
            self.reconciler.roll_back(mark)

    def bears(self, jobs: Sequence[Job]) -> bool:
        """Whether the policy says something that can be done if these jobs come now."""
        twin, now_s = self.reconciler.context.world.copy(), self.reconciler.now_s
        try:
            for job in jobs:
                twin.arrive(job, now_s)
            twin.apply(self.reconciler.decide(now_s, twin.snapshot()), now_s)
        except Exception:  # a policy may be anybody's code
            return False
        return True

    def succeed(self, came: Sequence[Newcomer]) -> bool:
        """Whether a decision could be made now, and stored, if only these newcomers had come."""
        context, mark = self.reconciler.context, self.reconciler.mark()
        try:
            self.leave_out([one for one in self.newcomers if one not in came])
            self.reconciler.take_decision(self.reconciler.now_s)
            context.staging.store.try_write(context.staging.batch)
        except Exception as error:  # a policy may be anybody's code
            if is_unavailable(error):
                raise
            return False
        finally:
            self.reconciler.roll_back(mark)
        return True

    def leave_out(self, newcomers: Sequence[Newcomer]) -> None:
        """Be as if some newcomers had not come."""
        context = self.reconciler.context
        for one in newcomers:
            for job_id in one:
                transitions.hold(context.staging, context.world, job_id, False, "")
