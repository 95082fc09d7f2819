"""The agent of a host in a cluster: runs the lead's processes as its guests, and ends them when the lead is gone.

`python -m springtide.executors.hosts.host_agent --home DIR --name NAME` dials the lead of the home again and again. The
home lies on storage that all hosts share; where it does not, the lead's address is in this host's state folder, and
code, secrets and receipts come and go over the connection (`own_disk`). It has no journal and decides nothing: what
should run, and what follows from an end, is the lead's. A host that has not heard its lead for a few seconds ends all
guests, because the lead counts them as gone soon after.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import tarfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from springtide.errors import ExecutorError
from springtide.executors import boot_clock
from springtide.executors.hosts import own_disk
from springtide.executors.hosts.beating_connections import BeatingConnection, BeatSender
from springtide.executors.hosts.device_watch import LOOK_S, DeviceWatch, describe_change, find_gpus
from springtide.executors.hosts.guest_starts import GuestStart, open_start
from springtide.executors.hosts.host_fitness import check_fitness, is_hosts_trouble
from springtide.executors.hosts.host_folders import make_state_dir, note_leave
from springtide.executors.hosts.host_memory import HostMemory
from springtide.executors.hosts.host_messages import (
    Admission,
    Beat,
    BeatTimes,
    Challenge,
    CodePart,
    DeviceOffer,
    EndStart,
    HostLoaded,
    Leaving,
    OpenStart,
    PassCommand,
    Ready,
    Rejection,
    SendSignal,
    SpawnWorker,
    StartState,
    ToHost,
    WantCode,
    Welcome,
    read_order,
)
from springtide.executors.hosts.lead_address import HOSTS, LeadAddress, find_lead_file, is_replaced, read_lead
from springtide.executors.hosts.lead_dialer import LeadConnection, RefusedError, dial
from springtide.executors.hosts.network_routes import Route, find_route
from springtide.executors.hosts.own_disk import AwaitedStart, OwnDisk
from springtide.executors.local.agent_machine import AgentMachine
from springtide.executors.local.daemon import detach
from springtide.executors.local.discovery import Discovery, discover
from springtide.executors.local.jobs.places import LocalPlace
from springtide.executors.local.paths import LOCK, keep_from_cleaners, try_lock
from springtide.executors.local.processes.cgroups import GroupLimits
from springtide.executors.local.processes.fences import Fence
from springtide.executors.local.processes.stray_processes import adopt_orphans
from springtide.executors.local.processor_load import LoadMeter

StartOrder = OpenStart | SpawnWorker | PassCommand | SendSignal | EndStart
DIAL_S = 0.5
TURN_S = 0.1
BUSY_TURN_S = 0.02
ENDED_S = 60.0
LINGER_S = 3.0
INSPECT_S = 1.0


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What the agent of a host is started with."""

    home: Path
    name: str
    cpu_slots: str | None = None
    #: On this host's own disk: log, lock, sockets.
    state_dir: Path = field(default_factory=Path.cwd)
    times: BeatTimes = field(default_factory=BeatTimes)
    #: Without a lead for so long, it ends.
    lease_s: float = 600.0
    #: How long the guests have to leave when this host is told to go (SIGTERM).
    notice_s: float = 30.0
    #: How often it looks whether its GPUs are there.
    look_s: float = LOOK_S
    #: The node that whoever started it is on: when this agent was told to go, it is not started there again.
    node: str = ""


class HostAgent:
    """The guests of this host."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        self.machine = AgentMachine(settings.state_dir, GroupLimits())
        self.loop, self.forks = self.machine.loop, self.machine.forks
        #: By which fork servers end the guests where this process cannot.
        self.fence = Fence(self.machine.folder / "lease", settings.times.fence_s)
        self.forks.environment |= self.fence.variables
        self.machine.warm()
        self.discovery: Discovery = discover(settings.cpu_slots)
        self.meter = self.make_meter()
        self.watch = DeviceWatch(self.discovery, lambda: discover(settings.cpu_slots), settings.look_s)
        #: The devices with which it joins again, if it leaves because they are others.
        self.renewal: Discovery | None = None
        self.starts: dict[str, GuestStart] = {}
        self.connection: BeatingConnection | None = None
        self.place: LocalPlace | None = None
        #: Where the lead's home is not seen here.
        self.disk: OwnDisk | None = None
        self.memory = HostMemory(self.machine.mark)
        self.beats = BeatSender(settings.times.beat_s, self.renew_fence)
        self.inspected_s = 0.0
        self.contact_s = time.monotonic()
        #: Why it goes, and when at the latest.
        self.leaving = ""
        self.until_s = 0.0
        #: When a guest was last seen.
        self.occupied_s = 0.0
        #: Whether somebody has sent SIGTERM; acted on in the next turn.
        self.is_told_to_go = False

    def make_meter(self) -> LoadMeter:
        """What measures, anew for each lead, what others take of this host."""
        return LoadMeter(len(self.discovery.devices), lambda: [os.getpid()])

    # The lead.

    def serve(self) -> None:
        """Serve leads, one after another, until told to go or nobody has led for the lease."""
        said = ""
        while not (self.leaving or self.is_told_to_go) and time.monotonic() - self.contact_s < self.find_lease_s():
            try:
                lead = read_lead(self.settings.home, self.settings.state_dir)
                met = dial(lead, self.settings.name, self.settings.times.meet_s)
            except RefusedError:
                raise
            except (OSError, ExecutorError) as error:
                if str(error) != said:
                    said = str(error)
                    print(f"no lead yet: {said}", flush=True)
                self.turn(DIAL_S)
                continue
            self.serve_lead(met, lead)
            self.renew()

    def renew(self) -> None:
        """Stay after all, with other devices, if that was why we left."""
        if self.renewal is not None:
            self.discovery, self.renewal, self.leaving = self.renewal, None, ""

    def find_lease_s(self) -> float:
        """How long to look for a lead: not for long where the home is no cluster's any more."""
        is_clusters = find_lead_file(self.settings.home, self.settings.state_dir).exists()
        return self.settings.lease_s if is_clusters else min(ENDED_S, self.settings.lease_s)

    def serve_lead(self, met: LeadConnection, lead: LeadAddress) -> None:
        """Serve a lead until it hangs up, is silent, or another has its place; then nothing of it is left here."""
        route = find_route(met.sock)
        devices = {device.name: device for device in self.discovery.devices}
        self.place = self.machine.make_place(devices, choose_network(route, os.environ))
        connection, self.meter = BeatingConnection(met.sock), self.make_meter()
        self.connection = connection
        connection.trust()
        self.fence.take(connection, connection.sure_s)
        if not met.sees_home and self.disk is None:
            self.disk = OwnDisk(self.settings.state_dir, self.ask_lead)
        self.beats.add(connection)
        offers = tuple(DeviceOffer(one.name, one.type, one.uuid, one.memory_gib) for one in self.discovery.devices)
        connection.send(Ready("ready", route.address, offers, met.sees_home))
        print(f"joined as {self.settings.name} at {route.address}, {len(offers)} devices", flush=True)
        self.loop.watch(connection, self.read)
        while connection.open and not self.is_fenced(connection) and not self.is_over:
            self.turn(BUSY_TURN_S if self.is_restless else TURN_S)
            if is_replaced(lead, self.settings.state_dir):
                print("another lead has taken the place of this one", flush=True)
                break
        silent_s = time.monotonic() - connection.heard_s
        print(f"the lead is gone (last heard {silent_s:.1f} s ago); {len(self.starts)} starts end", flush=True)
        self.contact_s = connection.heard_s
        self.loop.unwatch(connection)
        connection.close()
        self.connection = None
        if self.disk is not None:
            self.disk.forget()
        self.end_guests()

    def is_fenced(self, connection: BeatingConnection) -> bool:
        """Whether the lead has not heard us, as far as we know, for so long that it will count the guests as gone."""
        return boot_clock.read_s() - connection.sure_s >= self.settings.times.fence_s

    def renew_fence(self, connection: BeatingConnection) -> None:
        """Let the fork servers know how long the guests may stay; whatever a turn of ours waits for.

        The thread that beats may still be at a connection that has ended: it says nothing of the guests of the next.
        """
        self.fence.renew(connection, connection.sure_s)

    @property
    def is_restless(self) -> bool:
        """Whether something may happen that no file tells."""
        return any(server.is_waking for server in self.forks.every()) or any(one.killed for one in self.starts.values())

    @property
    def is_over(self) -> bool:
        """Whether this host is to go, and its guests have left a moment ago or had their time.

        A moment, because the lead hears of a change only after those who leave have left.
        """
        now_s = time.monotonic()
        if self.has_guests:
            self.occupied_s = now_s
        return bool(self.leaving) and (now_s >= self.occupied_s + LINGER_S or now_s >= self.until_s)

    @property
    def has_guests(self) -> bool:
        """Whether a process is here."""
        return any(start.processes.alive() for start in self.starts.values())

    def ask_lead(self, question: WantCode) -> None:
        """Ask the lead for something, if it is there."""
        if self.connection is not None:
            self.connection.send(question)

    def read(self) -> None:
        """Obey the lead; what is no order of ours ends the connection."""
        assert self.connection is not None
        try:
            for message in self.connection.read():
                self.obey(read_order(message))
        except ValueError as error:
            print(f"the lead says what cannot be: {error}", flush=True)
            self.connection.open = False

    def obey(self, order: ToHost) -> None:
        """Carry out one order; those for a start that is not here come too late."""
        assert self.connection is not None and self.place is not None
        match order:
            case Beat():
                pass
            case Rejection(reason=reason):
                self.leave(reason, 0.0)
            case Challenge() | Welcome() | Admission():
                raise ValueError("what was said already")
            case CodePart():
                self.take_code(order)
            case _:
                self.obey_for(order, self.place, self.connection)

    def take_code(self, part: CodePart) -> None:
        """Keep a piece of code; when it is whole, or cannot be had, do what was ordered meanwhile."""
        assert self.disk is not None and self.connection is not None and self.place is not None
        try:
            ready: list[AwaitedStart] = self.disk.take(part)
        except (OSError, ExecutorError, tarfile.TarError) as error:
            for one in self.disk.give_up(part.digest):
                self.send_failure(one.order.start, f"its code cannot be had: {error}", error, own_disk=True)
            return
        for one in ready:
            for order in (one.order, *one.later):
                self.obey_for(order, self.place, self.connection)

    def obey_for(self, order: StartOrder, place: LocalPlace, connection: BeatingConnection) -> None:
        """Carry out an order for a start; what cannot be done here is told, and costs that start only."""
        try:
            if isinstance(order, OpenStart):
                self.open(order, place, connection)
            elif self.disk is not None and (awaited := self.disk.awaited.get(order.start)) is not None:
                awaited.later.append(order)
            elif (start := self.starts.get(order.start)) is not None:
                self.change(start, order)
        except Exception as error:
            traceback.print_exc()
            self.send_failure(order.start, f"{type(error).__name__}: {error}", error)

    def send_failure(self, start: str, failure: str, error: Exception, own_disk: bool = False) -> None:
        """Tell why a start cannot be here; a host that is to blame leaves, so that others are asked instead."""
        assert self.connection is not None
        is_hosts = is_hosts_trouble(error, self.settings.state_dir, own_disk)
        known = self.starts.get(start)
        if known is None:
            self.connection.send(StartState("state", start, "", failure, True, is_hosts))
        else:
            known.fail(failure, is_hosts)
        if is_hosts:
            self.leave(failure, self.settings.notice_s)

    def open(self, order: OpenStart, place: LocalPlace, connection: BeatingConnection) -> None:
        """Be ready for processes of a start, once its code is here."""
        if not order.code:
            start = open_start(place, order, connection)
        elif self.disk is None:
            raise ExecutorError("code was sent to a host that sees the home")
        elif self.disk.has_code(order):
            start = open_start(place, self.disk.rehome(order), connection, on_own_disk=True)
        else:
            return
        start.variables = {**start.variables, **self.memory.open(order, time.monotonic())}
        self.starts[order.start] = start

    def change(self, start: GuestStart, order: StartOrder) -> None:
        """Carry out an order for a start that is here."""
        processes = start.processes
        match order:
            case SpawnWorker():
                variables = {**order.variables, **start.variables}
                processes.start(order.process, order.device, variables, order.visible)
            case PassCommand() if order.process in processes.by_name:
                processes.write(order.process, order.message)
            case SendSignal() if order.process in processes.by_name:
                process = processes.by_name[order.process]
                process.kill() if order.number == signal.SIGKILL else process.signal(order.number)
            case EndStart(say="kill"):
                start.kill()
            case EndStart():
                processes.close()
                del self.starts[start.name]
            case _:  # for a process that is not here
                pass

    # Time.

    def turn(self, wait_s: float) -> None:
        """Handle what happens within a moment, and tell the lead what has changed."""
        self.loop.turn(wait_s)
        if self.is_told_to_go:
            self.leave("it was told to go", self.settings.notice_s)
        self.check_devices()
        now_s = time.monotonic()
        if now_s - self.inspected_s >= INSPECT_S:
            self.inspected_s = now_s
            jobs = {start.processes.job for start in self.starts.values()}
            self.machine.inspect(now_s, jobs)
            self.memory.sweep(jobs, now_s)
            self.sweep_disk(now_s)
        dropped, trouble = self.forks.poll(now_s), self.forks.find_trouble()
        for start in list(self.starts.values()):
            if start.processes.has_fork(dropped):
                start.processes.lose_fork()
            if self.connection is not None:
                start.tick(now_s, self.settings.times.sample_s, bool(trouble))
        if trouble:
            self.leave(trouble, self.settings.notice_s)
        if self.connection is not None:
            load = self.meter.look(now_s)
            if load is not None:
                self.connection.send(HostLoaded("loaded", load.cores, load.outside, load.slowdown))
            self.connection.flush()

    def sweep_disk(self, now_s: float) -> None:
        """Remove what no start needs here any more; what cannot be looked at now is looked at again."""
        specs = [start.processes.spec for start in self.starts.values()]
        with contextlib.suppress(OSError):
            if self.disk is not None:
                self.disk.sweep({folder for spec in specs for folder in (spec.folder, str(spec.home_dir))}, now_s)

    def check_devices(self) -> None:
        """Have the guests leave where a GPU is gone or back, and then join with those that are there."""
        found = None if self.leaving else self.watch.take_change()
        if found is None:
            return
        if self.connection is None:  # nobody has been told of them
            self.discovery = Discovery(found)
        else:
            self.renewal = Discovery(found)
            self.leave(describe_change(find_gpus(self.discovery), found), self.settings.notice_s)

    def end_guests(self) -> None:
        """End all guests, and wait until they are gone: whoever dials next has none."""
        for start in self.starts.values():
            start.kill()
        while any(not start.processes.are_gone for start in self.starts.values()):
            self.turn(BUSY_TURN_S)
        for start in self.starts.values():
            start.processes.close()
        self.starts.clear()

    def leave(self, reason: str, notice_s: float) -> None:
        """Go when the guests have left, or their time is up."""
        if not self.leaving:
            print(f"host agent {os.getpid()} leaves: {reason}", flush=True)
            self.leaving, self.until_s = reason, time.monotonic() + notice_s
            if self.connection is not None and notice_s:
                self.connection.send(Leaving("leaving", notice_s, reason))

    def close(self) -> None:
        """End everything that was started."""
        self.end_guests()
        self.beats.close()
        self.watch.close()
        self.machine.close()
        self.memory.close()


def choose_network(route: Route, environ: Mapping[str, str]) -> dict[str, str]:
    """What processes here are told of the network: by the route, unless the host's own environment says otherwise."""
    return {name: environ.get(name, value) for name, value in route.variables.items()}


def run(settings: HostSettings) -> int:
    """Serve until told to go; 0 also if another agent of this host's name has the state folder."""
    lock = try_lock(settings.state_dir / LOCK)
    if lock is None:
        return 0
    keep_from_cleaners(settings.state_dir)
    adopt_orphans()
    with lock:
        own_disk.clear(settings.state_dir)
        try:
            check_fitness(settings.name, settings.state_dir)
            serve(settings)
        except RefusedError as error:
            print(f"refused: {error}", flush=True)
            return 2
        finally:
            (settings.state_dir / HOSTS).unlink(missing_ok=True)  # the token, if it was put there
    return 0


def serve(settings: HostSettings) -> None:
    """Serve until told to go, and leave nothing behind."""
    agent = HostAgent(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: setattr(agent, "is_told_to_go", True))
    try:
        agent.serve()
    finally:
        if agent.is_told_to_go:
            note_leave(settings.state_dir, settings.node)
        agent.close()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description="Run the processes of a lead elsewhere on this host.")
    parser.add_argument("--home", type=Path, required=True, help="the server's, on storage that all hosts share")
    parser.add_argument("--name", default=socket.gethostname())
    parser.add_argument("--cpu-slots")
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--detach", action="store_true", help="print the id of the process that serves, and return")
    parser.add_argument("--notice-s", type=float, default=30.0)
    parser.add_argument("--look-s", type=float, default=LOOK_S, help="how often the GPUs are looked for")
    parser.add_argument("--node", default="", help="where it is started again unless it was told to go")
    parser.add_argument("--times", type=TypeAdapter(BeatTimes).validate_json, default=BeatTimes(), help="as JSON")
    given = parser.parse_args()
    home = given.home.resolve()
    state_dir = given.state_dir.resolve() if given.state_dir is not None else make_state_dir(home, given.name)
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # Ray starts its workers, and so us, as those who wait for all others
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if given.detach:
        detach()
    settings = HostSettings(home, given.name, given.cpu_slots, state_dir, given.times)
    sys.exit(run(replace(settings, notice_s=given.notice_s, look_s=given.look_s, node=given.node)))


if __name__ == "__main__":
    main()
