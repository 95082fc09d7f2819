"""One attempt at running a job: its processes, which of them has which rank and device, and changes of these.

An attempt begins with a store to meet at and ends with its last process. It knows how to start and how to change in
place; when to, and what follows from its end, is in `crews`.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from springtide.executors.local.discovery import Device, choose_kernels, choose_visible
from springtide.executors.local.jobs import environment
from springtide.executors.local.jobs.exit_causes import ExitCause, ExitEvidence, judge, judge_end
from springtide.executors.local.jobs.hangs import Patience, ProcessSample
from springtide.executors.local.jobs.roster_change import RosterChange, Workers, name_from, plan_change
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.json_lines import EventLoop, Message
from springtide.executors.local.processes.fork_servers import ForkKey, ForkLine, ForkPool
from springtide.executors.local.processes.worker_processes import STORE, Processes, WorkerProcess
from springtide.executors.protocol import Event, JobSpec, Probe
from springtide.training.group.rosters import Roster, make_roster
from springtide.training.settings import Settings, write_settings


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """The agent's times and limits."""

    patience: Patience = field(default_factory=Patience)
    #: A script must have called `springtide.init` by then.
    init_s: float = 60.0
    report_s: float = 1.0
    #: After a failure, how long to listen for the one that explains it.
    settle_s: float = 0.5
    look_s: float = 1.0
    #: Restarts in a row without a new step before a job is given up.
    futile: int = 20
    #: The least grace after SIGTERM, and the speed reckoned for writing a checkpoint.
    grace_s: float = 10.0
    write_bytes_per_s: float = 50e6

    def find_grace_s(self, longest_gap_s: float, checkpoint_bytes: int) -> float:
        """The least grace, plus two of the longest gaps between steps, plus three times what a checkpoint may take."""
        return self.grace_s + 2 * longest_gap_s + 3 * checkpoint_bytes / self.write_bytes_per_s


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent offers to its jobs."""

    loop: EventLoop
    forks: ForkPool
    #: For sockets and pipes; its path is short.
    folder: Path
    devices: Mapping[str, Device]
    #: What of the agent's environment workers may have, and the mark.
    environment: Mapping[str, str]
    python: str
    tell: Callable[[Event], None]
    #: Whether a job may take devices now, or must wait until another job has left them.
    may_take: Callable[[str, Sequence[str]], bool]
    options: AttemptOptions = field(default_factory=AttemptOptions)


_numbers = itertools.count()


def find_key(spec: JobSpec, python: str) -> ForkKey:
    """Which fork server a job needs."""
    early = environment.choose_early(spec)
    return ForkKey(spec.python or python, tuple(sorted(early.items())), spec.run_as)


def find_fork(house: AgentContext, job: str, spec: JobSpec) -> ForkLine:
    """The fork server for a job's processes."""
    key = find_key(spec, house.python)
    script = environment.find_script(spec)
    if script is None:
        return house.forks.find(key)
    own = {**environment.take_own(spec), **environment.read_secrets(spec)}
    log = Path(spec.log_dir) / "imports.log"
    return house.forks.find_for_job(job, key, Path(spec.folder) / script[0], log, own)


class Attempt:
    """The processes of one start, in their ranks."""

    def __init__(self, house: AgentContext, standing: AssignedJob, restarts: int) -> None:
        self.house = house
        self.spec = standing.order.spec
        self.is_probe = isinstance(standing.order, Probe)
        self.restarts = restarts
        self.roster = Roster(())
        self.change: RosterChange | None = None
        self.round = 0
        self.named = 0
        self.store = ""
        self.began_s = time.monotonic()
        #: Exit codes in the order in which the processes ended; the store's is not among them.
        self.codes: dict[str, int] = {}
        number = next(_numbers)
        fork = find_fork(house, standing.order.job, self.spec)
        self.processes = Processes(house.loop, fork, house.folder / f"j{number}", f"{standing.order.job}/{number}")
        self.environment = {**house.environment, **environment.find_home(self.spec), **dict(fork.key.early)}
        self.processes.spawn_store(self.environment)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in use, in rank order."""
        return tuple(self.held.values())

    @property
    def held(self) -> dict[str, str]:
        """The device of each process, in rank order."""
        return {name: self.processes.members[name].device for name in self.roster.names}

    @property
    def members(self) -> list[WorkerProcess]:
        """The processes of the roster, in rank order."""
        return [self.processes.members[name] for name in self.roster.names]

    @property
    def connected(self) -> bool:
        """Whether any process has called `springtide.init`."""
        return any(member.connected for member in self.members)

    def meet(self, store: str, devices: Sequence[str], workers: Workers | None) -> None:
        """The store serves: start the processes that meet there.

        Without a number of logical workers there is one process, which holds them all; a gang shares them itself.
        """
        self.store = store
        names = name_from(0, len(devices))
        self.named = len(names)
        spreads = self.spec.elastic and workers is not None
        counts = workers.spread_over(devices) if self.spec.elastic and workers is not None else [1] * len(names)
        self.roster = make_roster(counts, names)
        for rank, (name, device) in enumerate(zip(names, devices, strict=True)):
            words = self.write_words(Settings(process=name, roster=str(self.roster) if spreads else None))
            gang = {} if self.spec.elastic else self.write_gang(rank, devices)
            self.spawn(name, device, {**words, **gang})

    def write_gang(self, rank: int, devices: Sequence[str]) -> dict[str, str]:
        """What a process of a gang is told: torchrun's variables, and all of the gang's devices."""
        words = environment.write_torchrun(rank, len(devices), self.store, self.restarts)
        return {**words, **choose_visible([self.house.devices[name] for name in devices])}

    def write_words(self, own: Settings) -> dict[str, str]:
        """The variables for the training runtime: the job's, and this process's own."""
        whole = replace(
            self.make_settings(),
            process=own.process,
            roster=own.roster,
            generation=own.generation,
            joining=own.joining,
            store=self.store,
            control=self.processes.address,
        )
        return write_settings(whole)

    def make_settings(self) -> Settings:
        """What the training runtime is told, but for what differs from process to process."""
        return environment.make_settings(self.spec)

    def find_device_variables(self, device: str) -> dict[str, str]:
        """The variables by which a process sees its device, and is of its type."""
        found = self.house.devices[device]
        return {**choose_kernels(found), **choose_visible([found])}

    def spawn(self, name: str, device: str, words: Mapping[str, str]) -> None:
        """Start one process on one device."""
        variables = {
            **self.environment,
            **environment.take_own(self.spec),
            **environment.read_secrets(self.spec),
            **self.find_device_variables(device),
            **({"SPRINGTIDE_PROBE": "1"} if self.is_probe else {}),
            "SPRINGTIDE_OUTPUT": self.spec.output_dir,
            **words,
        }
        self.processes.spawn(WorkerProcess(name, device), self.spec, variables)

    def is_mapped(self, workers: Workers) -> bool:
        """Whether the processes hold the workers they should, as far as their number was known when they started."""
        known = self.roster.logical_workers == workers.total
        return not known or self.roster.counts == workers.spread_over(self.devices)

    def begin_change(self, devices: Sequence[str], workers: Workers) -> None:
        """Ask for other devices, in place: joiners start, and rank 0 is told to let them in."""
        self.round += 1
        change = self.change = plan_change(self.held, devices, workers, self.named)
        self.named += len(change.joiners)
        for name, device in change.joiners.items():
            settings = Settings(process=name, roster=str(change.roster), generation=self.round, joining=True)
            self.spawn(name, device, self.write_words(settings))
        self.command({"do": "rescale", "generation": self.round, "roster": str(change.roster)})

    @property
    def can_change(self) -> bool:
        """Whether rank 0 can be told of a change."""
        return self.members[0].lines is not None

    def complete_change(self) -> None:
        """The change has been made."""
        if self.change is not None:
            self.roster, self.change = self.change.roster, None

    def command(self, message: Message) -> None:
        """Send a command to the process of rank 0."""
        self.processes.write(self.roster.names[0], message)

    def speaks_for_all(self, member: WorkerProcess) -> bool:
        """Whether a process is of rank 0, now or after the change under way."""
        coming = self.change.roster.names[:1] if self.change is not None else ()
        return member.name in {*self.roster.names[:1], *coming}

    def is_takeover(self, member: WorkerProcess) -> bool:
        """Whether a joiner is to be rank 0: all old processes leave, and none of them can say `resized`."""
        change = self.change
        return change is not None and member.name in change.joiners and member.name == change.roster.names[0]

    def rank_of(self, member: WorkerProcess) -> int:
        """The rank of a process, or its rank to be; that of one that has left is 0."""
        for roster in (self.roster, self.change.roster if self.change is not None else self.roster):
            if member.name in roster.names:
                return roster.rank_of(member.name)
        return 0

    def note_end(self, member: WorkerProcess) -> bool:
        """Keep the code of a process that has ended; False if it has left as it should."""
        if member.name == STORE:
            return True
        staying = self.change.roster.names if self.change is not None else self.roster.names
        has_left = member.name not in staying and (member.code == 0 or member.name not in self.roster.names)
        if not has_left and member.code is not None:
            self.codes[member.name] = member.code
        return not has_left

    def is_done(self, finished: bool) -> bool:
        """Whether every process of the roster has ended, and not because all of them have handed over to joiners."""
        gone = bool(self.roster.names) and not any(member.is_alive for member in self.members)
        return gone and (bool(self.codes) or finished)

    def judge(self, finished: bool) -> ExitCause:
        """The verdict on the processes that have ended so far."""
        if self.is_done(finished):
            return judge_end(self.codes, ExitEvidence(finished, self.connected, self.spec.elastic))
        store = self.processes.members[STORE]
        return judge(self.codes) or ExitCause("early_exit" if store.is_alive else "store_lost")

    def look(self) -> list[ProcessSample]:
        """Samples of the roster's processes."""
        return [sample for member in self.members if (sample := member.look()) is not None]
