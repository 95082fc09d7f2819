"""A control plane on clocks that are moved by hand: real store, real policy, fake processes."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from springtide.client.packing import pack
from springtide.control.scheduling.machines.inventory import join_inventories, make_inventory
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission, find_checkpoint
from springtide.control.storage.archives import unpack
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import check_job
from springtide.executors.fake import FakeExecutor, FakeJob
from springtide.executors.protocol import Probe, Start

POLICY = "springtide"


@dataclass(slots=True)
class HandClocks:
    """Clocks moved by hand: `pass_s` lets time pass, setting `wall` alone is a jump of the wall clock."""

    wall: float = 1_800_000_000.0
    steady: float = 0.0
    boot: str = "hand"

    def wall_s(self) -> float:
        """Seconds since 1970 as set."""
        return self.wall

    def steady_s(self) -> float:
        """Seconds let pass."""
        return self.steady

    def origin(self) -> str:
        """A name that stays until it is set."""
        return self.boot

    def pass_s(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.wall += seconds
        self.steady += seconds


class ScriptedExecutor(FakeExecutor):
    """Jobs behave as the last word of their command says, since their ids are not known beforehand."""

    def __init__(self, scripts: dict[str, FakeJob]) -> None:
        super().__init__()
        self.scripts = scripts
        #: Devices on nodes that are gone, or about to go: what is started there waits.
        self.away: set[str] = set()

    def obey(self, instruction):  # type: ignore[no-untyped-def]
        if isinstance(instruction, Start | Probe):
            self.behaviours[instruction.job] = self.scripts.get(instruction.spec.argv[-1], FakeJob())
        super().obey(instruction)

    def advance(self, seconds: float) -> None:
        for run in self.runs.values():
            if run.starting and self.away & {*run.devices}:
                run.ready_s = self.now_s + seconds + run.behaviour.startup_s
        super().advance(seconds)


@dataclass
class HandClockServer:
    """One server's life; `restart` begins the next one on the same state directory and executor."""

    folder: Path
    devices: int = 2
    nodes: int = 1
    scripts: dict[str, FakeJob] = field(default_factory=dict)
    options: ServerOptions = field(default_factory=lambda: ServerOptions(policy=POLICY))
    database: str | None = None
    types: tuple[str, ...] = ("cpu",)  # the devices of each are named after it
    stream: str = ""

    def __post_init__(self) -> None:
        self.source = HandClocks()
        self.executor = ScriptedExecutor(self.scripts)
        self.executor.now_s = self.source.wall
        self.state_dir = StateDir(self.folder / "home").make()
        self.open()

    def open(self) -> None:
        """Start a server."""
        self.store = Store(self.database or f"sqlite:///{self.state_dir.database}")
        site = join_inventories(
            [
                make_inventory(device_type, [f"{device_type}:{k}" for k in range(self.devices)], self.nodes)
                for device_type in self.types
            ]
        )
        site = replace(site, weights=self.options.weights)
        parts = (self.store, self.executor, site, self.state_dir, self.source, self.options)
        self.reconciler = Reconciler(*parts, self.stream)
        self.operations = Operations(self.reconciler)

    def restart(self) -> None:
        """What a kill -9 and a new start do: all that is not stored is gone."""
        self.store.close()
        self.open()

    def code(self) -> str:
        """The hash of a small unpacked working directory."""
        workdir = self.folder / "work"
        workdir.mkdir(exist_ok=True)
        (workdir / "train.py").write_text("print('hello')\n")
        archive = pack(workdir)
        unpack(archive.data, self.state_dir.code / archive.code_hash)
        return archive.code_hash

    def submit(self, accept_offer: bool = False, user: str = "ann", **keys: object) -> JobRecord:
        """Submit a job and take one step; returns its record."""
        job = check_job({"run": "python train.py", **keys}, "test")
        future = self.reconciler.call(
            lambda: self.operations.submit(Submission(job, self.code(), user, accept_offer=accept_offer))
        )
        self.reconciler.step()
        return self.job(future.result(timeout=0))

    def job(self, job_id: str) -> JobRecord:
        """A job's record as stored."""
        record = self.store.job(job_id)
        assert record is not None
        return record

    def find_step(self, job_id: str) -> int:
        """The step from which a job would go on, looked for as whoever asks does it."""
        record = self.job(job_id)
        return find_checkpoint(record, self.state_dir, self.store.find_run_as(record.owner))

    def pass_s(self, seconds: float, by_s: float = 0.5) -> None:
        """Let time pass, in small steps of the reconciler."""
        for _ in range(round(seconds / by_s)):
            self.source.pass_s(by_s)
            self.executor.advance(by_s)
            self.reconciler.step()

    def event_kinds(self, job_id: str) -> list[str]:
        """The kinds of a job's events in order."""
        return [event.kind for event in self.store.events(job_id)]
