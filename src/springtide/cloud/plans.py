"""The values of cloud planning: the work, the limits on it, and a plan with its time, cost and chance."""

from dataclasses import asdict, dataclass, field
from typing import Any

from springtide.cloud.catalog import Machine
from springtide.cloud.spot import SpotTerms

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be trained: steps of a global batch, cut into whole logical workers where the job has them.

    `level` is the determinism level: D0 and D1 train on one device type, D2 on several by whole logical workers,
    `none` on several by batches in proportion to their speed.
    """

    model: str
    steps: int
    global_batch: int
    logical_workers: int | None = None
    level: str = "D1"
    device_memory_gib: float | None = None

    @property
    def mixes_types(self) -> bool:
        """Whether several device types may train this job together."""
        return self.level in ("D2", "none")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan must respect; None is no limit. `confidence` is how sure deadline and budget must be."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    most_usd_per_h: float | None = None
    fewest_steps_per_s: float | None = None
    spot: bool = False
    on_demand: bool = True
    mixes: bool = True
    most_nodes: int = 64
    confidence: float = 0.9
    startup_s: float = 300.0
    guess_network: bool = False
    terms: SpotTerms = field(default_factory=SpotTerms)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a search is to bring: how many plans, the front or not. Without `prune` every mix is evaluated."""

    best: int = 5
    front: bool = False
    prune: bool = True


DEFAULT_WANTED = Wanted()


@dataclass(frozen=True, slots=True)
class RentalPart:
    """Some nodes of one machine, and the samples each of their devices takes per step."""

    machine: Machine
    nodes: int
    local_batch: float

    @property
    def devices(self) -> int:
        """Devices of all these nodes."""
        return self.nodes * int(self.machine.devices)


@dataclass(frozen=True, slots=True)
class Range:
    """A value with the ends of its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RentalPlan:
    """Machines to rent and what to expect of them. `chance` is of meeting the deadline, None where nothing is known."""

    parts: tuple[RentalPart, ...]
    spot: bool
    usd_per_h: float
    step_s: Range
    time_s: Range
    cost_usd: Range
    chance: float | None
    checkpoint_every_s: float | None = None
    basis: str = "measured"  # or "estimate"
    note: str = ""

    @property
    def name(self) -> str:
        """The machines in words, as `2 x g5.12xlarge spot (us-east-1)`."""
        machines = " + ".join(f"{part.nodes} x {part.machine.instance_type}" for part in self.parts)
        return f"{machines}{' spot' if self.spot else ''} ({self.parts[0].machine.region})"

    @property
    def devices(self) -> int:
        """Devices of all parts."""
        return sum(part.devices for part in self.parts)


def describe_plan(plan: RentalPlan) -> dict[str, Any]:
    """A plan for JSON."""
    parts = [
        {
            "cloud": part.machine.cloud,
            "region": part.machine.region,
            "instance_type": part.machine.instance_type,
            "device_type": part.machine.device_type,
            "nodes": part.nodes,
            "devices": part.devices,
            "local_batch": part.local_batch,
        }
        for part in plan.parts
    ]
    return {
        "name": plan.name,
        "parts": parts,
        "spot": plan.spot,
        "devices": plan.devices,
        "usd_per_h": plan.usd_per_h,
        "step_s": asdict(plan.step_s),
        "time_s": asdict(plan.time_s),
        "cost_usd": asdict(plan.cost_usd),
        "probability": plan.chance,
        "checkpoint_every_s": plan.checkpoint_every_s,
        "basis": plan.basis,
        "note": plan.note,
    }
