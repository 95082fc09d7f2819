"""A whole platform to be broken on purpose: a real server over HTTP, its agent, workers, and jobs that count steps.

Offers what a fault needs (who runs where, how to fill the disk, set the wall clock, bring the server back) and what a
verdict needs (the steps each process took, the weights of an undisturbed run). Which faults, and when, is in `chaos`.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.bystanders import Doors, Outages
from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.client.client import Client
from springtide.client.packing import pack
from springtide.client.replies import JobInfo
from springtide.control.background import is_answering
from springtide.control.clock import SystemClocks
from springtide.control.executor_factory import open_executor
from springtide.control.server import Listening, Server, ServerSettings, hold_lock
from springtide.control.server_log import set_up_logging
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.errors import ExecutorError, SpringtideError
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.paths import AGENT_NOTES, make_mark
from springtide.executors.local.processes.worker_processes import find_marked
from springtide.policies import find_policy

T = TypeVar("T")
DEVICES = "2"
SCRIPT = Path(__file__).parent / "scripts" / "train.py"
ROOT = Path(__file__).parents[1]
START_S = 180.0
LOOK_S = 0.1
SERVE = "import sys; from benchmarks.arenas import serve; serve(*sys.argv[1:])"


class JumpingSource(SystemClocks):
    """This machine's clocks, with a wall clock that is wrong by as many seconds as a file says."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def wall_s(self) -> float:
        """Seconds since 1970, as far as the file lets us know."""
        return super().wall_s() + (float(self.file.read_text()) if self.file.exists() else 0.0)


def serve(home: str, jumps: str, database: str) -> None:
    """The process of an arena's server: the usual one, but for the wall clock behind its Clock."""
    address = f"sqlite:///{database}"
    settings = ServerSettings(StateDir(Path(home)), "local", DEVICES, Listening(port=0), database=address)
    set_up_logging()
    with hold_lock(settings.state_dir):
        find_policy(settings.options.policy).load()
        server = Server(settings, open_executor(settings.engine, settings.state_dir, DEVICES))
        server.reconciler.context.clock.source = JumpingSource(Path(jumps))
        server.run()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a job trains; equal recipes give equal bits."""

    seed: int
    steps: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after `train.py`."""
        return (str(self.steps), "--sleep", "0.05", "--seed", str(self.seed))


@dataclass(frozen=True, slots=True)
class Step:
    """A step in a job's ledger: which process took it, and when by the monotonic clock."""

    pid: int
    number: int
    at_s: float


@dataclass
class Arena:
    """One platform in a folder of its own.

    `disk` is where checkpoints go, `state_disk` where the database is: small ones of their own, if `is_mounted`.
    """

    folder: Path
    disk: Path
    state_disk: Path
    is_mounted: bool
    server: "subprocess.Popen[bytes] | None" = None
    recipes: dict[str, Recipe] = field(default_factory=dict)
    hashes: dict[Recipe, str] = field(default_factory=dict)
    #: The hashes of the weights of jobs that have ended and whose checkpoints were removed.
    digests: dict[str, str] = field(default_factory=dict)
    jump_s: float = 0.0
    outages: Outages = field(default_factory=Outages)

    def __post_init__(self) -> None:
        self.home = StateDir(self.folder / "home").make()
        self.jumps = self.folder / "jumps"
        self.filler = self.disk / "filler"
        self.database = self.state_disk / "springtide.db"
        self.work = self.folder / "work"
        self.work.mkdir()
        for name in ("train.py", "poison.py"):
            shutil.copy(SCRIPT.with_name(name), self.work)
        self.executor = LocalExecutor(self.home.root, DEVICES)

    # The server.

    def start_server(self) -> None:
        """Start a server on what the last one left, and wait until it answers."""
        self.home.address.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
        command = [sys.executable, "-c", SERVE, str(self.home.root), str(self.jumps), str(self.database)]
        with self.home.log.open("ab") as log:
            self.server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until_s = time.monotonic() + START_S
        while (address := read_address(self.home)) is None or not is_answering(str(address["url"])):
            if time.monotonic() > until_s or self.server.poll() is not None:
                raise SystemExit(f"the server did not start; see {self.home.log}: {self.home.log.read_text()[-2000:]}")
            time.sleep(LOOK_S / 2)
        self.client = Client(home=self.home.root)

    def kill_server(self) -> None:
        """End the server as a power cut would."""
        assert self.server is not None
        self.client.close()
        self.server.kill()
        self.server.wait()

    def close(self) -> int:
        """End everything that was started; returns how many processes had to be killed for that, or are left."""
        if self.server is not None and self.server.poll() is None:
            self.kill_server()
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            self.find_agent().resume()  # a fault may have left it stopped
        with contextlib.suppress(ExecutorError):
            self.executor.shutdown()
        left = self.list_left()
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            left.append(self.find_agent())  # an agent that ended has taken its notes away
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(left)

    def list_left(self) -> list[psutil.Process]:
        """The processes of this arena that are still there."""
        return find_marked(make_mark(self.home.root))

    def find_url(self) -> str | None:
        """Where the server listens; None while there is none."""
        address = read_address(self.home)
        return None if address is None else str(address["url"])

    def open_doors(self, user: str) -> Doors:
        """How another user asks this platform."""
        token = str(self.insist(lambda: self.client.put_user(user)).document["token"])
        archive = pack(self.work)
        self.insist(lambda: self.client.upload(archive))
        return Doors(self.find_url, token, archive.code_hash)

    # Jobs.

    def submit(self, recipe: Recipe, deadline: str | None) -> str:
        """Submit a job; returns its id."""
        self.make_room()
        arguments = recipe.arguments if self.is_mounted else (*recipe.arguments, "--full-while", str(self.filler))
        document: dict[str, Any] = {
            "name": f"chaos-{len(self.recipes)}",
            "run": ["python", "train.py", *arguments],
            "workdir": str(self.work),
            "checkpoint": {"every": "1s", "keep": 2, "dir": str(self.disk / f"job-{len(self.recipes)}")},
            "retry": {"max": 0},
        }
        if deadline is not None:
            document["deadline"] = deadline
        key = f"chaos-{len(self.recipes):06}"  # sent again after a lost answer, it is the same job
        job = self.insist(lambda: self.client.submit(document, wait=False, key=key)).id
        self.recipes[job] = recipe
        return job

    def make_room(self) -> None:
        """Remove the checkpoints of jobs that have ended: the disk is small, and a long run has many jobs."""
        for job in [one for one in self.recipes if one not in self.digests]:
            if self.look(job).state == "succeeded":
                self.digests[job] = self.find_digest(job)
                shutil.rmtree(self.look(job).spec["checkpoint"]["dir"])

    def look(self, job: str) -> JobInfo:
        """A job as the server shows it."""
        return self.insist(lambda: self.client.job(job))

    def insist(self, ask: Callable[[], T]) -> T:
        """What the server answers once it does: beside this fault there may be others."""
        until_s = time.monotonic() + START_S
        while True:
            try:
                return ask()
            except SpringtideError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(LOOK_S)

    def active(self) -> list[JobInfo]:
        """The jobs that have not ended, oldest first."""
        jobs = [job for job in self.insist(self.client.jobs) if job.id in self.recipes and not job.ended]
        return sorted(jobs, key=lambda job: job.submitted_at)

    def read_ledger(self, job: str) -> list[Step]:
        """The steps a job took, in the order in which they were written down."""
        path = self.home.output(job) / "steps.log"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [Step(int(pid), int(number), float(at_s)) for pid, number, at_s in rows]

    def find_digest(self, job: str) -> str:
        """The hash of the weights that a job ended with."""
        if job in self.digests:
            return self.digests[job]
        return hash_weights(Path(self.look(job).spec["checkpoint"]["dir"]))

    def train_undisturbed(self, recipe: Recipe) -> str:
        """The hash of the weights of the same training alone in one process; the sleep changes nothing."""
        if recipe not in self.hashes:
            folder = self.folder / "undisturbed" / f"{recipe.seed}-{recipe.steps}"
            arguments = (str(recipe.steps), "--sleep", "0", "--seed", str(recipe.seed))
            self.hashes[recipe] = train_plainly(self.work, arguments, folder)
        return self.hashes[recipe]

    # Processes.

    def find_workers(self, job: str) -> tuple[int, ...]:
        """The training processes of a job."""
        with contextlib.suppress(SpringtideError):
            return next((one.pids for one in self.executor.running() if one.job == job), ())
        return ()

    def find_agent(self) -> psutil.Process:
        """The agent's process."""
        return psutil.Process(int(json.loads((self.home.root / AGENT_NOTES).read_text())["pid"]))

    def kill_agent(self) -> None:
        """End the agent at once; whoever asks for it next starts another."""
        agent = self.find_agent()
        agent.kill()
        self.executor.close()

    def kill_all(self) -> None:
        """End the server, the agent, fork servers and workers, all at once."""
        agent, marked = self.find_agent(), self.list_left()
        self.kill_server()
        for process in (agent, *marked):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.executor.close()

    # The disk and the clock.

    def fill_disk(self) -> None:
        """Leave no room for checkpoints."""
        with contextlib.suppress(OSError), self.filler.open("wb", buffering=0) as file:
            while self.is_mounted:
                file.write(bytes(4096))

    def free_disk(self) -> None:
        """Make room again."""
        self.filler.unlink()

    def set_clock(self, by_s: float) -> None:
        """Set the server's wall clock forward or back."""
        self.jump_s += by_s
        aside = self.jumps.with_suffix(".new")
        aside.write_text(str(self.jump_s))
        aside.replace(self.jumps)
