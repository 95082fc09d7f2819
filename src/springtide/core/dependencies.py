"""Jobs that wait for other jobs: for which end, whether they may go, and the order of several that come together.

Pure. How a name becomes a job, and when it has ended, is known elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from springtide.core.job_states import ENDED, JobState
from springtide.errors import JobError


class AfterEnd(StrEnum):
    """The end of another job that is waited for."""

    OK = "ok"  # it has succeeded
    FAILED = "failed"  # it has ended in another way: failed, cancelled or declined
    ANY = "any"  # it has ended


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that is waited for, by name or id, and how it must end."""

    job: str
    end: AfterEnd = AfterEnd.OK


class Outcome(StrEnum):
    """What is to be done with a job that waits for others."""

    WAIT = "wait"
    GO = "go"
    NEVER = "never"  # one of them has ended in another way than was waited for


def judge_end(end: AfterEnd, state: JobState) -> Outcome:
    """What the state of one job means for a job that waits for its end."""
    if state not in ENDED:
        return Outcome.WAIT
    wanted = end is AfterEnd.ANY or (state is JobState.SUCCEEDED) == (end is AfterEnd.OK)
    return Outcome.GO if wanted else Outcome.NEVER


def judge_ends(waits: Iterable[tuple[AfterEnd, JobState]]) -> Outcome:
    """NEVER if any can no longer end as wanted, else WAIT if any has not ended, else GO."""
    judged = {judge_end(end, state) for end, state in waits}
    return Outcome.NEVER if Outcome.NEVER in judged else Outcome.WAIT if Outcome.WAIT in judged else Outcome.GO


def order_jobs(waits: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Jobs by name so that each comes after those it waits for, else as they stand; a circle is an error that shows it.

    `waits` has for each job the names it waits for; names that are not among the jobs are of jobs that are there.
    """
    left = {name: [other for other in others if other in waits] for name, others in waits.items()}
    ordered: list[str] = []
    while left:
        ready = [name for name, others in left.items() if not any(other in left for other in others)]
        if not ready:
            circle = " -> ".join(find_circle(left))
            raise JobError(f"these jobs wait for each other in a circle: {circle}; take one `after` out")
        ordered += ready
        for name in ready:
            del left[name]
    return tuple(ordered)


def find_circle(left: Mapping[str, Sequence[str]]) -> list[str]:
    """A way round, where every job waits for one of the others: the first name is also the last."""
    path = [next(iter(left))]
    while True:
        other = next(one for one in left[path[-1]] if one in left)
        if other in path:
            return [*path[path.index(other) :], other]
        path.append(other)
