"""The agent: one process per machine that owns the jobs' processes, apart from the server, which comes and goes.

`python -m springtide.executors.local.agent --state-dir DIR` listens on `DIR/agent.sock` (mode 0600) for JSON lines. One
thread, one loop. What it was told and what it has to tell is in a journal, so a killed agent's successor ends what is
left of the old processes and goes on from the jobs' checkpoints. Without word from a server for the lease it stops all
jobs, with checkpoints, and ends.
"""

import argparse
import functools
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from springtide import __version__
from springtide.executors import boot_clock
from springtide.executors.delivery import Freshness, refuse
from springtide.executors.local.agent_server import AgentServer
from springtide.executors.local.daemon import detach
from springtide.executors.local.discovery import discover
from springtide.executors.local.jobs.attempt import AgentContext, AttemptOptions, find_key
from springtide.executors.local.jobs.environment import MARK, allow
from springtide.executors.local.jobs.probe_runner import make_runner
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.journal import Journal
from springtide.executors.local.json_lines import EventLoop, Message
from springtide.executors.local.paths import JOURNAL, LOG, PLACE, SOCKET, make_mark, make_runtime_folder, take_lock
from springtide.executors.local.processes.fork_servers import ForkPool
from springtide.executors.local.processes.worker_processes import reap
from springtide.executors.protocol import (
    CheckpointPolicy,
    Event,
    Faulted,
    Ignored,
    Instruction,
    JobSpec,
    Running,
)

#: How an agent ends that finds its state folder taken.
OCCUPIED = 3


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is started with."""

    state_dir: Path
    cpu_slots: str | None = None
    lease_s: float = 600.0
    #: Import torch at once, so that the first job starts fast.
    warm: bool = False
    options: AttemptOptions = field(default_factory=AttemptOptions)


class Agent:
    """The jobs of this machine and the clients that ask for them."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self.state_dir = settings.state_dir
        self.loop = EventLoop()
        self.mark = make_mark(self.state_dir)
        self.leaving: str | None = None
        self.crews: dict[str, JobRunner] = {}
        #: When fork servers were last checked for being stopped (SIGSTOP).
        self.inspected_s = 0.0
        self.leftovers = reap(self.mark, MARK)
        self.folder = make_runtime_folder(self.state_dir)
        environment = {**allow(os.environ), MARK: self.mark}
        self.forks = ForkPool(self.loop, self.folder, environment, self.state_dir / LOG)
        self.discovery = discover(settings.cpu_slots)
        self.house = AgentContext(
            loop=self.loop,
            forks=self.forks,
            folder=self.folder,
            devices={device.name: device for device in self.discovery.devices},
            environment=environment,
            python=sys.executable,
            tell=self.tell,
            may_take=self.may_take,
            options=settings.options,
        )
        self.journal = Journal(self.state_dir / JOURNAL)
        self.recover()
        self.desk = AgentServer(self.state_dir / SOCKET, self.loop, self.journal, self)
        if settings.warm:
            self.warm()

    def recover(self) -> None:
        """Take up the jobs of an agent that was killed."""
        for job, standing in list(self.journal.jobs.items()):
            if standing.ending is None:
                reason = "the agent was lost, and the job's processes were ended with it"
                self.tell(
                    Faulted(
                        job=job, generation=standing.generation, cause="agent_lost", reason=reason, step=standing.step
                    )
                )
        self.journal.sync()

    def warm(self) -> None:
        """Start the fork server that most jobs use."""
        plain = JobSpec(("python",), "", CheckpointPolicy(""), "", "")
        self.forks.find(find_key(plain, sys.executable))

    # Jobs.

    def tell(self, event: Event) -> None:
        """Put an event into the journal, and let its job's crew know what follows from it."""
        self.journal.tell(replace(event, steady_s=boot_clock.read_s()), time.time())
        self.refresh(event.job)

    def refresh(self, job: str) -> None:
        """Show a crew its job as the journal has it."""
        crew, standing = self.crews.get(job), self.journal.jobs.get(job)
        if crew is not None and standing is not None and crew.standing.order == standing.order:
            crew.standing = standing

    def take(self, instruction: Instruction) -> None:
        """Write an instruction down if it is new; crews act on it in their next turn."""
        known = instruction.job in self.journal.jobs
        verdict = self.journal.take(instruction)
        if verdict is Freshness.STALE:
            seen = self.journal.ledger.generation_of(instruction.job)
            self.tell(Ignored(job=instruction.job, generation=instruction.generation, key=instruction.key, seen=seen))
        elif verdict is Freshness.NEW:
            self.refresh(instruction.job)
            refused = refuse(instruction, known, self.house.devices)
            if refused is not None:
                self.tell(refused)

    def may_take(self, job: str, devices: Sequence[str]) -> bool:
        """Whether no other job that is about to leave one of these devices is still there.

        Two jobs that wait for each other both go ahead.
        """
        mine = self.crews[job].in_use
        for name, crew in self.crews.items():
            leaving = crew.in_use if crew.is_ending or crew.abandoned else crew.in_use - set(crew.wanted)
            is_mutual = bool(set(crew.wanted) & mine) and not crew.is_ending
            if name != job and leaving & set(devices) and not is_mutual:
                return False
        return True

    def tick(self) -> None:
        """Move every job on."""
        now_s = time.monotonic()
        self.poll_forks(now_s)
        for job, standing in self.journal.jobs.items():
            crew = self.crews.get(job)
            if crew is None:
                self.crews[job] = make_runner(self.house, standing)
            elif crew.standing.order != standing.order and not crew.abandoned:
                crew.abandon()
        for job, crew in list(self.crews.items()):
            if job not in self.journal.jobs and not crew.is_over and not crew.abandoned:
                crew.abandon()
            crew.leaving = self.leaving
            self.move(crew, now_s)
            if crew.is_over:
                del self.crews[job]
        self.check_lease(now_s)

    def move(self, crew: JobRunner, now_s: float) -> None:
        """Give a crew its turn; a mistake of ours ends its job, and no other."""
        try:
            crew.tick(now_s)
        except Exception as error:
            traceback.print_exc()
            reason = f"the agent met an error of its own: {error!r}; see {self.state_dir / LOG}"
            crew.fail("agent_error", reason, user_fault=False)

    def check_lease(self, now_s: float) -> None:
        """Stop all work if no server has asked for too long."""
        if self.leaving is None and now_s - self.desk.contact_s >= self.settings.lease_s:
            self.leave("lease")

    def leave(self, reason: str) -> None:
        """Stop all jobs, with checkpoints, and then end."""
        if self.leaving is None:
            print(f"agent {os.getpid()} leaves: {reason}", flush=True)
            self.leaving = reason

    def poll_forks(self, now_s: float) -> None:
        """Move fork servers on; jobs whose server has gone start again."""
        if now_s - self.inspected_s >= self.settings.options.look_s:
            self.inspected_s = now_s
            self.forks.kill_stopped()
        self.forks.drop_unused(now_s, {*self.crews, *self.journal.jobs})
        dropped = self.forks.poll(now_s)
        for crew in self.crews.values():
            if crew.attempt is not None and crew.attempt.processes.fork in dropped:
                crew.lose_fork()

    # For the desk.

    def introduce(self) -> Message:
        """Who this is, and what devices there are."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "lease_s": self.settings.lease_s,
            "devices": [asdict(device) for device in self.discovery.devices],
            "notes": list(self.discovery.notes),
            "leftovers": self.leftovers,
            "leaving": self.leaving,
        }

    def list_running(self) -> list[Running]:
        """The jobs that hold devices, by name."""
        return [crew.describe() for _, crew in sorted(self.crews.items())]

    # Life.

    @property
    def wait_s(self) -> float:
        """How long a turn may wait for something to happen."""
        restless = any(crew.phase != "running" for crew in self.crews.values())
        warming = any(server.is_waking for server in self.forks.every())
        return 0.02 if restless or warming or self.leaving else 0.1 if self.crews else 0.5

    def serve(self) -> None:
        """Go on until everything has been left."""
        print(f"agent {os.getpid()} serves {self.state_dir}, {len(self.house.devices)} devices", flush=True)
        while self.leaving is None or self.crews or self.journal.jobs:
            self.loop.turn(self.wait_s)
            self.tick()
            self.desk.tick()

    def close(self) -> None:
        """End everything that was started, and leave only the journal and the log."""
        self.desk.close()
        self.forks.close()
        reap(self.mark, MARK)
        self.journal.close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.state_dir / PLACE).unlink(missing_ok=True)


def run(settings: AgentSettings, on_ready: Callable[[], None] = lambda: None) -> int:
    """Serve until told to leave; 0, or OCCUPIED if another agent has the state folder."""
    lock = take_lock(settings.state_dir)
    if lock is None:
        return OCCUPIED
    agent = Agent(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: agent.leave("shutdown"))
    on_ready()
    try:
        agent.serve()
    finally:
        agent.close()
        lock.close()
    return 0


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description="Own the training processes of this machine.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--cpu-slots")
    parser.add_argument("--lease-s", type=float, default=600.0)
    parser.add_argument("--warm", action="store_true", help="import torch at once")
    parser.add_argument("--detach", action="store_true", help="return as soon as it answers")
    parser.add_argument(
        "--options", type=TypeAdapter(AttemptOptions).validate_json, default=AttemptOptions(), help="as JSON"
    )
    given = parser.parse_args()
    settings = AgentSettings(given.state_dir.resolve(), given.cpu_slots, given.lease_s, given.warm, given.options)
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    serve = functools.partial(run, settings)
    raise SystemExit(detach(serve, settings.state_dir / LOG) if given.detach else serve())


if __name__ == "__main__":
    main()
