"""Seeded faults on the whole platform: no job lost, none run twice, and every model's bits those of a quiet run.

`python -m benchmarks.chaos [--faults 100] [--seed 0]` keeps three training jobs going on a real server, agent and
workers, and breaks things one after the other: kill -9 of a worker, the agent, the server, or all of them; a worker
that is stopped (SIGSTOP); a full checkpoint disk (a small tmpfs in a mount namespace of our own where that is
permitted, else ENOSPC at the write); the server's wall clock set an hour forward or back. Ends within 30 minutes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.arenas import LOOK_S, Arena, Recipe, Step
from benchmarks.faults import FAULTS, PATIENCE_S, Scene
from springtide.client.replies import JobInfo
from springtide.core.job_states import ENDED

ACTIVE = 3
LONGEST_S = 1700.0
#: A victim has this many steps before it, so that it does not end before the fault shows.
STEPS_LEFT = 40
RECIPES = tuple(Recipe(seed, steps) for seed, steps in ((0, 80), (1, 120), (2, 160)))
DISK_SIZE = "4m"
IN_NAMESPACE = "--in-namespace"


@dataclass
class Fault:
    """One thing that was broken, and what came of it."""

    kind: str
    jobs: list[str]
    seconds: float | None = None

    @property
    def recovered(self) -> bool:
        """Whether everything went on in time."""
        return self.seconds is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one job."""

    job: str
    state: str
    sentence: str
    faults: int
    rescales: int
    equal: bool
    #: Whether two of its processes took steps at the same time, or it ended more than once.
    twice: bool

    @property
    def lost(self) -> bool:
        """Whether it did not end well."""
        return self.state != "succeeded"


# The run.


def run(arena: Arena, count: int, seed: int, tell: Callable[[str], None]) -> tuple[list[Fault], list[Verdict]]:
    """So many faults, and the verdicts on all jobs when the last has ended."""
    dice = Random(seed)
    began_s = time.monotonic()
    arena.start_server()
    faults: list[Fault] = []
    for number, kind in enumerate(deal(count, dice), start=1):
        if time.monotonic() - began_s > LONGEST_S:
            tell(f"{count - number + 1} faults left out: the time is up")
            break
        time.sleep(dice.uniform(0.0, 1.0))
        scene = set_scene(arena, dice, is_longest=kind == "disk full")
        jobs, seconds = FAULTS[kind](scene)
        faults.append(Fault(kind, [job.id for job in jobs], seconds))
        told = f"{seconds:.1f} s" if seconds is not None else "NOT RECOVERED"
        tell(f"{number:3}/{count} {time.monotonic() - began_s:5.0f} s  {kind:<15} {len(jobs)} jobs  {told}")
    wait_for_end(arena)
    return faults, [judge(arena, job) for job in arena.recipes]


def deal(count: int, dice: Random) -> list[str]:
    """So many kinds of fault in a random order, each as often as the others."""
    kinds = [list(FAULTS)[k % len(FAULTS)] for k in range(count)]
    dice.shuffle(kinds)
    return kinds


def set_scene(arena: Arena, dice: Random, is_longest: bool) -> Scene:
    """Keep enough jobs going, and wait until one of them is well on its way: any, or the one with most before it."""
    until_s = time.monotonic() + 2 * PATIENCE_S
    while time.monotonic() < until_s:
        jobs = arena.active()
        fit = [job for job in jobs if is_fit(arena, job)]
        if len(jobs) < ACTIVE:
            arena.submit(dice.choice(RECIPES), dice.choice([None, "30m"]))
        elif fit:
            running = [job for job in jobs if job.state == "running" and arena.read_ledger(job.id)]
            victim = max(fit, key=count_left) if is_longest else dice.choice(fit)
            return Scene(arena, dice, victim, running)
        else:
            time.sleep(LOOK_S)
    seen = [job.document for job in arena.client.jobs(all=True)]
    raise SystemExit(f"no job got going; they are {json.dumps(seen, indent=1)[:4000]}")


def is_fit(arena: Arena, job: JobInfo) -> bool:
    """Whether a job runs, is at rest, and has some way to go."""
    return bool(
        job.state == "running"
        and job.devices
        and not job.conditions
        and job.step > 2
        and count_left(job) >= STEPS_LEFT
        and arena.find_workers(job.id)
    )


def count_left(job: JobInfo) -> int:
    """The steps a job has before it."""
    return (job.total_steps or 0) - job.step


def wait_for_end(arena: Arena) -> None:
    """Wait until every job has ended, within reason."""
    until_s = time.monotonic() + 3 * PATIENCE_S
    while arena.active() and time.monotonic() < until_s:
        time.sleep(LOOK_S)


def judge(arena: Arena, job: str) -> Verdict:
    """What became of a job."""
    document = arena.client.job(job)
    ends = [event for event in arena.client.events(job) if event.kind in ENDED]
    twice = len(ends) > 1 or overlap(arena.read_ledger(job))
    equal = arena.find_digest(job) == arena.train_undisturbed(arena.recipes[job])
    said = (str(document.state), document.sentence)
    return Verdict(job, *said, document.faults, document.rescales, equal, twice)


def overlap(steps: Sequence[Step]) -> bool:
    """Whether two processes took steps of one job in turns: one was still there when another had begun."""
    spans: dict[int, tuple[float, float]] = {}
    for step in steps:
        first_s, last_s = spans.get(step.pid, (step.at_s, step.at_s))
        spans[step.pid] = (min(first_s, step.at_s), max(last_s, step.at_s))
    ordered = sorted(spans.values())
    return any(after[0] < before[1] for before, after in pairwise(ordered))


# The report.


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of fault, over the whole run."""

    kind: str
    count: int
    recovered: int
    median_s: float | None
    longest_s: float | None
    jobs: int
    equal: int


def sum_up(kind: str, faults: Sequence[Fault], verdicts: Sequence[Verdict]) -> Row:
    """The row of some faults; jobs are those that were hit by any of them."""
    seconds = [fault.seconds for fault in faults if fault.seconds is not None]
    hit = {job for fault in faults for job in fault.jobs}
    equal = sum(verdict.equal for verdict in verdicts if verdict.job in hit)
    return Row(
        kind,
        len(faults),
        len(seconds),
        round(median(seconds), 2) if seconds else None,
        round(max(seconds), 2) if seconds else None,
        len(hit),
        equal,
    )


def make_document(faults: list[Fault], verdicts: list[Verdict], took_s: float, is_mounted: bool) -> dict[str, Any]:
    """Everything that was found."""
    rows = [sum_up(kind, [fault for fault in faults if fault.kind == kind], verdicts) for kind in FAULTS]
    totals = {
        "faults": len(faults),
        "recovered": sum(fault.recovered for fault in faults),
        "jobs": len(verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "twice": sum(verdict.twice for verdict in verdicts),
        "equal": sum(verdict.equal for verdict in verdicts),
        "rescales": sum(verdict.rescales for verdict in verdicts),
        "took_s": round(took_s, 1),
        "disk": "tmpfs" if is_mounted else "injected",
    }
    return {
        "schema": 1,
        "ok": totals["recovered"] == totals["faults"]
        and totals["equal"] == totals["jobs"]
        and not totals["lost"]
        and not totals["twice"],
        "totals": totals,
        "kinds": [asdict(row) for row in rows],
        "jobs": [asdict(verdict) for verdict in verdicts],
    }


def print_report(document: dict[str, Any]) -> None:
    """The table per kind of fault, and the totals."""
    print(
        f"{'fault':<15} {'count':>5} {'recovered':>9} {'median s':>8} {'longest s':>9} {'jobs':>5} {'equal hashes':>12}"
    )
    for row in document["kinds"]:
        shown = [f"{value:.1f}" if value is not None else "-" for value in (row["median_s"], row["longest_s"])]
        print(
            f"{row['kind']:<15} {row['count']:>5} {row['recovered']:>9} {shown[0]:>8} {shown[1]:>9} "
            f"{row['jobs']:>5} {row['equal']:>12}"
        )
    for job in document["jobs"]:
        if job["state"] != "succeeded" or not job["equal"]:
            print(f"{job['job']} {job['state']}, bits equal: {job['equal']}: {job['sentence']}")
    totals = document["totals"]
    print(
        f"{totals['recovered']} of {totals['faults']} faults recovered from in {totals['took_s']:.0f} s; of "
        f"{totals['jobs']} jobs {totals['lost']} lost, {totals['twice']} run twice, {totals['equal']} with the bits of "
        f"an undisturbed run; {totals['rescales']} rescales on the way; full disk: {totals['disk']}"
    )


# The disk.


@contextmanager
def open_disk(folder: Path, in_namespace: bool) -> Iterator[Path]:
    """A folder for checkpoints: a tmpfs of its own if we are in a mount namespace of our own."""
    disk = folder / "disk"
    disk.mkdir()
    if not in_namespace:
        yield disk
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "springtide-chaos", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


def enter_namespace() -> None:
    """Go on in a mount namespace of our own, if that is permitted: what is mounted there is seen by nobody else."""
    enter = ["unshare", "--mount", "--propagation", "private"]
    attempt = [*enter, "mount", "-t", "tmpfs", "springtide-try", tempfile.gettempdir()]
    if shutil.which("unshare") and subprocess.run(attempt, capture_output=True).returncode == 0:
        os.execvp(enter[0], [*enter, sys.executable, "-m", "benchmarks.chaos", *sys.argv[1:], IN_NAMESPACE])


def main() -> int:
    """Break things, and print what came of it; 1 if anything was lost, run twice, or of other bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(IN_NAMESPACE, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.in_namespace:
        enter_namespace()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="springtide-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with open_disk(folder, given.in_namespace) as disk:
            arena = Arena(folder, disk, given.in_namespace)
            try:
                found = run(arena, given.faults, given.seed, lambda line: print(line, file=sys.stderr, flush=True))
            finally:
                arena.close()
            left = arena.list_left()
    document = make_document(*found, time.monotonic() - began_s, given.in_namespace)
    document["left_behind"] = len(left)
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        print_report(document)
    return 0 if document["ok"] and not left else 1


if __name__ == "__main__":
    raise SystemExit(main())
