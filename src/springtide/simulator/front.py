"""The simulator as a function: a trace, a policy and a cluster in, a report out; `batches` does many.

What is timed is the simulation alone: policy, placement, book-keeping and metrics. Imports, reading and the
compilation of a policy's inner loops, where that pays, happen before.
"""

import gc
from collections import Counter
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from springtide.core.decisions import Answer, Decide, JobView
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.errors import TraceError
from springtide.policies import POLICIES, Policy, PolicyEntry, decide, find_policy
from springtide.simulator.engine import Observer, Simulation
from springtide.simulator.reports import MetricsObserver, ReplayRun, SimulationReport, Timing, sum_up
from springtide.simulator.scenarios import Scenario, load_scenario
from springtide.simulator.traces import Trace, order_jobs, read_trace
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead

#: Jobs from which compiled code pays, even on a machine where it must be made first: fewer take seconds without.
COMPILED_FROM = 300


def simulate(
    trace: Trace | Path | str | Sequence[Job],
    policy: str | Policy | PolicyEntry = "springtide",
    cluster: Cluster | str = "16x8:a100",
    watchers: Sequence[Observer] = (),
    *,
    profiles: Path | str | None = None,
    overhead: Overhead | str = "elasticflow",
    time_scale: float = 1.0,
) -> SimulationReport:
    """The report of a trace under a policy on a cluster.

    `trace` is a CSV file, a workload to draw (`jobs=1000,gap=1500,seed=0`), or jobs; `policy` is a name, an entry,
    `module:function` or a function `(now_s, snapshot) -> Decision`; `watchers` are told what happens. `profiles` (a
    folder of speeds; those of the package if none is given), `overhead` (the cost of a change of devices) and
    `time_scale` say how the jobs of a file or a workload run; jobs that are given know it themselves.

    >>> from springtide.core.decisions import Answer, Decision, Status
    >>> def largest_first(now_s, snapshot):
    ...     free = sum(mask.bit_count() for mask in snapshot.free_masks)
    ...     shares = {}
    ...     waiting = [view.job for view in snapshot.jobs.values() if not view.share]
    ...     for job in sorted(waiting, key=lambda job: -job.work):
    ...         share = job.curve.level_within(free)
    ...         if share:
    ...             shares[job.id] = share
    ...             free -= share
    ...     answers = dict.fromkeys(snapshot.changes.arrived, Answer(Status.ADMITTED))
    ...     return Decision(answers=answers, shares=shares)
    >>> mine = simulate("jobs=60,gap=900,seed=1", largest_first, "2x8:a100")
    >>> ours = simulate("jobs=60,gap=900,seed=1", "springtide", "2x8:a100")
    >>> mine.finished, mine.dsr < ours.dsr, ours.late_admitted
    (60, True, 0)
    """
    machines = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    pause = parse_overhead(overhead, machines.total) if isinstance(overhead, str) else overhead
    if isinstance(trace, (str, Path)):
        scenario = load_scenario(machines, None if profiles is None else Path(profiles), pause, time_scale)
        jobs = load_trace(trace, scenario)
    else:
        jobs = trace if isinstance(trace, Trace) else gather_jobs(trace)
    entry = find_policy(policy)
    if pays_to_compile(jobs.jobs):
        warm_up(entry)
    return replay(ReplayRun(jobs.name, entry.name, jobs.jobs, machines), partial(decide, entry), watchers)


def pays_to_compile(jobs: Sized) -> bool:
    """Whether a run is long enough to be worth the wait for compiled code; its decisions are the same either way."""
    return len(jobs) >= COMPILED_FROM


def warm_up(policy: PolicyEntry) -> float:
    """Compile what a policy compiles on first use; returns the seconds that took."""
    started_s = process_time()
    policy.compile()
    return process_time() - started_s


def replay(run: ReplayRun, chosen: Decide, watchers: Sequence[Observer] = ()) -> SimulationReport:
    """The report of jobs under any decide function."""
    metrics = MetricsObserver()
    observer: Observer = Watchers((metrics, *watchers)) if watchers else metrics
    engine = Simulation(run.cluster, chosen, observer)
    # What was read before stays for the whole run: keep the collector from walking it again and again.
    gc.freeze()
    wall_s, cpu_s = perf_counter(), process_time()
    try:
        engine.run(run.jobs)
    finally:
        gc.unfreeze()
    return sum_up(run, metrics, Timing(perf_counter() - wall_s, process_time() - cpu_s))


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


def load_trace(source: Path | str, scenario: Scenario) -> Trace:
    """The jobs of a file, or those that a workload such as `jobs=1000,gap=1500` draws."""
    if isinstance(source, str) and "=" in source and not Path(source).exists():
        return draw_trace(parse_workload(source), scenario)
    return read_trace(Path(source), scenario)


def gather_jobs(jobs: Sequence[Job]) -> Trace:
    """Jobs made by hand as a trace: in order of submission, numbered through."""
    if not jobs:
        raise TraceError("there are no jobs to simulate; give at least one")
    (name, count), *_ = Counter(job.id for job in jobs).most_common(1)
    if count > 1:
        raise TraceError(f"job id {name!r} is used {count} times; every job needs its own")
    return Trace("jobs", order_jobs(jobs))


def choose_policies(text: str) -> list[str]:
    """The policies that a list of names stands for, each one that can be run; `all` are those of the package."""
    if text.strip() == "all":
        return list(POLICIES)
    names = dict.fromkeys(name.strip() for name in text.split(","))
    for name in names:
        find_policy(name)
    return list(names)
