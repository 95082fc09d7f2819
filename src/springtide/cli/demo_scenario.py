"""A short run of the real platform: four jobs with deadlines and one without, a refusal, a kill, and the proof.

Everything is real: a server process, an agent, training processes, and afterwards the same scripts run undisturbed to
compare the bits. Showing it is the business of `cli.demo`.

The best-effort job starts first and alone, so it gets every device; each newcomer takes some of them, and the last
jobs grow again when the others end. So there are rescales on any number of devices.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from springtide import examples
from springtide.client.client import Client
from springtide.client.replies import DeviceInfo, JobInfo
from springtide.control.storage.state_dir import StateDir
from springtide.core.job_states import JobState
from springtide.core.shared_types import Tell
from springtide.errors import TrainingError
from springtide.executors.local.executor import LocalExecutor

FEWEST_DEVICES = 2
MOST_DEVICES = 4
PATIENCE_S = 900.0
LOOK_S = 0.5
FILES = ("train.py", "model.py")


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job of the demo: an example, its arguments, and a deadline (None: best effort)."""

    name: str
    example: str
    arguments: str
    deadline: str | None
    #: Seconds after the first job has taken its first steps.
    starts_s: float


#: At most 20 device-seconds each on an idle machine. The third asks for what cannot be.
FIRST = DemoJob("night-cnn", "cnn", "--epochs 24 --seed 1", None, 0.0)
OTHERS = (
    DemoJob("digits-cnn", "cnn", "--epochs 6", "5m", 0.0),
    DemoJob("source-gpt", "gpt", "--epochs 1 --windows 512", "2s", 1.0),
    DemoJob("clicks", "recommender", "--epochs 2", "6m", 6.0),
    DemoJob("digits-resnet", "resnet", "--epochs 2 --images 128", "8m", 12.0),
)
KILLED_JOB = "digits-cnn"
KILL_AFTER_STEP = 8
FIRST_STEPS = 4
#: Events of jobs that are told as they happen.
TOLD = ("admitted", "grows", "shrinks", "moves", "suspended", "resized", "faulted", "started", "succeeded", "failed")
RESCALES = ("grows", "shrinks", "moves")


@dataclass(frozen=True, slots=True)
class DemoResult:
    """How one job ended: promise, life, and whether its bits equal an undisturbed run's."""

    job: JobInfo
    digest: str
    plain_digest: str

    @property
    def equal(self) -> bool:
        """Whether the weights are the same, bit for bit."""
        return bool(self.digest) and self.digest == self.plain_digest

    @property
    def kept(self) -> bool:
        """Whether the job ended well, and in time if that was promised."""
        return self.job.state is JobState.SUCCEEDED and self.job.met is not False


Show = Callable[[list[JobInfo], list[DeviceInfo]], None]


@dataclass(slots=True)
class DemoRun:
    """One run of the demo in a state directory of its own. `tell` hears sentences, `show` sees jobs and devices."""

    home: StateDir
    tell: Tell
    show: Show
    ids: dict[str, str] = field(default_factory=dict)
    offered: list[str] = field(default_factory=list)
    killed: bool = False
    #: How often jobs grew, shrank and moved.
    rescales: Counter[str] = field(default_factory=Counter)
    client: Client = field(init=False)
    last_event: int = 0

    def run(self) -> list[DemoResult]:
        """Submit, kill, wait, compare; returns how each job ended."""
        self.client = Client(home=self.home.root)
        until_s = time.monotonic() + PATIENCE_S
        self.submit(FIRST)
        waiting, opened_s = list(OTHERS), inf
        while waiting or not self.is_over():
            now_s = time.monotonic()
            if now_s > until_s:
                raise TrainingError(f"the demo did not end within {PATIENCE_S:g} s; is this machine very busy?")
            if opened_s == inf and self.client.job(self.ids[FIRST.name]).step >= FIRST_STEPS:
                opened_s = now_s
            while waiting and opened_s + waiting[0].starts_s <= now_s:
                self.submit(waiting.pop(0))
            self.watch()
            time.sleep(LOOK_S)
        self.watch()
        return self.compare()

    def submit(self, job: DemoJob) -> None:
        """Hand in one job."""
        folder = self.write_project(job)
        document: dict[str, Any] = {
            "name": job.name,
            "run": f"python train.py {job.arguments}",
            "workdir": str(folder),
            "logical_workers": 4,
            "checkpoint": {"every": "3s"},
        }
        if job.deadline is not None:
            document["deadline"] = job.deadline
        answer = self.client.submit(document, wait=False)
        self.ids[job.name] = answer.id
        self.tell(f"{job.name}: submitted ({job.deadline or 'no deadline'}): {answer.answer}")

    def write_project(self, job: DemoJob) -> Path:
        """A working directory with the example's files."""
        folder = self.home.root / "projects" / job.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(examples.folder(job.example) / name, folder / name)
        return folder

    def watch(self) -> None:
        """Show where all stand; take offers, and kill a worker once its job is on its way."""
        jobs = sorted(self.client.jobs(all=True), key=lambda job: job.submitted_at)
        self.tell_events({job.id: job.name for job in jobs})
        self.show(jobs, self.client.devices())
        for job in jobs:
            if job.state is JobState.OFFERED:
                self.accept_offer(job)
            if (
                job.name == KILLED_JOB
                and not self.killed
                and job.state is JobState.RUNNING
                and job.step > KILL_AFTER_STEP
            ):
                self.kill_worker(job.id)

    def tell_events(self, names: Mapping[str, str]) -> None:
        """Tell what has happened to jobs since the last time, and count how often they were resized."""
        for event in self.client.events(after=self.last_event):
            self.last_event = event.seq
            if event.kind in RESCALES:
                self.rescales[event.kind] += 1
            if event.kind in TOLD and event.job is not None and event.job in names:
                self.tell(f"{names[event.job]}: {event.sentence}")

    def accept_offer(self, job: JobInfo) -> None:
        """Accept the counter-offer of a job that was declined."""
        offer = self.client.job(job).offers[0]
        self.tell(f"{job.name}: declined: {job.sentence}")
        self.tell(f"{job.name}: counter-offer: {offer.sentence}; accepted")
        self.client.accept(job, offer.id)
        self.offered.append(job.name)

    def kill_worker(self, job_id: str) -> None:
        """Send SIGKILL to a training process of a job."""
        executor = LocalExecutor(self.home.root)
        pids = [one.pids for one in executor.running() if one.job == job_id]
        executor.close()
        if pids and pids[0]:
            os.kill(pids[0][0], signal.SIGKILL)
            self.killed = True
            self.tell(f"{KILLED_JOB}: killed worker process {pids[0][0]} on purpose (kill -9)")

    def is_over(self) -> bool:
        """Whether every job has ended."""
        return all(self.client.job(job_id).ended for job_id in self.ids.values())

    def compare(self) -> list[DemoResult]:
        """Run every script again, alone and undisturbed, and compare the weights."""
        self.tell("every job has ended; running each script once more, alone, to compare the bits")
        jobs = (FIRST, *OTHERS)
        with ThreadPoolExecutor(choose_devices()) as pool:
            plain = list(pool.map(self.run_plainly, jobs))
        return [
            DemoResult(self.client.job(self.ids[job.name]), self.find_digest(self.ids[job.name]), digest)
            for job, digest in zip(jobs, plain, strict=True)
        ]

    def find_digest(self, job_id: str) -> str:
        """The hash of the weights that a job ended with."""
        return hash_weights(self.home.checkpoints(job_id))

    def run_plainly(self, job: DemoJob) -> str:
        """The hash of the weights of the same script in one ordinary process that nobody disturbs."""
        project, plain = self.home.root / "projects" / job.name, self.home.root / "plain" / job.name
        return train_plainly(project, job.arguments.split(), plain)


def choose_devices() -> int:
    """The number of devices for a demo where there is no GPU: a core each, within reason."""
    return min(MOST_DEVICES, max(FEWEST_DEVICES, len(os.sched_getaffinity(0))))


def train_plainly(project: Path, arguments: Sequence[str], folder: Path) -> str:
    """Run `train.py` of a project alone in an ordinary process, with checkpoints in `folder`; its weights' hash."""
    folder.mkdir(parents=True)
    ours = {"SPRINGTIDE_CHECKPOINT_DIR": str(folder), "SPRINGTIDE_OUTPUT": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", *arguments]
    done = subprocess.run(command, cwd=project, env={**os.environ, **ours}, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise TrainingError(f"the plain run of {project.name} failed with code {done.returncode}: {said[-1]}")
    return hash_weights(folder)


def hash_weights(checkpoints: Path) -> str:
    """The SHA-256 of the weights in the last checkpoint; empty if there is none."""
    files = sorted(checkpoints.glob("step-*/model.safetensors"))
    return hashlib.sha256(files[-1].read_bytes()).hexdigest() if files else ""
