"""What a running control plane is made of: staged records, the world, the state directory, the clock, options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.control.clock import Clock
from springtide.control.prices import PriceTable
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.speeds import find_torch_version
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server behaves; from its command line and `server.yaml`."""

    policy: str = "springtide"
    price_per_device_hour: float | None = None
    #: Dollars per device-hour of single device types, where they differ.
    prices: Mapping[str, float] = field(default_factory=dict)
    #: The parts of single users and projects in fair sharing, by name; 1 for everybody else.
    weights: Mapping[str, float] = field(default_factory=dict)
    archive_limit_bytes: int = 100_000_000
    most_active: int = 1000
    #: Changes per second and user, and at once; the same of reading.
    rate_per_s: float = 10.0
    burst: int = 50
    reads_per_s: float = 100.0
    read_burst: int = 300
    most_connections: int = 512
    keep_days: float = 90.0
    #: Where a declined job could rent: names joined by commas, or none.
    clouds: str = "aws,azure,gcp"
    #: The server that mail goes by: host, port, sender, user, password_file, security; empty: no mail is sent.
    smtp: Mapping[str, Any] = field(default_factory=dict)
    #: Object storage, or file:///PATH, for the checkpoints, outputs and code of jobs; None: the state directory.
    storage: str | None = None
    #: What the processes of one job may use on a machine, as `32 GiB`; None: as much as there is.
    most_memory: str | None = None
    #: How many processes and threads one job may have on a machine, where control groups can say so.
    most_processes: int = 10_000
    #: How long a job may make no step and use no processor before it counts as hanging; `patience:` in its file wins.
    idle_patience_s: float = 30.0
    #: How many fork servers that no job uses are kept, for how long, and with how much memory.
    warm_servers: int = 2
    warm_s: float = 600.0
    warm_memory: str = "1 GiB"
    #: Whether what others take of the machines' processors counts: slower speeds, fewer promises, until it is over.
    outside_load: bool = True
    nodes: int = 1  # that this machine's devices are cut into, so that a part of them can be drained

    @property
    def price_table(self) -> PriceTable:
        """What devices cost."""
        return PriceTable(self.price_per_device_hour, self.prices)


@dataclass(slots=True)
class Context:
    """The state of a running control plane. Touched by the reconciler's thread only."""

    staging: Staging
    world: PlatformWorld
    state_dir: StateDir
    clock: Clock
    options: ServerOptions
    torch_version: str = field(default_factory=find_torch_version)
