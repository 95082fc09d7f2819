"""How long a platform is without a server when its active one dies: two real servers, one PostgreSQL, real jobs.

    python -m benchmarks.takeover [--rounds N]

In each round the active server is killed (SIGKILL) or stopped (SIGSTOP, and let go on once the other has taken over)
while jobs run and a client submits more of them through both addresses; then a new standby is started. Counted is the
time until the API answers again, and what became of the jobs: each that was answered must be there, once, and run once.
Needs PostgreSQL's server programs and the extra postgres.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.private_postgres import find_lack, run_postgres
from springtide.client.client import Client
from springtide.client.replies import JobInfo
from springtide.control.storage.state_dir import StateDir
from springtide.errors import SpringtideError

BAR_S = 10.0
PATIENCE_S = 60.0
LOOK_S = 0.02
SUBMIT_EVERY_S = 0.5
SPRINGTIDE = (sys.executable, "-c", "from springtide.cli.app import main; main()")
SCRIPT = """import os, time
with open(os.path.join(os.environ["SPRINGTIDE_OUTPUT"], "runs"), "a") as file:
    print(os.getpid(), file=file, flush=True)
time.sleep(1)
"""
JOB = {"run": "python train.py", "elastic": False, "devices": 1, "duration": "2s"}


@dataclass
class ServerProcess:
    """A real server, active or standing by."""

    process: subprocess.Popen[str]
    url: str

    def is_ready(self) -> bool:
        """Whether it is active and answers."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def wait_ready(self) -> None:
        """Wait until it is active."""
        until_s = time.monotonic() + PATIENCE_S
        while not self.is_ready():
            if time.monotonic() > until_s or self.process.poll() is not None:
                raise SystemExit(f"the server at {self.url} did not become active")
            time.sleep(LOOK_S)

    def end(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@dataclass
class Platform:
    """Servers of one database and one state directory."""

    home: Path
    database: str
    servers: list[ServerProcess] = field(default_factory=list)

    def start(self, *options: str, enter: Sequence[str] = ()) -> ServerProcess:
        """Start a server, behind these words before its command; returns when it says where it listens."""
        command = [*enter, *SPRINGTIDE, "serve", "--port", "0", "--devices", "2", "-o", "json"]
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*command, "--database", self.database, *options],
                env={**os.environ, "SPRINGTIDE_HOME": str(self.home)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        if '"url"' not in line:  # an error is a document of several lines
            told = line + process.stdout.read()
            ServerProcess(process, "").end()
            raise SystemExit(f"a server did not start: {told}{self.log.read_text()[-2000:]}")
        server = ServerProcess(process, json.loads(line)["url"])
        self.servers.append(server)
        return server

    @property
    def log(self) -> Path:
        """What the servers write."""
        return self.home.parent / "servers.log"

    def connect(self) -> Client:
        """A client that knows every server which is still there."""
        alive = [server.url for server in self.servers if server.process.poll() is None]
        return Client(url=",".join(alive), home=self.home)

    def tell_events(self) -> str:
        """Everything that happened, a line each."""
        with self.connect() as client:
            told = client.ask("GET", "/api/v1/events")["events"]
        return "\n".join(f"{one['at']} {one['job']} {one['kind']}: {one['sentence']}" for one in told)

    def count_runs(self, job_id: str) -> int:
        """How often the script of a job was run."""
        path = StateDir(self.home).output(job_id) / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0


@contextmanager
def run_platform(folder: Path, database: str) -> Iterator[Platform]:
    """A platform whose servers and agent are ended with the block."""
    platform = Platform(folder / "home", database)
    platform.home.mkdir(parents=True)
    try:
        yield platform
    finally:
        for server in platform.servers:
            server.end()
        environment = {**os.environ, "SPRINGTIDE_HOME": str(platform.home)}
        subprocess.run([*SPRINGTIDE, "stop"], env=environment, capture_output=True)


class Submitter(threading.Thread):
    """A user who submits small jobs all the time, each once, whatever happens to the servers."""

    def __init__(self, platform: Platform, project: Path) -> None:
        super().__init__(name="submitter")
        self.platform, self.project = platform, project
        self.answered: list[JobInfo] = []
        self.failures: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        """Submit until it is enough."""
        while not self.enough.wait(SUBMIT_EVERY_S):
            try:
                with self.platform.connect() as client:
                    self.answered.append(client.submit(self.project / "job.json", wait=False))
            except SpringtideError as error:
                self.failures.append(str(error))


def write_project(folder: Path) -> Path:
    """A working directory with a script that notes each of its runs."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.json").write_text(json.dumps(JOB))
    return folder


def take_over(platform: Platform, active: ServerProcess, standby: ServerProcess, how: signal.Signals) -> float:
    """Do away with the active server; returns the seconds until the standby has taken over."""
    active.process.send_signal(how)
    began_s = time.monotonic()
    standby.wait_ready()
    took_s = time.monotonic() - began_s
    if how is signal.SIGSTOP:
        active.process.send_signal(signal.SIGCONT)
    active.process.wait(PATIENCE_S)
    return took_s


def wait_for_jobs(platform: Platform, jobs: Sequence[JobInfo]) -> list[JobInfo]:
    """The jobs as they ended."""
    with platform.connect() as client:
        return [client.wait(job) for job in jobs]


def measure(rounds: int) -> int:
    """Take over again and again, print a table; returns how many figures miss their bar."""
    with tempfile.TemporaryDirectory() as folder, run_postgres() as database:
        project = write_project(Path(folder) / "project")
        with run_platform(Path(folder) / "platform", database) as platform:
            active = platform.start()
            submitter = Submitter(platform, project)
            submitter.start()
            took: list[tuple[str, float]] = []
            for number in range(rounds):
                how = signal.SIGSTOP if number % 3 == 2 else signal.SIGKILL
                standby = platform.start("--standby")
                time.sleep(2.0)
                took.append((how.name, take_over(platform, active, standby, how)))
                print(f"{how.name}: the standby answered after {took[-1][1]:.2f} s (bar {BAR_S:g})", flush=True)
                active = standby
            submitter.enough.set()
            submitter.join()
            ended = wait_for_jobs(platform, submitter.answered)
            return report(took, ended, [platform.count_runs(job.id) for job in ended], submitter.failures)


def report(took: list[tuple[str, float]], ended: list[JobInfo], runs: list[int], failures: list[str]) -> int:
    """Print what came of it; returns how many things are not as they must be."""
    unfinished = [job.id for job in ended if str(job.state) != "succeeded"]
    wrong = [(job.id, count) for job, count in zip(ended, runs, strict=True) if count != 1]
    print(f"{len(ended)} jobs answered: {len(unfinished)} not finished, {len(wrong)} not run exactly once {wrong}")
    print(f"{len({job.id for job in ended})} different ids; {len(failures)} submissions not answered {failures[:3]}")
    late = [seconds for _, seconds in took if seconds > BAR_S]
    print(f"take-over: worst {max(seconds for _, seconds in took):.2f} s of {BAR_S:g}")
    return len(late) + len(unfinished) + len(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    lack = find_lack()
    if lack:
        raise SystemExit(lack)
    raise SystemExit(1 if measure(given.rounds) else 0)


if __name__ == "__main__":
    main()
