"""Replays one trace under one policy and reports it.

What is timed is the simulation alone: policy, placement, book-keeping and metrics. Imports, reading and the
compilation of a policy's inner loops happen before.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, process_time

from springtide.core.decisions import Answer, JobView
from springtide.core.devices import Cluster
from springtide.core.jobs import Job, JobId
from springtide.policies import PolicyEntry, decide, find_policy
from springtide.simulator.engine import Decide, EventLoop, Observer
from springtide.simulator.reports import MetricsObserver, ReplayRun, SimulationReport, Timing, sum_up
from springtide.simulator.traces import Trace


@dataclass(frozen=True, slots=True)
class Watchers:
    """Several observers as one, each told in order."""

    observers: tuple[Observer, ...]

    def arrived(self, job: Job, now_s: float) -> None:
        """Pass on an arrival."""
        for observer in self.observers:
            observer.arrived(job, now_s)

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """Pass on an answer."""
        for observer in self.observers:
            observer.answered(job_id, answer, now_s)

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """Pass on a change of devices."""
        for observer in self.observers:
            observer.reallocated(before, after, now_s)

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """Pass on a finish."""
        for observer in self.observers:
            observer.finished(last, final, now_s)


def simulate(trace: Trace, policy: str, cluster: Cluster, watchers: Sequence[Observer] = ()) -> SimulationReport:
    """The report of a trace under the policy of that name."""
    entry = find_policy(policy)
    warm_up(entry)
    jobs = trace.jobs if entry.typed else forget_types(trace.jobs)
    return replay(ReplayRun(trace.name, policy, jobs, cluster), partial(decide, entry), watchers)


def forget_types(jobs: Sequence[Job]) -> Sequence[Job]:
    """The jobs as a policy without types must take them: on any device as fast as on the slowest type."""
    if all(job.typed is None for job in jobs):
        return jobs
    return [job if job.typed is None else replace(job, curve=job.typed.slowest, typed=None) for job in jobs]


def warm_up(policy: PolicyEntry) -> float:
    """Compile what a policy compiles on first use; returns the seconds that took."""
    started_s = process_time()
    policy.compile()
    return process_time() - started_s


def replay(run: ReplayRun, chosen: Decide, watchers: Sequence[Observer] = ()) -> SimulationReport:
    """The report of jobs under any decide function."""
    metrics = MetricsObserver()
    observer: Observer = Watchers((metrics, *watchers)) if watchers else metrics
    engine = EventLoop(run.cluster, chosen, observer)
    # What was read before stays for the whole run: keep the collector from walking it again and again.
    gc.freeze()
    wall_s, cpu_s = perf_counter(), process_time()
    try:
        engine.run(run.jobs)
    finally:
        gc.unfreeze()
    return sum_up(run, metrics, Timing(perf_counter() - wall_s, process_time() - cpu_s))
