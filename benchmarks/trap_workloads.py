"""Workloads made to trap a policy, drawn from one seed each: no published trace looks like them, real clusters may.

Each family is a rule that some policies rely on, turned against them: cheap jobs that stop coming, deadlines with no
time to spare, jobs that run on half of the cluster or not at all, everyone at the full hour, gangs of a fixed size.

    python -m benchmarks.trap_workloads [--policies springtide,elasticflow] [--seeds 3] [--only giants]
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from springtide.core.curves import Curve
from springtide.core.jobs import Job, JobId, Overhead
from springtide.simulator.front import simulate
from springtide.simulator.traces import Trace, order_jobs

PAUSE = Overhead(base_s=2.0, per_doubling_s=2.0)  # as ElasticFlow charges on less than 256 devices
HOUR_S = 3600.0
POLICIES = ("springtide", "elasticflow", "edf-admission", "edf", "edf-elastic", "springtide-flexible")


class Sketch(NamedTuple):
    """A job before it has an id."""

    submit_s: float
    duration_s: float  # at the requested share
    requested: int
    factor: float  # deadline = submission + factor * duration; infinite: best effort
    shares: tuple[int, ...] = (1, 2, 4, 8)
    serial: float = 0.05  # part of a step that more devices do not shorten


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of workload: how to draw it, and the cluster it is for."""

    draw: Callable[[Random], list[Sketch]]
    cluster: str

    def make(self, name: str, seed: int) -> Trace:
        """The workload of a seed."""
        return build(f"{name}:{seed}", self.draw(Random(f"{name}:{seed}")))


def build(name: str, sketches: list[Sketch]) -> Trace:
    """Sketches as jobs, in order of submission."""
    jobs: list[Job] = []
    for sketch in sketches:
        rates = tuple(1.0 / (sketch.serial + (1.0 - sketch.serial) / share) for share in sketch.shares)
        curve = Curve(sketch.shares, rates)
        deadline_s = sketch.submit_s + sketch.factor * sketch.duration_s
        work = sketch.duration_s * curve.rate(sketch.requested)
        name_of_job = JobId(f"job-{len(jobs)}")
        jobs.append(Job(name_of_job, 0, sketch.submit_s, work, curve, deadline_s, sketch.requested, PAUSE))
    return Trace(name, order_jobs(jobs))


def draw_waiting_loses(random: Random) -> list[Sketch]:
    """Floods of cheap jobs that stop at once, then dear ones that need all the time they have: who waits has lost."""
    sketches, now_s = [], 0.0
    for _ in range(6):
        for _ in range(40):
            now_s += random.expovariate(1 / 20.0)
            sketches.append(Sketch(now_s, random.uniform(60, 180), random.choice((1, 2)), random.uniform(1.5, 3)))
        now_s += 300.0
        for _ in range(8):
            now_s += random.expovariate(1 / 60.0)
            sketches.append(Sketch(now_s, random.uniform(2, 4) * HOUR_S, 4, random.uniform(1.02, 1.3)))
        now_s += 4 * HOUR_S
    return sketches


def draw_razor_thin(random: Random) -> list[Sketch]:
    """Deadlines a few seconds after the earliest possible end."""
    sketches, now_s = [], 0.0
    for _ in range(180):
        now_s += random.expovariate(1 / 240.0)
        share = random.choice((1, 2, 4, 8, 16))
        duration_s = 60.0 * 10.0 ** random.uniform(0.7, 2.0)
        # the pause of a start, the work at the largest share, and next to nothing
        sketches.append(
            Sketch(now_s, duration_s, share, (duration_s + 14.0) * random.uniform(1.0, 1.03) / duration_s, (share,))
        )
    return sketches


def draw_large_shares(random: Random) -> list[Sketch]:
    """Jobs that run on a quarter of the cluster at least, most of them on half of it or all."""
    sketches, now_s = [], 0.0
    for _ in range(150):
        now_s += random.expovariate(1 / 900.0)
        least = random.choice((16, 32, 32, 64))
        shares = tuple(share for share in (16, 32, 64) if share >= least)
        duration_s = 60.0 * 10.0 ** random.uniform(0.5, 2.2)
        sketches.append(Sketch(now_s, duration_s, least, random.uniform(1.1, 3.0), shares, 0.01))
    return sketches


def draw_mixed_giants(random: Random) -> list[Sketch]:
    """Many small jobs of seconds, and a few that hold half of the cluster or all of it for hours."""
    sketches, now_s = [], 0.0
    for _ in range(300):
        now_s += random.expovariate(1 / 90.0)
        if random.random() < 0.06:
            duration_s = random.uniform(0.3, 3) * HOUR_S
            sketches.append(Sketch(now_s, duration_s, 32, random.uniform(1.0, 2.0), (32, 64), 0.01))
        elif random.random() < 0.1:
            sketches.append(Sketch(now_s, random.uniform(5, 60), 32, 4.0, (32, 64), 0.01))
        else:
            duration_s = 10.0 ** random.uniform(0.5, 3.2)
            sketches.append(
                Sketch(
                    now_s, duration_s, random.choice((1, 2, 4, 8)), max(120.0 / duration_s, random.uniform(1.0, 2.0))
                )
            )
    return sketches


def draw_hourly_bursts(random: Random) -> list[Sketch]:
    """Everyone submits at the full hour, more than can be done, of very different cost."""
    sketches = []
    for hour in range(10):
        for _ in range(40):
            submit_s = hour * HOUR_S + random.uniform(0, 30)
            duration_s = 60.0 * 10.0 ** random.uniform(0.3, 2.0)
            sketches.append(Sketch(submit_s, duration_s, random.choice((1, 2, 4)), random.uniform(0.6, 2.0)))
    return sketches


def draw_rigid_gangs(random: Random) -> list[Sketch]:
    """Jobs of one permitted share, a power of two or not, load near one."""
    sketches, now_s = [], 0.0
    for _ in range(400):
        now_s += random.expovariate(1 / 130.0)
        share = random.choices((1, 2, 4, 8, 16, 32), (50, 15, 12, 15, 5, 3))[0]
        duration_s = 60.0 * 10.0 ** random.uniform(0.3, 2.6)
        sketches.append(Sketch(now_s, duration_s, share, random.uniform(1.05, 2.5), (share,)))
    return sketches


def draw_plain(low: float, high: float, gap_s: float) -> Callable[[Random], list[Sketch]]:
    """Elastic jobs with deadlines between `low` and `high` times the duration at the requested share."""

    def draw(random: Random) -> list[Sketch]:
        sketches, now_s = [], 0.0
        for _ in range(250):
            now_s += random.expovariate(1 / gap_s)
            share = random.choices((1, 2, 4, 8), (70, 10, 10, 10))[0]
            minutes = random.uniform(2.5, 3.3) if random.random() < 0.15 else random.uniform(0.7, 2.5)
            serial = random.choice((0.01, 0.05, 0.15))
            shares = (1, 2, 4, 8, 16, 32)
            sketches.append(Sketch(now_s, 60.0 * 10.0**minutes, share, random.uniform(low, high), shares, serial))
        return sketches

    return draw


FAMILIES: Mapping[str, Family] = {
    "waiting_loses": Family(draw_waiting_loses, "4x8:a100"),
    "razor_thin": Family(draw_razor_thin, "4x8:a100"),
    "large_shares": Family(draw_large_shares, "8x8:a100"),
    "mixed_giants": Family(draw_mixed_giants, "8x8:a100"),
    "hourly_bursts": Family(draw_hourly_bursts, "4x8:a100"),
    "rigid_gangs": Family(draw_rigid_gangs, "8x8:a100"),
    "tight": Family(draw_plain(0.5, 1.0, 250.0), "4x8:a100"),
    "plain": Family(draw_plain(0.5, 1.5, 250.0), "4x8:a100"),
    "loose": Family(draw_plain(1.0, 3.0, 250.0), "4x8:a100"),
    "loose_loaded": Family(draw_plain(1.0, 3.0, 150.0), "4x8:a100"),
}


def main() -> None:
    """Print the deadlines met, with a promise or without, and the promises broken, for each family and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--policies", default="springtide,elasticflow,edf-admission,edf,edf-elastic,springtide-flexible"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="families whose name contains this")
    args = parser.parse_args()
    for name, family in FAMILIES.items():
        if args.only in name:
            cells = [show(name, family, policy, args.seeds) for policy in args.policies.split(",")]
            print(f"{name:14} {'  '.join(cells)}", flush=True)


def show(name: str, family: Family, policy: str, seeds: int) -> str:
    """A policy on a family: the mean over the seeds."""
    runs = [simulate(family.make(name, seed), policy, family.cluster) for seed in range(seeds)]
    met = sum((run.met + run.met_unpromised) / run.jobs for run in runs) / seeds
    return f"{policy} {met:.3f} ({sum(run.late_admitted for run in runs)} late)"


if __name__ == "__main__":
    main()
