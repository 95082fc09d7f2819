"""One arrival among 1,000 admitted jobs on 10,000 GPUs: how long the decision takes, with and without the cache.

    python -m benchmarks.decisions

The world is made by the policy itself: 1,000 jobs with long deadlines arrive one by one and are admitted. Then jobs
that were not there before are decided on again and again at one instant, nothing applied in between: once with what
the last decision cached, once from the bare Snapshot. Placement and rehearsal are part of a decision; compilation is
not. Times are of the CPU.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from time import perf_counter, thread_time

from rich.console import Console
from rich.table import Table

from springtide.core.curves import Curve
from springtide.core.decisions import Changes, JobView, Progress, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.world import World
from springtide.policies import Policy, decide, find_policy

POLICIES = ("elasticflow", "springtide")
WARM_BAR_MS, COLD_BAR_MS = 50.0, 500.0  # issue 2
SHARES = (1, 2, 4, 8, 16, 32, 64)
OVERHEAD = Overhead(7.0, 2.0)
GAP_S = 30.0  # between arrivals


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that each decision took, and how many of the newcomers were admitted."""

    warm_s: list[float]
    cold_s: list[float]
    admitted: int


def draw_jobs(seed: int) -> Iterator[Job]:
    """Jobs without end: a day to a week on the requested share, deadlines of 1.2 to 3 times that, curves that bend."""
    random = Random(seed)
    index = 0
    while True:
        fade = random.uniform(0.75, 0.95)  # speed-up per doubling, over two
        curve = Curve(SHARES, tuple((2 * fade) ** level for level in range(len(SHARES))))
        requested = random.choice((1, 2, 4, 8, 8, 16))
        duration_s = random.uniform(1, 7) * 86400
        submit_s = index * GAP_S
        work = duration_s * curve.rate(requested)
        deadline_s = submit_s + random.uniform(1.2, 3.0) * duration_s
        yield Job(JobId(f"job-{index}"), index, submit_s, work, curve, deadline_s, requested, OVERHEAD)
        index += 1


def admit_jobs(policy: Policy, jobs: Iterator[Job], count: int, cluster: str, limit_s: float) -> tuple[World, float]:
    """A world in which the policy has admitted so many jobs, and its time; fewer if building takes too long."""
    world, now_s, started_s = World(parse_cluster(cluster)), 0.0, perf_counter()
    for job in jobs:
        now_s = job.submit_s
        world.arrive(job, now_s)
        world.apply(decide(policy, now_s, world.snapshot()), now_s)
        admitted = sum(1 for view in world.jobs.values() if view.status is Status.ADMITTED)
        if admitted >= count or perf_counter() - started_s > limit_s:
            return world, now_s
    raise AssertionError("there are always more jobs")


def add_newcomer(snapshot: Snapshot, job: Job) -> Snapshot:
    """The Snapshot with one more job, just arrived."""
    jobs = {**snapshot.jobs, job.id: JobView(job, Progress(job.work, since_s=job.submit_s))}
    return replace(snapshot, jobs=jobs, changes=Changes(arrived=(job.id,)))


def time_decision(policy: Policy, now_s: float, snapshot: Snapshot, job_id: JobId) -> tuple[float, bool]:
    """Seconds of CPU for one decision (one thread; a busy machine does not count), and whether the job is admitted."""
    started_s = thread_time()
    decision = decide(policy, now_s, snapshot)
    return thread_time() - started_s, decision.answers[job_id].status is Status.ADMITTED


def measure(policy: Policy, world: World, now_s: float, jobs: list[Job]) -> Times:
    """Each job as the only newcomer, decided on with the cache and without."""
    snapshot = world.snapshot()
    times = Times([], [], 0)
    admitted = 0
    for job in jobs:
        asked = add_newcomer(snapshot, replace(job, submit_s=now_s, deadline_s=job.deadline_s - job.submit_s + now_s))
        warm_s, is_admitted = time_decision(policy, now_s, asked, job.id)
        cold_s, again = time_decision(policy, now_s, replace(asked, cache=None), job.id)
        assert is_admitted == again, "the cache changed a decision"
        admitted += is_admitted
        times.warm_s.append(warm_s)
        times.cold_s.append(cold_s)
    return replace(times, admitted=admitted)


def describe(times_s: list[float], bar_ms: float) -> str:
    """Median and 90th percentile in milliseconds, beside the bar."""
    ordered = sorted(times_s)
    middle_ms, high_ms = 1000 * median(ordered), 1000 * ordered[len(ordered) * 9 // 10]
    verdict = "ok" if middle_ms <= bar_ms else "MISSED"
    return f"{middle_ms:.1f} (p90 {high_ms:.1f}), bar {bar_ms:g}: {verdict}"


def main() -> None:
    """Print one line per policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--cluster", default="1250x8:a100")
    parser.add_argument("--arrivals", type=int, default=41, help="newcomers that are timed")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for building the world, per policy")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = Table("policy", "admitted", "held", "newcomers in", "warm, ms", "cold, ms", "warm/cold", box=None)
    for name in POLICIES:
        find_policy(name).compile()
        policy = find_policy(name).load()
        jobs = draw_jobs(options.seed)
        world, now_s = admit_jobs(policy, jobs, options.jobs, options.cluster, options.limit)
        times = measure(policy, world, now_s, [next(jobs) for _ in range(options.arrivals)])
        table.add_row(
            name,
            str(sum(1 for view in world.jobs.values() if view.status is Status.ADMITTED)),
            f"{sum(view.share for view in world.jobs.values())}/{world.cluster.total}",
            f"{times.admitted}/{options.arrivals}",
            describe(times.warm_s, WARM_BAR_MS),
            describe(times.cold_s, COLD_BAR_MS),
            f"{median(times.warm_s) / median(times.cold_s):.2f}",
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
