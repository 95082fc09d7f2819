"""Placing by difference against repacking everyone at each event, as the published ElasticFlow code does.

Prints, for seeded histories of starts, ends, growth and shrinks on a nearly full cluster, the CPU time of one decision
and how many jobs are moved at an unchanged share per change, for both ways beside each other.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from statistics import median
from time import thread_time

from springtide.core.curves import Curve
from springtide.core.decisions import Decision, Snapshot
from springtide.core.devices import Devices, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.world import World
from springtide.placement.best_fit import find_fit, topology_of
from springtide.placement.buddy import place

SHARES = (1, 1, 1, 2, 2, 4, 4, 8, 8, 16)
CURVE = Curve((1, 2, 4, 8, 16), (1.0, 2.0, 4.0, 8.0, 16.0))
Placer = Callable[[Snapshot, Mapping[JobId, int]], Mapping[JobId, Devices]]


@dataclass
class Tally:
    """What one way of placing took."""

    changes: int = 0
    moves: int = 0
    cpu_s: list[float] = field(default_factory=list)


def place_difference(snapshot: Snapshot, shares: Mapping[JobId, int]) -> Mapping[JobId, Devices]:
    """Ours: only what changes, moves only where room must be made."""
    return place(0.0, snapshot, Decision(shares=shares))


def repack(snapshot: Snapshot, shares: Mapping[JobId, int]) -> Mapping[JobId, Devices]:
    """Theirs: forget all places, then largest first; powers of two in descending order always fit."""
    topology, free = topology_of(snapshot.cluster), list(snapshot.cluster.full_masks)
    wanted = [(shares.get(job_id, view.share), view) for job_id, view in snapshot.jobs.items()]
    wanted.sort(key=lambda entry: (-entry[0], entry[1].job.index))
    placed: dict[JobId, Devices] = {}
    for share, view in wanted:
        devices = (find_fit(topology, free, share) if share else ()) or ()
        for node, mask in devices:
            free[node] &= ~mask
        if devices != view.devices:
            placed[view.job.id] = devices
    return placed


def choose_change(world: World, random: Random, arrivals: int) -> dict[JobId, int]:
    """The next change that the free devices allow: growth or a shrink of a running job, else a start."""
    free = sum(mask.bit_count() for mask in world.free_masks)
    running = [job_id for job_id, view in world.jobs.items() if view.share]
    if running and random.random() < 0.4:
        job_id = random.choice(running)
        share = random.choice([world.jobs[job_id].share * 2, max(1, world.jobs[job_id].share // 2)])
        if share <= SHARES[-1] and share - world.jobs[job_id].share <= free:
            return {job_id: share}
    share = random.choice(SHARES)
    while share > free:
        ended = running.pop(random.randrange(len(running)))
        free += world.jobs[ended].share
        world.finish(ended, 0.0)
    job = Job(JobId(f"job-{arrivals}"), arrivals, 0.0, 1e9, CURVE, overhead=Overhead(7.0, 2.0))
    world.arrive(job, 0.0)
    return {job.id: share}


def replay(cluster: str, events: int, seed: int, placer: Placer) -> Tally:
    """Fill a cluster, then change it `events` times; only these are counted."""
    random, world, tally = Random(seed), World(parse_cluster(cluster)), Tally()
    filling = world.cluster.total // 3
    for number in range(filling + events):
        shares = choose_change(world, random, number)
        snapshot = world.snapshot()
        way = placer if number >= filling else place_difference
        started_s = thread_time()
        allocations = way(snapshot, shares)
        took_s = thread_time() - started_s
        moved = sum(1 for job_id in allocations if job_id not in shares)
        world.apply(Decision(allocations=allocations), 0.0)
        if number >= filling:
            tally.changes += len(shares)
            tally.moves += moved
            tally.cpu_s.append(took_s)
    return tally


def main() -> None:
    """Print one line per cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("cluster       ours: µs (p99)  moves/change   repack: µs (p99)  moves/change   time ratio")
    for cluster in ("16x8:a100", "128x8:a100", "1250x8:a100"):
        events = options.events if cluster != "1250x8:a100" else max(20, options.events // 20)
        ours, theirs = (replay(cluster, events, options.seed, placer) for placer in (place_difference, repack))
        ours_s, theirs_s = median(ours.cpu_s), median(theirs.cpu_s)
        print(f"{cluster:12} {_describe(ours)}   {_describe(theirs)}   {theirs_s / ours_s:8.0f}x")


def _describe(tally: Tally) -> str:
    times = sorted(tally.cpu_s)
    p99_s = times[len(times) * 99 // 100]
    return f"{median(times) * 1e6:9.0f} ({p99_s * 1e6:.0f})  {tally.moves / tally.changes:8.2f}"


if __name__ == "__main__":
    main()
