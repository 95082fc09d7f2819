"""The clock of the simulator: jumps from event to event and calls the same `decide` that runs live.

Completions come first at an instant, then arrivals in order, then the policy's own wake-up; the policy is called
once per distinct instant. Nothing is stepped: a job's finish is computed when its devices change, and only then.
Where devices are lent by another system, they come and go by a schedule, and who does not leave in time is put off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Protocol

from springtide.core.decisions import Answer, Decide, Decision, JobView
from springtide.core.devices import Cluster
from springtide.core.jobs import Job, JobId
from springtide.core.world import World


class Observer(Protocol):
    """Who watches a run: metrics, plots, tests. Called after each thing happened, in order; does nothing by default."""

    def arrived(self, job: Job, now_s: float) -> None:
        """A job was submitted."""
        return

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """A job got an answer."""
        return

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """A job's devices changed."""
        return

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """A job ended; `last` still holds its devices, `final` none."""
        return


class Lending(NamedTuple):
    """From `at_s` on jobs may use these devices (a mask for each node), and are to leave all others."""

    at_s: float
    lent: tuple[int, ...]


@dataclass(slots=True)
class Simulation:
    """One run: a world, the jobs still to come in order of submission, and the finishes to expect.

    `lendings`, ascending, say which devices there are; jobs get `grace_s` to leave those that are claimed.
    """

    cluster: Cluster
    decide: Decide
    observer: Observer
    lendings: Sequence[Lending] = ()
    grace_s: float = 0.0
    world: World = field(init=False)
    now_s: float = field(init=False, default=-inf)
    calls: int = field(init=False, default=0)
    lent: int = field(init=False, default=0)  # lendings in force so far
    claimed_s: float = field(init=False, default=-inf)  # when the devices that jobs are to leave were claimed
    # (finish, arrival index, id); an entry is stale unless it is the job's current finish
    finishes: list[tuple[float, int, JobId]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.cluster)

    def run(self, jobs: Sequence[Job], until_s: float = inf) -> None:
        """Replay jobs, given in order of submission, until nothing more can happen or the time is over."""
        coming = iter(jobs)
        following = next(coming, None)
        wake_at_s = inf
        while True:
            next_finish_s = self._next_finish_s()
            now_s = min(next_finish_s, following.submit_s if following else inf, wake_at_s, self._next_claim_s())
            if now_s == inf or now_s > until_s:
                return
            self.now_s = now_s
            self._change_capacity()
            while self._next_finish_s() <= now_s:
                self._finish(heappop(self.finishes)[2])
            while following is not None and following.submit_s <= now_s:
                self.world.arrive(following, now_s)
                self.observer.arrived(following, now_s)
                following = next(coming, None)
            wake_at_s = self._call_policy()

    def _next_claim_s(self) -> float:
        """When the devices lent change next, or a grace ends."""
        lending_s = self.lendings[self.lent].at_s if self.lent < len(self.lendings) else inf
        return min(lending_s, self.claimed_s + self.grace_s) if self.world.leaving else lending_s

    def _change_capacity(self) -> None:
        if self.world.leaving and self.now_s >= self.claimed_s + self.grace_s:
            self._put_off()
        while self.lent < len(self.lendings) and self.lendings[self.lent].at_s <= self.now_s:
            if not self.world.leaving:
                self.claimed_s = self.now_s
            self.world.lend(self.lendings[self.lent].lent)
            self.lent += 1

    def _put_off(self) -> None:
        """Take all devices from the jobs that have not left those claimed."""
        leaving = self.world.leaving
        holders = [
            view for view in self.world.jobs.values() if any(leaving[node] & mask for node, mask in view.devices)
        ]
        for before, after in self.world.apply(Decision(allocations={v.job.id: () for v in holders}), self.now_s):
            self.observer.reallocated(before, after, self.now_s)

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
                self._expect_finish(after)
        assert decision.wake_at_s > self.now_s, f"woken at {decision.wake_at_s} s, which is not after {self.now_s} s"
        return decision.wake_at_s

    def _expect_finish(self, view: JobView) -> None:
        """Note when a job will end that has just got its devices."""
        heappush(self.finishes, (view.progress.finish_s, view.job.index, view.job.id))
