"""One attempt at running a job: its processes, which of them has which rank and device, and changes of these.

An attempt begins with a store to meet at and ends with its last process. It knows how to start and how to change in
place: processes on devices that stay keep running and keep their order, so that the fewest logical workers change
hands; new processes for the other devices follow them. When to change, and what follows from its end, is in `runner`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from springtide.executors.local.discovery import Device
from springtide.executors.local.jobs import environment
from springtide.executors.local.jobs.exit_causes import ExitCause, ExitEvidence, find_cause, find_end_cause
from springtide.executors.local.jobs.hangs import Patience, ProcessSample
from springtide.executors.local.jobs.places import ProcessPlace, find_host
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.json_connections import Message
from springtide.executors.local.processes.cgroups import GroupLimits
from springtide.executors.local.processes.fork_servers import ForkBudget
from springtide.executors.local.processes.worker_processes import STORE, WorkerProcess
from springtide.executors.protocol import Event, Probe
from springtide.training.group.rosters import Roster, make_roster, spread
from springtide.training.settings import NO_TRACKERS, Settings, write_settings


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """The agent's times and limits."""

    patience: Patience = field(default_factory=Patience)
    #: A script must have called `springtide.init` by then.
    init_s: float = 60.0
    report_s: float = 1.0
    #: After a failure, how long to listen for the one that explains it.
    settle_s: float = 0.5
    inspect_s: float = 1.0
    #: Restarts in a row without a new step before a job is given up.
    futile: int = 20
    #: The least grace after SIGTERM, and the speed reckoned for writing a checkpoint.
    grace_s: float = 10.0
    write_bytes_per_s: float = 50e6
    #: What the processes of one job may use, where there are control groups.
    limits: GroupLimits = field(default_factory=GroupLimits)
    #: Fork servers that are kept though nobody uses them.
    forks: ForkBudget = field(default_factory=ForkBudget)

    def find_grace_s(self, longest_gap_s: float, checkpoint_bytes: int) -> float:
        """The least grace, plus two of the longest gaps between steps, plus three times what a checkpoint may take."""
        return self.grace_s + 2 * longest_gap_s + 3 * checkpoint_bytes / self.write_bytes_per_s


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent offers to its jobs."""

    place: ProcessPlace
    devices: Mapping[str, Device]
    emit: Callable[[Event], None]
    #: Whether a job may take devices now, or must wait until another job has left them.
    may_use: Callable[[str, Sequence[str]], bool]
    options: AttemptOptions = field(default_factory=AttemptOptions)


@dataclass(frozen=True, slots=True)
class RosterChange:
    """The roster after a change, and the device of each process that joins."""

    roster: Roster
    joiners: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Workers:
    """A job's logical workers: how many there are, and how many are asked for on each device, if anybody asked."""

    total: int
    asked: Mapping[str, int] = field(default_factory=dict)

    def spread_over(self, devices: Sequence[str]) -> tuple[int, ...]:
        """The workers of each device: as asked if that places all of them on all of these devices, else evenly.

        A mapping made for other devices, or for another number of workers than the script has, is not followed.
        """
        counts = tuple(self.asked.get(device, 0) for device in devices)
        return spread(self.total, len(devices)) if 0 in counts or sum(counts) != self.total else counts


def fit_devices(devices: Sequence[str], logical_workers: int | None) -> tuple[str, ...]:
    """The devices a job can use: one per logical worker at most, and one while their number is not known."""
    return tuple(devices[: 1 if logical_workers is None else logical_workers])


def name_from(first: int, count: int) -> list[str]:
    """So many process names, numbered from `first`."""
    return [f"p{number}" for number in range(first, first + count)]


def plan_change(held: Mapping[str, str], wanted: Sequence[str], workers: Workers, named: int) -> RosterChange:
    """The change from processes that hold devices (in rank order) to the wanted devices.

    New processes are named from `named` on. Invariant: every wanted device has one process, no other has any.
    """
    stay = [name for name, device in held.items() if device in wanted]
    kept = {held[name] for name in stay}
    fresh = [device for device in wanted if device not in kept]
    joiners = dict(zip(name_from(named, len(fresh)), fresh, strict=True))
    order = [*(held[name] for name in stay), *fresh]
    return RosterChange(make_roster(workers.spread_over(order), [*stay, *joiners]), joiners)


def find_workers(assigned: AssignedJob, expected: int | None) -> Workers | None:
    """The logical workers by the job file, as the script has said, or as expected, and where; None if unknown."""
    total = assigned.order.spec.logical_workers or assigned.logical_workers or expected
    asked = dict(zip(assigned.devices, assigned.workers, strict=False))
    return None if total is None else Workers(total, asked)


class Attempt:
    """The processes of one start, in their ranks."""

    def __init__(self, context: AgentContext, assigned: AssignedJob, restarts: int) -> None:
        self.context = context
        self.spec = assigned.order.spec
        self.is_probe = isinstance(assigned.order, Probe)
        self.restarts = restarts
        self.roster = Roster(())
        self.change: RosterChange | None = None
        #: Processes that were of rank 0 before a change.
        self.past_firsts: set[str] = set()
        self.round = 0
        self.named = 0
        self.store = ""
        self.began_s = time.monotonic()
        #: Once all was killed: when it should have ended by; infinite when that was said.
        self.overdue_s: float | None = None
        #: Exit codes in the order in which the processes ended; the store's is not among them.
        self.codes: dict[str, int] = {}
        self.processes = context.place.open(assigned.order.job, self.spec)
        self.processes.start_store()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in use, in rank order."""
        return tuple(self.held.values())

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the processes, in rank order."""
        return tuple(find_host(device) for device in self.devices)

    @property
    def held(self) -> dict[str, str]:
        """The device of each process, in rank order."""
        return {name: self.processes.by_name[name].device for name in self.roster.names}

    @property
    def ranked(self) -> list[WorkerProcess]:
        """The processes of the roster, in rank order."""
        return [self.processes.by_name[name] for name in self.roster.names]

    @property
    def connected(self) -> bool:
        """Whether any process has called `springtide.init`."""
        return any(process.connected for process in self.ranked)

    def meet(self, store: str, devices: Sequence[str], workers: Workers | None) -> None:
        """The store serves: start the processes that meet there.

        Without a number of logical workers there is one process, which holds them all; a gang shares them itself.
        """
        self.store = store
        names = name_from(0, len(devices))
        self.named = len(names)
        known = workers.spread_over(devices) if self.spec.elastic and workers is not None else None
        self.roster = make_roster(known or [1] * len(names), names)
        for rank, (name, device) in enumerate(zip(names, devices, strict=True)):
            variables = self.write_variables(Settings(process=name, roster=str(self.roster) if known else None))
            if self.spec.elastic:
                self.spawn(name, device, variables)
            else:
                hosts = [find_host(other) for other in devices]
                gang = environment.write_torchrun(rank, hosts, self.store, self.restarts)
                beside = [other for other in devices if find_host(other) == find_host(device)]
                self.spawn(name, device, {**variables, **gang}, beside)

    def write_variables(self, own: Settings) -> dict[str, str]:
        """The variables for the training runtime: the job's, and this process's own."""
        whole = replace(
            self.make_settings(),
            process=own.process,
            roster=own.roster,
            generation=own.generation,
            joining=own.joining,
            store=self.store,
        )
        return write_settings(whole)

    def make_settings(self) -> Settings:
        """What the training runtime is told, but for what differs from process to process."""
        settings = environment.make_settings(self.spec)
        return replace(settings, track=NO_TRACKERS) if self.is_probe else settings

    def find_variables(self, device: str) -> dict[str, str]:
        """The variables of every process on a device, beside those of the device itself."""
        probe = {"SPRINGTIDE_PROBE": "1"} if self.is_probe else {}
        return {**probe, **environment.name_folders(self.spec)}

    def spawn(self, name: str, device: str, runtime: Mapping[str, str], visible: Sequence[str] = ()) -> None:
        """Start one process on one device, with these variables for the training runtime; a gang's sees all of it."""
        self.processes.start(name, device, {**self.find_variables(device), **runtime}, visible or (device,))

    def is_mapped(self, workers: Workers) -> bool:
        """Whether the processes hold the workers they should, as far as their number was known when they started."""
        known = self.roster.logical_workers == workers.total
        return not known or self.roster.counts == workers.spread_over(self.devices)

    def begin_change(self, devices: Sequence[str], workers: Workers) -> None:
        """Ask for other devices, in place: joiners start, and rank 0 is told to let them in."""
        self.round += 1
        change = self.change = plan_change(self.held, devices, workers, self.named)
        self.named += len(change.joiners)
        # Rank 0 changes the roster at a step boundary once all joiners are ready to receive state; if one is lost
        # before, the attempt ends as if any process had been lost.
        for name, device in change.joiners.items():
            settings = Settings(process=name, roster=str(change.roster), generation=self.round, joining=True)
            self.spawn(name, device, self.write_variables(settings))
        self.command({"do": "rescale", "generation": self.round, "roster": str(change.roster)})

    @property
    def can_change(self) -> bool:
        """Whether rank 0 can be told of a change."""
        return self.ranked[0].is_listening

    def complete_change(self) -> None:
        """The change has been made."""
        if self.change is not None:
            self.past_firsts.update(self.roster.names[:1])
            self.roster, self.change = self.change.roster, None

    def command(self, message: Message) -> None:
        """Send a command to the process of rank 0."""
        self.processes.write(self.roster.names[0], message)

    def speaks_for_all(self, process: WorkerProcess) -> bool:
        """Whether a process is of rank 0, now or after the change under way."""
        coming = self.change.roster.names[:1] if self.change is not None else ()
        return process.name in {*self.roster.names[:1], *coming}

    def is_takeover(self, process: WorkerProcess) -> bool:
        """Whether a joiner is to be rank 0: all old processes leave, and none of them can say `resized`."""
        change = self.change
        return change is not None and process.name in change.joiners and process.name == change.roster.names[0]

    def rank_of(self, process: WorkerProcess) -> int:
        """The rank of a process, or its rank to be; that of one that has left is 0."""
        for roster in (self.roster, self.change.roster if self.change is not None else self.roster):
            if process.name in roster.names:
                return roster.rank_of(process.name)
        return 0

    def add_exit(self, process: WorkerProcess) -> bool:
        """Keep the code of a process that has ended; False if it has left as it should."""
        if process.name == STORE:
            return True
        staying = self.change.roster.names if self.change is not None else self.roster.names
        has_left = process.name not in staying and (process.code == 0 or process.name not in self.roster.names)
        if not has_left and process.code is not None:
            self.codes[process.name] = process.code
        return not has_left

    def is_done(self, finished: bool) -> bool:
        """Whether every process of the roster has ended, and not because all of them have handed over to joiners."""
        gone = bool(self.roster.names) and not any(process.is_alive for process in self.ranked)
        return gone and (bool(self.codes) or finished)

    def find_cause(self, finished: bool) -> ExitCause:
        """Why the processes have ended that have ended so far."""
        for name, code in self.codes.items():
            if self.processes.by_name[name].is_starved:
                return ExitCause("out_of_memory", name, code)
        if self.is_done(finished):
            return find_end_cause(self.codes, ExitEvidence(finished, self.connected, self.spec.elastic))
        store = self.processes.by_name[STORE]
        return find_cause(self.codes) or ExitCause("early_exit" if store.is_alive else "store_lost")

    def sample(self) -> list[ProcessSample]:
        """Samples of the roster's processes."""
        return [sample for process in self.ranked if (sample := process.sample()) is not None]
