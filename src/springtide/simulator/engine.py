"""The clock of the simulator: jumps from event to event and calls the same `decide` that runs live.

Completions come first at an instant, then arrivals in order, then the policy's own wake-up; the policy is called
once per distinct instant. Nothing is stepped: a job's finish is computed when its devices change, and only then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from springtide.core.decisions import Answer, Decision, JobView, Snapshot
from springtide.core.devices import Cluster
from springtide.core.jobs import Job, JobId
from springtide.core.world import World

Decide = Callable[[float, Snapshot], Decision]


class Observer(Protocol):
    """Who watches a run: metrics, plots, tests. Called after each thing happened, in order."""

    def arrived(self, job: Job, now_s: float) -> None:
        """A job was submitted."""

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """A job got an answer."""

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """A job's devices changed."""

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """A job ended; `last` still holds its devices, `final` none."""


@dataclass(slots=True)
class Engine:
    """One run: a world, the jobs still to come in order of submission, and the finishes to expect."""

    cluster: Cluster
    decide: Decide
    observer: Observer
    world: World = field(init=False)
    now_s: float = field(init=False, default=-inf)
    calls: int = field(init=False, default=0)
    # (finish, arrival index, id); an entry is stale unless it is the job's current finish
    finishes: list[tuple[float, int, JobId]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.cluster)

    def run(self, jobs: Sequence[Job]) -> None:
        """Replay jobs, given in order of submission, until nothing more can happen."""
        coming = iter(jobs)
        following = next(coming, None)
        wake_at_s = inf
        while True:
            next_finish_s = self._next_finish_s()
            now_s = min(next_finish_s, following.submit_s if following else inf, wake_at_s)
            if now_s == inf:
                return
            self.now_s = now_s
            while self._next_finish_s() <= now_s:
                self._finish(heappop(self.finishes)[2])
            while following is not None and following.submit_s <= now_s:
                self.world.arrive(following, now_s)
                self.observer.arrived(following, now_s)
                following = next(coming, None)
            wake_at_s = self._call_policy()

    def _next_finish_s(self) -> float:
        while self.finishes:
            finish_s, _, job_id = self.finishes[0]
            view = self.world.jobs.get(job_id)
            if view is not None and view.progress.finish_s == finish_s:
                return finish_s
            heappop(self.finishes)
        return inf

    def _finish(self, job_id: JobId) -> None:
        last = self.world.jobs[job_id]
        self.observer.finished(last, self.world.finish(job_id, self.now_s), self.now_s)

    def _call_policy(self) -> float:
        decision = self.decide(self.now_s, self.world.snapshot())
        self.calls += 1
        for job_id, answer in decision.answers.items():
            self.observer.answered(job_id, answer, self.now_s)
        for before, after in self.world.apply(decision, self.now_s):
            if after is before:
                continue
            self.observer.reallocated(before, after, self.now_s)
            if after.share:
                heappush(self.finishes, (after.progress.finish_s, after.job.index, after.job.id))
        if decision.wake_at_s <= self.now_s:
            raise AssertionError(
                f"policy asks to be woken at {decision.wake_at_s} s, which is not after {self.now_s} s"
            )
        return decision.wake_at_s
