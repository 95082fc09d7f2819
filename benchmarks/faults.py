"""The faults of `chaos`: what each breaks on a platform, whom that hits, and how long until all is well again.

Which faults come when, and what becomes of the jobs, is not decided here.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.arenas import LOOK_S, Arena, Step
from springtide.client.replies import JobInfo
from springtide.errors import SpringtideError

HOUR_S = 3600.0
#: A fault that is not over by then counts as not recovered from.
PATIENCE_S = 60.0
POISON = ("endless", "reason", "nonsense")


@dataclass
class Scene:
    """A fault about to happen: the platform, the dice, the victim, and all jobs with devices."""

    arena: Arena
    dice: Random
    victim: JobInfo
    running: list[JobInfo]
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.until_s = self.began_s + PATIENCE_S
        self.pids = {job.id: self.pids_of(job.id) for job in self.running}

    def pids_of(self, job: str) -> set[int]:
        """The processes that have taken steps of a job so far, and those that run it now."""
        return {step.pid for step in self.arena.read_ledger(job)} | set(self.arena.find_workers(job))

    def look(self, job: str) -> JobInfo | None:
        """A job as the server shows it; None while no server answers."""
        try:
            return self.arena.client.job(job)
        except SpringtideError:
            return None

    def ask(self, job: str) -> JobInfo:
        """A job as the server shows it, once it does."""
        return self.arena.insist(lambda: self.arena.client.job(job))

    def wait_for(self, condition: Callable[[], Any]) -> bool:
        """Wait until something holds; False when patience ends."""
        while not condition():
            if time.monotonic() > self.until_s:
                return False
            time.sleep(LOOK_S)
        return True

    def is_over(self, job: JobInfo | None) -> bool:
        """Whether a job has ended, or holds no device any more because others need it."""
        return job is not None and (job.ended or not job.devices)

    def wait_for_new_processes(self, jobs: Sequence[JobInfo]) -> float | None:
        """Seconds until every job takes steps in processes that were not there before."""
        last_s = self.began_s
        for job in jobs:
            steps: list[Step] = []

            def is_back(job: JobInfo = job, steps: list[Step] = steps) -> bool:
                fresh = [step for step in self.arena.read_ledger(job.id) if step.pid not in self.pids[job.id]]
                now = self.look(job.id)
                steps[:] = fresh[:1]
                return self.is_over(now) or (bool(fresh) and now is not None and not has(now, "recovering"))

            if not self.wait_for(is_back):
                return None
            last_s = max(last_s, steps[0].at_s if steps else time.monotonic())
        return last_s - self.began_s

    def wait_for_progress(self, jobs: Sequence[JobInfo]) -> float | None:
        """Seconds until the server has heard of new steps of every job."""
        for job in jobs:

            def has_moved(job: JobInfo = job) -> bool:
                now = self.look(job.id)
                return is_past(now, job.step) or self.is_over(now)

            if not self.wait_for(has_moved):
                return None
        return time.monotonic() - self.began_s


def has(job: JobInfo | None, condition: str) -> bool:
    """Whether a job says something of itself."""
    return job is not None and any(one.kind == condition for one in job.conditions)


def is_past(job: JobInfo | None, step: int) -> bool:
    """Whether a job is beyond a step."""
    return job is not None and job.step > step


#: Does one bad thing; returns the jobs it hit, and after how many seconds all was well again (None: it was not).
Break = Callable[[Scene], tuple[list[JobInfo], float | None]]


def signal_worker(number: int) -> Break:
    """Send a signal to one of the victim's processes."""

    def act(scene: Scene) -> tuple[list[JobInfo], float | None]:
        pids: list[int] = []

        def find() -> bool:
            pids[:] = scene.arena.find_workers(scene.victim.id)
            return bool(pids) or scene.is_over(scene.look(scene.victim.id))

        if scene.wait_for(find) and pids:
            with suppress(ProcessLookupError):
                os.kill(scene.dice.choice(pids), number)
        return [scene.victim], scene.wait_for_new_processes([scene.victim])

    return act


def kill_agent(scene: Scene) -> tuple[list[JobInfo], float | None]:
    """kill -9 of the agent; the server starts another."""
    scene.arena.kill_agent()
    return scene.running, scene.wait_for_new_processes(scene.running)


def kill_server(scene: Scene) -> tuple[list[JobInfo], float | None]:
    """kill -9 of the server; the workers train on, and the next server adopts them."""
    with scene.arena.outages.during():
        scene.arena.kill_server()
        scene.arena.start_server()
    return scene.running, scene.wait_for_progress(scene.running)


def kill_all(scene: Scene) -> tuple[list[JobInfo], float | None]:
    """kill -9 of server, agent, fork servers and workers; then a new server."""
    with scene.arena.outages.during():
        scene.arena.kill_all()
        scene.arena.start_server()
    return scene.running, scene.wait_for_new_processes(scene.running)


def fill_disk(scene: Scene) -> tuple[list[JobInfo], float | None]:
    """No room for checkpoints until the victim says so and has trained on; then room again."""
    scene.arena.fill_disk()
    job = scene.victim.id
    told = scene.wait_for(lambda: has(now := scene.look(job), "checkpoint_failing") or scene.is_over(now))
    step = scene.ask(job).step
    trained = scene.wait_for(lambda: is_past(now := scene.look(job), step) or scene.is_over(now))
    scene.arena.free_disk()
    cleared = scene.wait_for(lambda: not has(scene.look(job), "checkpoint_failing"))
    good = told and trained and cleared
    return [scene.victim], time.monotonic() - scene.began_s if good else None


def set_clock(scene: Scene) -> tuple[list[JobInfo], float | None]:
    """The wall clock an hour forward or back; nobody may notice."""
    deadlines = {job.id: job.deadline_in_s for job in scene.running}
    scene.arena.set_clock(scene.dice.choice([-HOUR_S, HOUR_S]))
    seconds = scene.wait_for_progress(scene.running)
    kept = all(is_unmoved(deadlines[job], scene.ask(job).deadline_in_s) for job in deadlines)
    return scene.running, seconds if kept else None


def run_poison(scene: Scene) -> tuple[list[JobInfo], float | None]:
    """A script that once brought the platform down; it ends or is held, and the others train on."""
    what, arena = scene.dice.choice(POISON), scene.arena
    document = {
        "name": f"poison-{what}",
        "run": ["python", "poison.py", what],
        "workdir": str(arena.work),
        "retry": {"max": 0},
    }
    key = f"poison-{scene.dice.getrandbits(64):016x}"
    job = arena.insist(lambda: arena.client.submit(document, wait=False, key=key)).id
    settled = scene.wait_for(lambda: (now := scene.look(job)) is not None and (now.ended or now.state == "paused"))
    if not scene.ask(job).ended:
        arena.insist(lambda: end_quietly(arena, job))
    seconds = scene.wait_for_progress(scene.running)
    return scene.running, seconds if settled else None


def end_quietly(arena: Arena, job: str) -> None:
    """Cancel a job that may just have ended."""
    if not arena.client.job(job).ended:
        arena.client.cancel(job)


def is_unmoved(before_s: float | None, now_s: float | None) -> bool:
    """Whether a deadline has come nearer by no more than the time that passed."""
    return before_s is None if now_s is None else before_s is not None and 0 <= before_s - now_s <= PATIENCE_S + 1


FAULTS: dict[str, Break] = {
    "worker killed": signal_worker(signal.SIGKILL),
    "worker stopped": signal_worker(signal.SIGSTOP),
    "agent killed": kill_agent,
    "server killed": kill_server,
    "all killed": kill_all,
    "disk full": fill_disk,
    "clock jumps": set_clock,
    "poison script": run_poison,
}
