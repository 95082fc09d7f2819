"""Seeded live workloads with real training processes: no admitted job late, none lost, and the simulator agrees.

`python -m benchmarks.live_workloads [--workloads 50] [--first-seed 0] [--out FILE]`. Each workload submits 4-6 jobs of
2-10 device-seconds to a real server on 2 devices; steps sleep, as if devices were busy. Offers are turned down as they
come, for a replay has nobody to take them, and they hold devices while they are open. The simulator then replays what
was recorded (`live_recordings`), and every deadline on which the two disagree is listed. Load from outside is recorded;
workloads with more than 10 % of it are listed apart. Recordings are kept in FILE: start it again to go on, or to replay
them anew. 50 take about 15 minutes; after 43 it begins no further one.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.arenas import SCRIPT
from benchmarks.live_recordings import (
    DEVICES,
    POLICY,
    SHARES,
    RecordedJob,
    Recording,
    append_recording,
    measure_costs,
    read_recordings,
    replay_recording,
    tell_apart,
)
from springtide.client.client import Client
from springtide.client.replies import JobInfo
from springtide.control.background import start_background
from springtide.control.scheduling.speeds import expect_curve
from springtide.control.storage.records import SpeedRecord
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.control.storage.store import Store
from springtide.errors import SpringtideError
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.paths import AGENT_NOTES

OUTSIDE_LOAD = 0.10
WORKERS = 2
STEP_S = 0.04  # per logical worker
STEPS = (30, 60, 90, 120)  # 2.4, 4.8, 7.2 and 9.6 device-seconds
LONGEST_S = 2600.0
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Result:
    """One workload: what was asked, admitted, met, late and lost; live and in the simulator."""

    seed: int
    jobs: int
    deadlines: int
    admitted: int
    met: int
    late: int
    lost: int
    simulated_met: int
    rescales: int
    outside_load: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job as it was submitted, and what was known of its speed at that moment."""

    job: str
    speed: SpeedRecord


@dataclass(frozen=True, slots=True)
class Site:
    """A platform that has measured the script at every length."""

    client: Client
    home: StateDir
    work: Path

    def submit(self, steps: int, deadline: str | None) -> JobInfo:
        """Submit a job of so many steps."""
        told: dict[str, Any] = {"run": f"python train.py {steps} --sleep {STEP_S}", "workdir": str(self.work)}
        told |= {"checkpoint": {"every": "2s"}} | ({"deadline": deadline} if deadline else {})
        return self.client.submit(told, wait=False)

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """The server's database, to read."""
        store = Store(f"sqlite:///{self.home.database}")
        try:
            yield store
        finally:
            store.close()


@contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """A platform in a folder of its own; everything of it has ended afterwards."""
    home, work = StateDir(folder / "home"), folder / "work"
    work.mkdir(parents=True)
    shutil.copy(SCRIPT, work / "train.py")
    try:
        start_background(home, ("--devices", str(DEVICES), "--port", "0", "--policy", POLICY))
        with Client(home=home.root) as client:
            site = Site(client, home, work)
            for steps in STEPS:
                client.wait(site.submit(steps, "10m").id)
            yield site
    finally:
        close_site(home)


def close_site(home: StateDir) -> None:
    """End a server and its agent, however they are."""
    address = read_address(home)
    if address is not None and psutil.pid_exists(int(address["pid"])):
        psutil.Process(int(address["pid"])).kill()
    LocalExecutor(home.root).shutdown()


# Live.


def run_workload(site: Site, seed: int) -> Recording:
    """Submit the jobs of one seed at their times, wait for all, and record what happened."""
    random, began_s = Random(seed), time.monotonic()
    watch = OutsideLoad(site.home)
    with site.open_store() as store:
        memory = store.fact("memory") or {}
    arrivals: list[Arrival] = []
    for _ in range(random.randint(4, 6)):
        steps = random.choice(STEPS)
        alone_s = WORKERS * steps * STEP_S / DEVICES + 4.0
        deadline = None if random.random() < 0.2 else f"{alone_s * random.uniform(0.5, 2.5):.1f}s"
        arrivals.append(note_arrival(site, site.submit(steps, deadline).id))
        pass_s(site, random.expovariate(1.0) * 2.0)
    while site.client.jobs():
        pass_s(site, LOOK_S)
    jobs = tuple(record_job(site, arrival) for arrival in arrivals)
    return Recording(seed, memory, jobs, round(watch.share(), 3), round(time.monotonic() - began_s, 1))


def record_job(site: Site, arrival: Arrival) -> RecordedJob:
    """What became of a job that has ended."""
    told = site.client.job(arrival.job)
    with site.open_store() as store:
        record = store.job(arrival.job)
        measured = None if record is None else next(iter(store.speeds(record.speed_key)), None)
        events = store.events(arrival.job)
    assert record is not None and measured is not None
    steps = record.total_steps or measured.total_steps or 1
    return RecordedJob(
        record.id,
        record.submitted_s,
        record.deadline_s,
        steps,
        arrival.speed,
        measured,
        str(record.state),
        record.sentence,
        record.promised,
        bool(told.met),
        is_lost(told),
        record.rescales,
        measure_costs(events, expect_curve(measured, SHARES), steps),
        tuple(f"{event.at_s - record.submitted_s:+.2f} s {event.kind}: {event.sentence}" for event in events),
    )


def judge(recording: Recording) -> Result:
    """A workload in figures, with its replay; tells of each deadline on which the two disagree."""
    jobs = recording.jobs
    promised = [job for job in jobs if job.promised]
    met = replay_recording(recording)
    for line in tell_apart(recording, met):
        tell(line)
    return Result(
        recording.seed,
        len(jobs),
        sum(job.deadline_s is not None for job in jobs),
        len(promised),
        sum(job.met for job in promised),
        sum(not job.met and not job.lost for job in promised),
        sum(job.lost for job in jobs),
        len(met),
        sum(job.rescales for job in jobs),
        recording.outside_load,
        recording.took_s,
    )


def pass_s(site: Site, seconds: float) -> None:
    """Let time pass, and turn down the offers that come meanwhile."""
    until_s = time.monotonic() + seconds
    while True:
        for job in site.client.jobs():
            if job.state == "offered":
                site.client.cancel(job.id)
        if time.monotonic() >= until_s:
            return
        time.sleep(min(LOOK_S, max(0.0, until_s - time.monotonic())))


def is_lost(job: JobInfo) -> bool:
    """Whether a job ended neither well nor by a refusal, whose offers were turned down or have expired."""
    turned_down = job.state == "cancelled" and not job.promised and bool(job.offers)
    return not turned_down and job.state not in ("succeeded", "declined")


def note_arrival(site: Site, job: str) -> Arrival:
    """What is known of a job that has just been submitted."""
    with site.open_store() as store:
        record = store.job(job)
        speed = None if record is None else next(iter(store.speeds(record.speed_key)), None)
    assert speed is not None and speed.points, "every script was measured before"
    return Arrival(job, speed)


class OutsideLoad:
    """The share of this machine's time that processes other than the platform's and our own took."""

    def __init__(self, home: StateDir) -> None:
        self.home = home
        self.own_s, self.all_s, self.at_s = self.own_cpu_s(), all_cpu_s(), time.monotonic()

    def share(self) -> float:
        """Busy time that was not ours, by all time there was."""
        span_s = (time.monotonic() - self.at_s) * (psutil.cpu_count() or 1)
        return max(0.0, (all_cpu_s() - self.all_s) - (self.own_cpu_s() - self.own_s)) / span_s

    def own_cpu_s(self) -> float:
        """Seconds used by us, the server and the agent, with all their processes; ended ones count in their parents."""
        roots = [psutil.Process()]
        address = read_address(self.home)
        roots += [psutil.Process(int(address["pid"]))] if address is not None else []
        place = self.home.root / AGENT_NOTES
        roots += [psutil.Process(int(json.loads(place.read_text())["pid"]))] if place.exists() else []
        return sum(count_cpu_s(process) for root in roots for process in (root, *root.children(recursive=True)))


def count_cpu_s(process: psutil.Process) -> float:
    """Seconds used by a process and those of its children that have ended; 0 if it is gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def all_cpu_s() -> float:
    """Busy seconds of all processors."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - times.guest - times.guest_nice)


# All of them.


def run_all(
    folder: Path, seeds: Sequence[int], keep: Callable[[Recording], None] = lambda recording: None
) -> list[Recording]:
    """Every workload on one platform, one after the other; after a mishap, once more on a new one."""
    recordings: list[Recording] = []
    until_s = time.monotonic() + LONGEST_S
    left, mishaps = list(seeds), 0
    while left and time.monotonic() < until_s:
        try:
            with open_site(folder / f"site-{mishaps}") as site:
                while left and time.monotonic() < until_s:
                    recordings.append(run_workload(site, left[0]))
                    keep(recordings[-1])
                    left.pop(0)
        except (SpringtideError, OSError, psutil.Error) as error:
            mishaps += 1
            tell(f"seed {left[0]}: {error!r}; begun again on a new platform")
            if mishaps > 3:
                raise
    if left:
        tell(f"time is up: {len(left)} workloads left out; start again with the same --out to go on")
    return recordings


def tell(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def pool(results: Sequence[Result]) -> dict[str, Any]:
    """The figures of some workloads together."""
    deadlines = sum(result.deadlines for result in results)
    live, simulated = (sum(values) / max(1, deadlines) for values in list_met(results))
    return {
        "workloads": len(results),
        "jobs": sum(result.jobs for result in results),
        "deadlines": deadlines,
        "admitted": sum(result.admitted for result in results),
        "late": sum(result.late for result in results),
        "lost": sum(result.lost for result in results),
        "rescales": sum(result.rescales for result in results),
        "live_dsr": round(live, 4),
        "simulated_dsr": round(simulated, 4),
        "apart_points": round(100 * (simulated - live), 2),
    }


def list_met(results: Sequence[Result]) -> tuple[list[int], list[int]]:
    """Deadlines met in each workload, live and simulated."""
    return [result.met for result in results], [result.simulated_met for result in results]


def make_document(results: Sequence[Result]) -> dict[str, Any]:
    """All workloads, and the quiet and the loaded ones pooled."""
    quiet = [result for result in results if result.outside_load <= OUTSIDE_LOAD]
    loaded = [result for result in results if result.outside_load > OUTSIDE_LOAD]
    pooled = {"quiet": pool(quiet), "loaded": pool(loaded), "all": pool(results)}
    return {"schema": 1, "pooled": pooled, "workloads": [asdict(result) for result in results]}


HEADINGS = ("seed", "jobs", "deadlines", "admitted", "met", "late", "lost", "simulated", "rescales", "outside", "s")


def show_row(result: Result) -> str:
    """A workload as a line of the table."""
    cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in asdict(result).values()]
    return "  ".join(cell.rjust(len(heading)) for cell, heading in zip(cells, HEADINGS, strict=True))


def print_report(document: dict[str, Any]) -> None:
    """The quiet workloads, the loaded ones apart, and the pooled figures."""
    results = [Result(**one) for one in document["workloads"]]
    for name, is_loaded in (("quiet", False), (f"more than {OUTSIDE_LOAD:.0%} load from outside", True)):
        chosen = [result for result in results if (result.outside_load > OUTSIDE_LOAD) is is_loaded]
        if chosen:
            print(f"{name}:", "  ".join(HEADINGS), *map(show_row, chosen), sep="\n")
    for name, figures in document["pooled"].items():
        if figures["workloads"]:
            print(
                f"{name}: {figures['workloads']} workloads, {figures['late']} late of {figures['admitted']} admitted, "
                f"{figures['lost']} lost of {figures['jobs']}; {figures['rescales']} rescales; deadlines met "
                f"{figures['live_dsr']:.3f} live, {figures['simulated_dsr']:.3f} simulated "
                f"({figures['apart_points']:+.1f} points)"
            )


def main() -> int:
    """Run workloads and print the tables; 1 if a job was late on a quiet machine, or lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/live_workloads.jsonl"), help="recorded workloads")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.workloads)
    done = read_recordings(given.out, seeds)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    tell(f"{len(done)} of {len(seeds)} workloads are in {given.out} already")

    results = [judge(recording) for recording in done]

    def keep(recording: Recording) -> None:
        append_recording(given.out, recording)
        results.append(judge(recording))
        tell(show_row(results[-1]))

    tell("  ".join(HEADINGS))
    with tempfile.TemporaryDirectory(prefix="springtide-workloads-", ignore_cleanup_errors=True) as folder:
        finished = {recording.seed for recording in done}
        left = [seed for seed in seeds if seed not in finished]
        if left:
            run_all(Path(folder), left, keep)
    document = make_document(sorted(results, key=lambda result: result.seed))
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        print_report(document)
    return int(bool(document["pooled"]["quiet"]["late"] or document["pooled"]["all"]["lost"]))


if __name__ == "__main__":
    raise SystemExit(main())
