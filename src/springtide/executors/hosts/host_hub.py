"""The lead's side of a cluster: hosts that have joined, their devices, and the starts of jobs that run there.

Hosts dial in and prove that they know the token. A host that is silent, or whose connection ends, is lost with all its
devices: its guests count as killed, and `NodeLost` is told. When it comes back it is a new host that has no guests.
"""

import contextlib
import hmac
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from pathlib import Path

from springtide import __version__
from springtide.executors.delivery import EventFields
from springtide.executors.hosts.beating_connections import BeatingConnection, BeatSender
from springtide.executors.hosts.guest_processes import GuestProcesses, GuestReport, LastStart
from springtide.executors.hosts.host_messages import (
    Admission,
    Beat,
    BeatTimes,
    Challenge,
    HostLoaded,
    Introduction,
    Leaving,
    Ready,
    Rejection,
    ServerIntroduction,
    ToHost,
    ToLead,
    WantCode,
    Welcome,
    prove,
    read_report,
)
from springtide.executors.hosts.host_roll import HostRoll, RollEntry
from springtide.executors.hosts.lead_address import WITNESS, find_key, listen_for_hosts
from springtide.executors.hosts.packed_code import PackedCode
from springtide.executors.local.discovery import Device
from springtide.executors.local.jobs.places import LocalPlace, find_host
from springtide.executors.local.paths import open_private
from springtide.executors.protocol import (
    Event,
    ExecutorNode,
    Failed,
    Finished,
    JobSpec,
    MachineLoaded,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeLost,
    Stopped,
)
from springtide.executors.wire import describe_problem

#: Lines of those that have not yet proved themselves.
MOST_STRANGERS = 64
#: Jobs whose last start is known.
MOST_STARTS = 10_000
#: A host that has been lost for so long is forgotten, unless a job waits for it; and reasons that are kept.
FORGET_S = 86_400.0
MOST_REFUSED = 100
#: After a host has hung up, how long its guests may take to end.
END_S = 1.0
#: Events of nodes are no job's.
NOBODY: EventFields = {"job": "", "generation": 0}


@dataclass(eq=False)
class Caller:
    """Whoever has connected: a stranger, until it is a host that has `joined`."""

    connection: BeatingConnection
    nonce: str
    since_s: float
    host: str = ""
    joined: bool = False


@dataclass
class KnownHost:
    """A host that has joined, now or before."""

    name: str
    address: str
    devices: tuple[Device, ...]
    caller: Caller | None = None
    sees_home: bool = True
    #: It has said that it goes: what it does is ended, and nothing more is started there.
    is_leaving: bool = False
    #: How the node of each type is called of which it has, or ever had, a device: whatever comes and goes, names stay.
    nodes: dict[str, str] = field(default_factory=dict)
    #: When what ran there has ended at the latest, if it is lost.
    cleared_s: float = 0.0

    def __post_init__(self) -> None:
        types = list(dict.fromkeys(device.type for device in self.devices))
        is_plain = len(types) == 1 and not self.nodes
        named = {one: self.name if is_plain else f"{self.name}.{one}" for one in types}
        self.nodes = {**named, **self.nodes}

    @property
    def is_here(self) -> bool:
        """Whether it is connected now."""
        return self.caller is not None

    def list_nodes(self) -> tuple[ExecutorNode, ...]:
        """The host as nodes of one device type each: by its own name, or with the type where it came with several."""
        types = list(dict.fromkeys(device.type for device in self.devices))
        return tuple(
            ExecutorNode(
                self.nodes[one], one, tuple(device.name for device in self.devices if device.type == one), self.is_here
            )
            for one in types
        )


class HostHub:
    """The hosts of a lead; a `ProcessPlace` for the processes of its jobs."""

    def __init__(
        self,
        local: LocalPlace,
        home: Path,
        host: str,
        emit: Callable[[Event], None],
        times: BeatTimes | None = None,
        storage: str = "",
    ) -> None:
        self.loop = local.loop
        #: This machine, which holds the stores of jobs at the address that hosts know.
        self.local = replace(local, network={"SPRINGTIDE_ADDRESS": host})
        self.emit = emit
        self.times = times or BeatTimes()
        #: Where what jobs leave lies, if that is not the home: hosts that do not see it may join then.
        self.storage = storage
        self.code = PackedCode(local.folder / "code")
        self.listener, self.lead = listen_for_hosts(home, host)
        self.key = find_key(home)
        #: Who takes the connection of a server on another machine; None: there is no server.
        self.on_server: Callable[[socket.socket], None] | None = None
        self.witness, self.content = home / WITNESS, secrets.token_hex(16)
        with open(self.witness, "w", opener=open_private) as file:
            file.write(self.content)
        self.hosts: dict[str, KnownHost] = {}
        #: By name, those of hosts that are lost too: a job may wait for them.
        self.devices: dict[str, Device] = {}
        self.callers: list[Caller] = []
        self.starts: dict[str, GuestProcesses] = {}
        #: The last start of each job, by which the next one knows whose copies in memory are the newest.
        self.last_starts: dict[str, LastStart] = {}
        #: Why hosts were not taken, by name.
        self.refused: dict[str, str] = {}
        self.numbers = count()
        self.roll = HostRoll(home)
        self.call_roll()
        self.beats = BeatSender(self.times.beat_s)
        self.loop.watch(self.listener, self.accept)

    def call_roll(self) -> None:
        """Expect the hosts that the lead before us had; those that do not come are told as lost."""
        for host in self.roll.found or ():
            self.hosts[host.name] = KnownHost(host.name, host.address, host.devices, nodes=host.nodes)
            self.devices.update({device.name: device for device in host.devices})
        self.missing = set(self.hosts)
        self.called_s = time.monotonic()

    def write_roll(self) -> None:
        """Write down whose guests may be there, for the lead after us."""
        now_s = time.monotonic()
        there = [one for one in self.hosts.values() if self.may_have_guests(one, now_s)]
        lost = (one.cleared_s for one in there if not one.is_here and one.name not in self.missing)
        entries = [RollEntry(one.name, one.address, one.devices, one.nodes) for one in there]
        self.roll.write(entries, min(lost, default=inf), now_s)

    def may_have_guests(self, host: KnownHost, now_s: float) -> bool:
        """Whether processes of ours, or of the lead before us, may be on a host."""
        return host.is_here or host.name in self.missing or host.cleared_s > now_s

    # As a place.

    def open(self, job: str, spec: JobSpec) -> GuestProcesses:
        """What a new start of a job has: no process yet."""
        start = f"{job}/{self.content[:8]}-{next(self.numbers)}"
        before = self.last_starts.pop(job, None)
        if before is not None and before.heard == 0:
            before = before.past
        own = self.last_starts[job] = LastStart(start, past=before)
        if before is not None:
            before.past = None
        processes = self.starts[start] = GuestProcesses(self, job, spec, own, before)
        if len(self.last_starts) > MOST_STARTS:
            del self.last_starts[next(iter(self.last_starts))]
        return processes

    def note(self, event: Event) -> None:
        """A job that has ended and is begun again by its user goes on from what is on disk, which may be his doing."""
        if isinstance(event, Finished | Failed) or (isinstance(event, Stopped) and event.cancelled):
            self.last_starts.pop(event.job, None)

    def can_reach(self, devices: Collection[str]) -> bool:
        """Whether the hosts of these devices are there now, and stay: what is started on one that goes is lost.

        And whether nothing that the lead before us has started can still run on a host that has not come back: nobody
        here knows which jobs were there. The lead after us must know these hosts as well, so they are on the roll.
        """
        if (self.missing or self.roll.found is None) and time.monotonic() < self.called_s + self.times.clear_s:
            return False
        hosts = {find_host(device) for device in devices}
        return hosts <= self.roll.names and all(self.is_here(one) and not self.hosts[one].is_leaving for one in hosts)

    def list_awaited(self, devices: Collection[str]) -> list[str]:
        """Those of these devices whose host is not known, or not any more: a job waits for it, as for one that is lost.

        The lead forgets hosts by itself, and those that count with a node may learn of it later.
        """
        return [name for name in devices if find_host(name) and find_host(name) not in self.hosts]

    def is_here(self, host: str) -> bool:
        """Whether a host is there now."""
        known = self.hosts.get(host)
        return known is not None and known.is_here

    def sees_home(self, host: str) -> bool:
        """Whether a host has the home before it; one that is lost is not asked."""
        known = self.hosts.get(host)
        return known is None or known.sees_home

    def send(self, host: str, message: ToHost) -> None:
        """Send a message to a host, if it is there."""
        known = self.hosts.get(host)
        if known is not None and known.caller is not None:
            known.caller.connection.send(message)

    def list_nodes(self) -> list[ExecutorNode]:
        """All nodes, those that are lost too."""
        return [node for _, known in sorted(self.hosts.items()) for node in known.list_nodes()]

    # Callers.

    def accept(self) -> None:
        """Take a stranger's connection, and ask who it is."""
        with contextlib.suppress(OSError):
            sock, _ = self.listener.accept()
            if sum(not one.joined for one in self.callers) >= MOST_STRANGERS:
                sock.close()
                return
            caller = Caller(BeatingConnection(sock), secrets.token_hex(16), time.monotonic())
            self.callers.append(caller)
            self.loop.watch(caller.connection, lambda: self.read(caller))
            caller.connection.send(Challenge("challenge", caller.nonce))

    def read(self, caller: Caller) -> None:
        """Act on what a host says; what is no message of ours ends its connection."""
        try:
            for message in caller.connection.read():
                self.hear(caller, read_report(message))
        except ValueError as error:
            self.end(caller, f"it said what cannot be: {describe_problem(error)}")
        if not caller.connection.open:
            self.end(caller, caller.connection.nonsense or "its connection ended")

    def hear(self, caller: Caller, report: ToLead) -> None:
        """Act on one message."""
        match report:
            case Introduction():
                self.meet(caller, report)
            case ServerIntroduction():
                self.admit(caller, report)
            case _ if not caller.host:
                raise ValueError("something before it has introduced itself")
            case Ready():
                self.join(caller, report)
            case Rejection(reason=reason):
                self.refuse(caller, reason)
            case Beat():
                pass
            case _ if not caller.joined:
                raise ValueError("something before it was ready")
            case Leaving():
                self.hosts[caller.host].is_leaving = True
                for node in self.hosts[caller.host].list_nodes():
                    self.emit(NodeLeaving(**NOBODY, node=node.name, grace_s=report.grace_s, reason=report.reason))
            case HostLoaded():
                self.report_load(caller.host, report)
            case WantCode():
                caller.connection.send(self.code.read(report.digest, report.offset))
            case _:
                start = self.starts.get(report.start)
                if start is not None:
                    self.hear_of_guests(start, caller.host, report)

    def hear_of_guests(self, start: GuestProcesses, host: str, report: GuestReport) -> None:
        """Act on what a host tells of a start; what cannot be done with it here, as on a full disk, costs no host."""
        try:
            start.hear(host, report)
        except ValueError:
            raise
        except Exception:
            traceback.print_exc()

    def report_load(self, host: str, load: HostLoaded) -> None:
        """Tell what others take of a host."""
        devices = tuple(device.name for device in self.hosts[host].devices)
        cores, outside, slowdown = load.cores, load.outside, load.slowdown
        self.emit(
            MachineLoaded(**NOBODY, machine=host, devices=devices, cores=cores, outside=outside, slowdown=slowdown)
        )

    def meet(self, caller: Caller, said: Introduction) -> None:
        """Judge a stranger."""
        expected = prove(self.lead.token, "host", caller.nonce, said.nonce, said.host)
        if not hmac.compare_digest(expected, said.proof):
            self.refuse(caller, f"the token of {said.host} is not this cluster's; take it from the lead's home")
            return
        caller.host = said.host
        known = self.hosts.get(said.host)
        if said.version != __version__:
            self.refuse(
                caller,
                f"host {said.host} has springtide {said.version}, the lead has {__version__}; "
                f"install springtide=={__version__} there",
            )
        elif known is not None and known.is_here:
            self.refuse(caller, f"a host named {said.host} is here already; give this one another name", again=True)
        else:
            caller.connection.trust()
            proof = prove(self.lead.token, "lead", said.nonce, caller.nonce)
            caller.connection.send(Welcome("welcome", proof, str(self.witness), self.content, self.storage))

    def admit(self, caller: Caller, said: ServerIntroduction) -> None:
        """Have a server on another machine ask as one on this machine does: its connection is no host's any more."""
        if caller.host or self.on_server is None:
            raise ValueError("that it is a server, which nobody waits for")
        if not hmac.compare_digest(prove(self.key, "server", caller.nonce, said.nonce), said.proof):
            self.refuse(caller, "a server that does not know the key of this home")
            return
        caller.connection.send(Admission("admission", prove(self.key, "lead", said.nonce, caller.nonce)))
        self.callers.remove(caller)
        self.loop.unwatch(caller.connection)
        self.on_server(caller.connection.socket)

    def refuse(self, caller: Caller, reason: str, again: bool = False) -> None:
        """Do not take a host."""
        if caller.host:
            self.refused[caller.host] = reason
            if len(self.refused) > MOST_REFUSED:
                del self.refused[next(iter(self.refused))]
        print(f"a host was not taken: {reason}", flush=True)
        caller.connection.send(Rejection("rejection", reason, again))
        self.end(caller, reason)

    def join(self, caller: Caller, ready: Ready) -> None:
        """A host serves."""
        known = self.hosts.get(caller.host)
        if caller.joined or (known is not None and known.is_here):
            raise ValueError("that it is ready, twice")
        caller.joined = True
        devices = tuple(
            Device(f"{caller.host}/{one.name}", one.type, one.uuid, one.memory_gib) for one in ready.devices
        )
        self.refused.pop(caller.host, None)
        self.beats.add(caller.connection)
        nodes = {} if known is None else known.nodes
        known = KnownHost(caller.host, ready.address, devices, caller, ready.sees_home, nodes=nodes)
        self.hosts[caller.host] = known
        self.missing.discard(caller.host)
        self.forget_devices(caller.host)
        self.devices.update({device.name: device for device in devices})
        for node in known.list_nodes():
            self.emit(NodeJoined(**NOBODY, node=node.name, device_type=node.device_type, devices=node.devices))
        self.write_roll()

    def forget_devices(self, host: str) -> None:
        """The devices of a host are what it says now, not what it said before."""
        for name in [name for name in self.devices if find_host(name) == host]:
            del self.devices[name]

    # Losses.

    def end(self, caller: Caller, reason: str) -> None:
        """Let go of a connection; its host, if it had joined, is lost.

        One that has hung up ends its guests, or has ended with them. Any other may not know yet that it is lost: its
        connection broke on this side only, or was given up here.
        """
        if caller not in self.callers:
            return
        self.callers.remove(caller)
        self.loop.unwatch(caller.connection)
        has_hung_up, heard_s = caller.connection.has_hung_up, caller.connection.heard_s
        caller.connection.close()
        if caller.joined:
            cleared_s = time.monotonic() + END_S if has_hung_up else heard_s + self.times.clear_s
            self.lose(self.hosts[caller.host], reason, cleared_s)

    def lose(self, known: KnownHost, reason: str, cleared_s: float) -> None:
        """Tell that a host is gone, and end what ran there."""
        nodes = known.list_nodes()
        known.caller, known.cleared_s = None, cleared_s
        for node in nodes:
            self.emit(NodeLost(**NOBODY, node=node.name, reason=reason))
        for start in list(self.starts.values()):
            start.lose_host(known.name, cleared_s)
        self.write_roll()

    def tick(self, now_s: float) -> None:
        """Give up hosts that are silent and strangers that say nothing; send what is left over."""
        if self.missing and now_s - self.called_s >= self.times.meet_s:
            missing, self.missing = self.missing, set()
            for host in sorted(missing):
                self.lose(self.hosts[host], f"host {host} has not come back to a new lead", now_s)
        if now_s >= self.roll.due_s:
            self.write_roll()  # else the next lead, perhaps in a week, would wait for hosts that left long ago
        for caller in list(self.callers):
            silent_s = now_s - caller.connection.heard_s
            if caller.joined and silent_s >= self.times.lost_s:
                self.end(caller, f"host {caller.host} has not been heard for {silent_s:.1f} s")
            elif not caller.joined and now_s - caller.since_s >= self.times.meet_s:
                self.end(caller, "it said nothing")
            else:
                caller.connection.flush()

    def forget_lost(self, awaited: Collection[str], now_s: float) -> None:
        """Forget the hosts that were lost long ago, while others are here: clouds and pods have new names every day.

        `awaited` are the devices of all jobs, some of which may wait until one is back.
        """
        waiting = {find_host(device) for device in awaited} | self.missing
        past = [one for one in self.hosts.values() if not one.is_here and now_s - one.cleared_s >= FORGET_S]
        if not any(one.is_here for one in self.hosts.values()):
            return
        for known in past:
            if known.name not in waiting:
                del self.hosts[known.name]
                self.forget_devices(known.name)
                for node in dict.fromkeys(known.nodes.values()):
                    self.emit(NodeForgotten(**NOBODY, node=node))

    def close(self) -> None:
        """Send all hosts away."""
        self.beats.close()
        self.loop.unwatch(self.listener)
        self.listener.close()
        for caller in self.callers:
            caller.connection.send(Rejection("rejection", "the lead ends"))
            with contextlib.suppress(OSError):
                caller.connection.socket.shutdown(socket.SHUT_WR)
            self.loop.unwatch(caller.connection)
            caller.connection.close()
