"""The agent: one process per machine that owns the jobs' processes, apart from the server, which comes and goes.

`python -m springtide.executors.local.agent --state-dir DIR` listens on `DIR/agent.sock` (mode 0600) for JSON lines. One
thread, one loop. Its instructions and its events are in a journal, so a killed agent's successor ends what is left of
the old processes and goes on from the jobs' checkpoints. Without a request of a server for the lease it stops all jobs,
with checkpoints, and ends.
"""

import argparse
import os
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from springtide import __version__
from springtide.executors import boot_clock
from springtide.executors.delivery import Freshness, refuse
from springtide.executors.local.agent_machine import AgentMachine
from springtide.executors.local.agent_notes import note_devices
from springtide.executors.local.agent_server import AgentServer
from springtide.executors.local.daemon import detach
from springtide.executors.local.discovery import Discovery, discover
from springtide.executors.local.jobs.attempt import AgentContext, AttemptOptions
from springtide.executors.local.jobs.probe_runner import make_runner
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.journal import Journal
from springtide.executors.local.json_connections import Message
from springtide.executors.local.paths import AGENT_NOTES, JOURNAL, LOCK, LOG, SOCKET, try_lock
from springtide.executors.local.processes.stray_processes import adopt_orphans
from springtide.executors.local.processor_load import LoadMeter
from springtide.executors.protocol import (
    Event,
    Faulted,
    Instruction,
    MachineLoaded,
    Probe,
    Resize,
    Running,
    Start,
    Warned,
)

if TYPE_CHECKING:
    from springtide.executors.hosts.host_hub import HostHub


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is started with."""

    state_dir: Path
    cpu_slots: str | None = None
    lease_s: float = 600.0
    #: Import torch at once, so that the first job starts fast.
    warm: bool = False
    options: AttemptOptions = field(default_factory=AttemptOptions)
    #: An address of this machine at which hosts join, whose devices are then used instead of this machine's.
    listen: str | None = None
    #: Object storage for what jobs leave, where there is one: hosts that do not see the state folder may join then.
    storage: str = ""


class Agent:
    """The jobs of this machine and the clients that ask for them."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self.state_dir = settings.state_dir
        self.leaving: str | None = None
        self.runners: dict[str, JobRunner] = {}
        #: When the machine was last looked after.
        self.inspected_s = 0.0
        self.machine = AgentMachine(self.state_dir, settings.options.limits, settings.options.forks)
        self.loop, self.forks = self.machine.loop, self.machine.forks
        self.discovery = discover(settings.cpu_slots) if settings.listen is None else Discovery(())
        note_devices(self.state_dir, self.discovery.devices)
        self.hub: HostHub | None = None
        self.context = self.make_context(settings)
        self.journal = Journal(self.state_dir / JOURNAL)
        self.recover()
        self.server = AgentServer(self.state_dir / SOCKET, self.loop, self.journal, self)
        if self.hub is not None:
            self.hub.on_server = self.server.take
        #: None where the devices are those of hosts, which measure for themselves.
        self.meter = LoadMeter(len(self.context.devices), self.list_own) if self.hub is None else None
        if settings.warm:
            self.machine.warm()

    def make_context(self, settings: AgentSettings) -> AgentContext:
        """What this agent offers to its jobs: this machine, or the hosts that join."""
        devices = {device.name: device for device in self.discovery.devices}
        place = self.machine.make_place(devices)
        if settings.listen is not None:
            from springtide.executors.hosts.host_hub import (
                HostHub,  # of no use, but of some size, to an agent of one machine
            )

            hub = self.hub = HostHub(place, self.state_dir, settings.listen, self.emit, storage=settings.storage)
            return AgentContext(hub, hub.devices, self.emit, self.may_use, settings.options)
        return AgentContext(place, devices, self.emit, self.may_use, settings.options)

    def recover(self) -> None:
        """Take up the jobs of an agent that was killed."""
        for job, assigned in list(self.journal.jobs.items()):
            if assigned.ending is None:
                reason = "the agent was lost, and the job's processes were ended with it"
                self.emit(
                    Faulted(
                        job=job, generation=assigned.generation, cause="agent_lost", reason=reason, step=assigned.step
                    )
                )
        for note in self.list_journal_notes():
            print(note, flush=True)
            for job, assigned in self.journal.jobs.items():
                self.emit(Warned(job=job, generation=assigned.generation, reason=note))
        self.journal.sync()

    # Jobs.

    def emit(self, event: Event) -> None:
        """Put an event into the journal, and let its job's runner know what follows from it."""
        self.journal.add_event(replace(event, steady_s=boot_clock.read_s(), boot=boot_clock.find_boot()), time.time())
        self.refresh(event.job)
        if self.hub is not None:
            self.hub.note(event)

    def refresh(self, job: str) -> None:
        """Show a runner its job as the journal has it."""
        runner, assigned = self.runners.get(job), self.journal.jobs.get(job)
        if runner is not None and assigned is not None and runner.assigned.order == assigned.order:
            runner.assigned = assigned

    def accept(self, instruction: Instruction) -> None:
        """Write an instruction down if it is new; runners act on it in their next turn."""
        known = instruction.job in self.journal.jobs
        freshness = self.journal.accept(instruction)
        if freshness is Freshness.STALE:
            self.emit(self.journal.generations.make_ignored(instruction))
        elif freshness is Freshness.NEW:
            self.refresh(instruction.job)
            refused = refuse(instruction, known, self.list_possible(instruction))
            if refused is not None:
                self.emit(refused)

    def list_possible(self, instruction: Instruction) -> list[str]:
        """The devices that an instruction may name: those that are known, and those of hosts that may come."""
        asked = instruction.devices if isinstance(instruction, Start | Probe | Resize) else ()
        return [*self.context.devices, *(self.hub.list_awaited(asked) if self.hub is not None else ())]

    def may_use(self, job: str, devices: Sequence[str]) -> bool:
        """Whether their hosts are there, and no other job that is about to leave one of them is still on it.

        Two jobs that wait for each other both go ahead.
        """
        if not self.context.place.can_reach(devices):
            return False
        mine = self.runners[job].in_use
        for name, runner in self.runners.items():
            leaving = runner.in_use if runner.is_ending or runner.abandoned else runner.in_use - set(runner.wanted)
            is_mutual = bool(set(runner.wanted) & mine) and not runner.is_ending
            if name != job and leaving & set(devices) and not is_mutual:
                return False
        return True

    def tick(self) -> None:
        """Move every job on."""
        now_s = time.monotonic()
        self.poll_forks(now_s)
        if self.hub is not None:
            self.hub.tick(now_s)
        for job, assigned in self.journal.jobs.items():
            runner = self.runners.get(job)
            if runner is None:
                self.runners[job] = make_runner(self.context, assigned)
            elif runner.assigned.order != assigned.order and not runner.abandoned:
                runner.abandon()
        for job, runner in list(self.runners.items()):
            if job not in self.journal.jobs and not runner.is_over and not runner.abandoned:
                runner.abandon()
            runner.leaving = self.leaving
            self.tick_runner(runner, now_s)
            if runner.is_over:
                del self.runners[job]
        self.measure_load(now_s)
        self.check_lease(now_s)

    def tick_runner(self, runner: JobRunner, now_s: float) -> None:
        """Give a runner its turn; a mistake of ours ends its job, and no other."""
        try:
            runner.tick(now_s)
        except Exception as error:
            traceback.print_exc()
            reason = f"the agent met an error of its own: {error!r}; see {self.state_dir / LOG}"
            if runner.phase == "clearing":  # even what is left cannot be cleared away
                runner.let_lie(reason)
            else:
                runner.fail("agent_error", reason, user_fault=False)

    def measure_load(self, now_s: float) -> None:
        """Tell what others take of this machine, when that has changed."""
        load = self.meter.look(now_s) if self.meter is not None else None
        if load is not None:
            devices = tuple(self.context.devices)
            self.emit(MachineLoaded(job="", generation=0, machine="", devices=devices, **asdict(load)))

    def list_own(self) -> list[int]:
        """The processes that are the platform's, each with what it has started: this one, and the servers that ask."""
        return [os.getpid(), *self.server.list_peers()]

    def check_lease(self, now_s: float) -> None:
        """Stop all work if no server has asked for too long."""
        if self.leaving is None and now_s - self.server.contact_s >= self.settings.lease_s:
            self.leave("lease")

    def leave(self, reason: str) -> None:
        """Stop all jobs, with checkpoints, and then end."""
        if self.leaving is None:
            print(f"agent {os.getpid()} leaves: {reason}", flush=True)
            self.leaving = reason

    def poll_forks(self, now_s: float) -> None:
        """Move fork servers on; jobs whose server has gone start again."""
        if now_s - self.inspected_s >= self.settings.options.inspect_s:
            self.inspected_s = now_s
            if self.hub is not None:
                self.hub.forget_lost({name for one in self.journal.jobs.values() for name in one.devices}, now_s)
            preparing = {pid for runner in self.runners.values() for pid in runner.helpers}
            self.machine.inspect(now_s, {*self.runners, *self.journal.jobs}, preparing)
        dropped = self.forks.poll(now_s)
        for runner in self.runners.values():
            if runner.attempt is not None and runner.attempt.processes.has_fork(dropped):
                runner.lose_fork()

    # For the server of clients.

    def make_hello(self) -> Message:
        """Who this is, and what devices there are."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "lease_s": self.settings.lease_s,
            "devices": [asdict(device) for device in self.context.devices.values()],
            "nodes": [asdict(node) for node in self.hub.list_nodes()] if self.hub is not None else [],
            "refused": self.hub.refused if self.hub is not None else {},
            "notes": [*self.discovery.notes, *self.list_journal_notes()],
            "leftovers": self.machine.leftovers,
            "leaving": self.leaving,
        }

    def list_journal_notes(self) -> list[str]:
        """What of the journal could not be read."""
        bad, journal = self.journal.set_aside, self.journal
        if not bad:
            return []
        first = f"{', '.join(bad[:5])}{', ...' if len(bad) > 5 else ''}"
        return [f"{len(bad)} lines of {journal.path} could not be read, {first}; they are kept in {journal.bad_path}"]

    def list_running(self) -> list[Running]:
        """The jobs that hold devices, by name."""
        return [runner.make_running() for _, runner in sorted(self.runners.items())]

    # Life.

    @property
    def wait_s(self) -> float:
        """How long a turn may wait for something to happen."""
        restless = any(runner.phase != "running" for runner in self.runners.values())
        warming = any(server.is_waking for server in self.forks.every())
        idle_s = 0.5 if self.hub is None else 0.2
        return 0.02 if restless or warming or self.leaving else 0.1 if self.runners else idle_s

    def serve(self) -> None:
        """Go on until everything has been left."""
        print(f"agent {os.getpid()} serves {self.state_dir}, {len(self.context.devices)} devices", flush=True)
        while self.leaving is None or self.runners or self.journal.jobs:
            self.loop.turn(self.wait_s)
            self.tick()
            self.server.tick()

    def close(self) -> None:
        """End everything that was started, and leave only the journal and the log."""
        self.server.close()
        if self.hub is not None:
            self.hub.close()
        self.machine.close()
        self.journal.close()
        (self.state_dir / AGENT_NOTES).unlink(missing_ok=True)


def run(settings: AgentSettings) -> None:
    """Serve until told to leave; at once over if another agent has the state folder."""
    lock = try_lock(settings.state_dir / LOCK)
    if lock is None:
        return
    adopt_orphans()
    agent = Agent(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: agent.leave("shutdown"))
    try:
        agent.serve()
    finally:
        agent.close()
        lock.close()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description="Own the training processes of this machine.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--cpu-slots")
    parser.add_argument("--lease-s", type=float, default=600.0)
    parser.add_argument("--warm", action="store_true", help="import torch at once")
    parser.add_argument("--detach", action="store_true", help="print the id of the process that serves, and return")
    parser.add_argument(
        "--options", type=TypeAdapter(AttemptOptions).validate_json, default=AttemptOptions(), help="as JSON"
    )
    parser.add_argument("--listen", help="an address of this machine at which hosts join, whose devices are used")
    parser.add_argument("--storage", default="", help="the URL of what jobs leave: hosts need not see the state folder")
    given = parser.parse_args()
    settings = AgentSettings(
        given.state_dir.resolve(),
        given.cpu_slots,
        given.lease_s,
        given.warm,
        given.options,
        given.listen,
        given.storage,
    )
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if given.detach:
        detach()
    run(settings)


if __name__ == "__main__":
    main()
