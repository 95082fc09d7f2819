"""Seeded faults on the whole platform: no job lost, none run twice, and every model's bits those of a quiet run.

`python -m benchmarks.chaos [--faults 100] [--seed 0]` keeps three training jobs going on a real server, agent and
workers, and breaks things with two hands. One breaks what jobs run on and waits until they go on: kill -9 of a worker,
the agent, the server, or all of them; a worker that is stopped (SIGSTOP); a full checkpoint disk (a small tmpfs in a
mount namespace of our own where that is permitted, else ENOSPC at the write); the server's wall clock set an hour
forward or back; a script that once brought the platform down. The other does what passes by itself, meanwhile: the
database locked or its disk full, the agent or the server stopped, lines cut or held, nonsense sent. Beside both another
user submits and cancels jobs and keeps count of what is answered. Ends when all is dealt, or after `--minutes`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, TypeAlias

from benchmarks.arenas import LOOK_S, Arena, Recipe, Step
from benchmarks.bystanders import Asked, Bystander, list_changes, summarise
from benchmarks.faults import FAULTS, PATIENCE_S, Scene
from benchmarks.side_faults import NEED_DISK, SIDE_FAULTS, SideScene
from springtide.client.replies import JobInfo
from springtide.core.job_states import ENDED

ACTIVE = 3
#: Of all faults, those that are waited for one by one.
WAITED_FOR = 0.15
MOST_PAUSE_S = 0.3
STANDSTILL_S = 2.0
TOLD_WAITS = 5
#: A victim has this many steps before it, so that it does not end before the fault shows.
STEPS_LEFT = 40
RECIPES = tuple(Recipe(seed, steps) for seed, steps in ((0, 80), (1, 120), (2, 160)))
SIZES = {"disk": "4m", "state": "48m"}
Document: TypeAlias = dict[str, Any]
IN_NAMESPACE = "--in-namespace"


@dataclass
class Fault:
    """One thing that was broken, and what came of it."""

    kind: str
    jobs: list[str]
    seconds: float | None = None
    began_s: float = 0.0
    ended_s: float = 0.0

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


def run(arena: Arena, chosen: "Choice", tell: Callable[[str], None]) -> tuple[list[Fault], list[Verdict], Document]:
    """So many faults, the verdicts on all jobs when the last has ended, and what a bystander saw."""
    until_s = time.monotonic() + 60.0 * chosen.minutes
    arena.start_server()
    bystander = Bystander(arena.open_doors("bystander"))
    bystander.thread.start()
    side = SideHand(SideScene(arena, Random(f"side {chosen.seed}"), arena.open_doors("nuisance")), until_s)
    side.kinds = deal(chosen.faults - chosen.waited_for, side.scene.dice, list_side_kinds(arena))
    with side.at_work():
        faults = break_things(arena, chosen, side, tell)
    wait_for_end(arena)
    bystander.end()
    seen = summarise(bystander, arena.outages, arena.database)
    seen["odd"] += side.odd
    seen["longest"] = [
        {"seconds": round(wait_s, 2), "what": asked.what, "faults": find_beside(asked, [*faults, *side.faults])}
        for wait_s, asked in list_changes(bystander, arena.outages)[:TOLD_WAITS]
    ]
    return [*faults, *side.faults], [judge(arena, job) for job in arena.recipes], seen


def break_things(arena: Arena, chosen: "Choice", side: "SideHand", tell: Callable[[str], None]) -> list[Fault]:
    """The faults that are waited for, one after the other; the side hand keeps pace."""
    faults: list[Fault] = []
    dice, count = Random(chosen.seed), chosen.waited_for
    for number, kind in enumerate(deal(count, dice), start=1):
        if time.monotonic() > side.until_s:
            tell(f"{count - number + 1} faults left out: the time is up")
            break
        side.due = number / count
        time.sleep(dice.uniform(0.0, MOST_PAUSE_S))
        scene = set_scene(arena, dice, is_longest=kind == "disk full")
        jobs, seconds = FAULTS[kind](scene)
        faults.append(Fault(kind, [job.id for job in jobs], seconds, scene.began_s, time.monotonic()))
        told = f"{seconds:.1f} s" if seconds is not None else "NOT RECOVERED"
        tell(f"{number:3}/{count} {kind:<15} {len(jobs)} jobs  {told:<8} beside {len(side.faults)} others")
        if seconds is None:
            for job in arena.insist(arena.client.jobs):
                tell(
                    f"        {job.name} ({job.id}) {job.state} on {len(job.devices)}, step {job.step}: {job.sentence}"
                )
    return faults


def find_beside(asked: Asked, faults: Sequence[Fault]) -> list[str]:
    """The faults that were under way while somebody waited for an answer."""
    return [one.kind for one in faults if one.began_s <= asked.ended_s and one.ended_s >= asked.began_s]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for."""

    faults: int
    seed: int
    minutes: float

    @property
    def waited_for(self) -> int:
        """How many of the faults are waited for one by one: their part, but each kind once if there are enough."""
        return max(round(WAITED_FOR * self.faults), min(len(FAULTS), self.faults // 2))


@dataclass
class SideHand:
    """Faults that pass by themselves, one after the other in a thread of its own."""

    scene: SideScene
    until_s: float
    kinds: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    #: How many of them, as a share of all, may be done by now: the other hand's pace.
    due: float = 0.0

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.run, name="side hand", daemon=True)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Break things beside the block, and come to an end after it; at once if the block failed."""
        self.thread.start()
        try:
            yield
            self.due = 1.0
        except BaseException:
            self.until_s = 0.0
            raise
        finally:
            self.thread.join()

    def run(self) -> None:
        """Do them all."""
        for number, kind in enumerate(self.kinds, start=1):
            while number > self.due * len(self.kinds) and time.monotonic() < self.until_s:
                time.sleep(LOOK_S)
            if time.monotonic() > self.until_s:
                return
            self.scene.number = number
            began_s = time.monotonic()
            try:
                odd = SIDE_FAULTS[kind](self.scene)
            except Exception as error:  # told as what it is: a fault that was not as it should have been
                odd = f"{kind}: {error!r}"
            self.odd += [odd] if odd else []
            ended_s = time.monotonic()
            self.faults.append(Fault(kind, [], None if odd else ended_s - began_s, began_s, ended_s))
            time.sleep(self.scene.dice.uniform(0.0, MOST_PAUSE_S))


def list_side_kinds(arena: Arena) -> list[str]:
    """The faults that pass by themselves and can be had here."""
    return [kind for kind in SIDE_FAULTS if arena.is_mounted or kind not in NEED_DISK]


def deal(count: int, dice: Random, among: Sequence[str] = tuple(FAULTS)) -> list[str]:
    """So many kinds of fault in a random order, each as often as the others."""
    kinds = [among[k % len(among)] for k in range(count)]
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
    seen = [job.document for job in arena.active()]
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
    document = arena.insist(lambda: arena.client.job(job))
    ends = [event for event in arena.insist(lambda: arena.client.events(job)) if event.kind in ENDED]
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


def make_document(faults: list[Fault], verdicts: list[Verdict], seen: Document, took_s: float, disk: str) -> Document:
    """Everything that was found."""
    kinds = [kind for kind in (*FAULTS, *SIDE_FAULTS) if kind in FAULTS or any(one.kind == kind for one in faults)]
    rows = [sum_up(kind, [fault for fault in faults if fault.kind == kind], verdicts) for kind in kinds]
    totals = {
        "faults": len(faults),
        "recovered": sum(fault.recovered for fault in faults),
        "jobs": len(verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "twice": sum(verdict.twice for verdict in verdicts),
        "equal": sum(verdict.equal for verdict in verdicts),
        "rescales": sum(verdict.rescales for verdict in verdicts),
        "took_s": round(took_s, 1),
        "disk": disk,
    }
    return {
        "schema": 1,
        "ok": totals["recovered"] == totals["faults"]
        and totals["equal"] == totals["jobs"]
        and not totals["lost"]
        and not totals["twice"]
        and not seen["errors_with_effect"]
        and not seen["twice"]
        and not seen["odd"],
        "totals": totals,
        "bystander": seen,
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
    seen = document["bystander"]
    print(
        f"another user's {seen['requests']} requests: answers by status {seen['statuses']}; errors that had an effect: "
        f"{seen['errors_with_effect']}; jobs submitted or ended twice: {seen['twice']}; median {seen['median_s']} s, "
        f"longest standstill {seen['standstill_s']} s ({seen['over_2_s']} over {STANDSTILL_S:g} s) outside outages"
    )
    outages = seen["outages"]
    print(
        f"outages (the server or its database was what was broken): {outages['count']}, {outages['total_s']:.0f} s in "
        f"all, the longest {outages['longest_s']} s; longest wait with these {seen['with_outages_s']} s"
    )
    for wait in seen["longest"]:
        print(f"waited {wait['seconds']:.2f} s for {wait['what']} beside: {', '.join(wait['faults']) or 'nothing'}")
    for odd in seen["odd"]:
        print(f"not as it should be: {odd}")


# The disk.


@contextmanager
def open_disk(folder: Path, name: str, in_namespace: bool) -> Iterator[Path]:
    """A folder for checkpoints or the database: a tmpfs of its own if we are in a mount namespace of our own."""
    disk = folder / name
    disk.mkdir()
    if not in_namespace:
        yield disk
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZES[name]}", "springtide-chaos", str(disk)], check=True)
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
    """Break things, and print what came of it; 1 if anything was lost, run twice or of other bits, or others waited."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no further fault is begun")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(IN_NAMESPACE, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.in_namespace:
        enter_namespace()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="springtide-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        mounted = given.in_namespace
        with open_disk(folder, "disk", mounted) as disk, open_disk(folder, "state", mounted) as state_disk:
            arena = Arena(folder, disk, state_disk, mounted)
            chosen = Choice(given.faults, given.seed, given.minutes)
            try:
                found = run(arena, chosen, lambda line: print(line, file=sys.stderr, flush=True))
            finally:
                left = arena.close()
    document = make_document(*found, time.monotonic() - began_s, "tmpfs" if mounted else "injected")
    document["left_behind"] = left
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        print_report(document)
    return 0 if document["ok"] and not left and not document["bystander"]["over_2_s"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
