"""What Lightning and Fabric are told about ranks: this process is rank p of N, and was started by someone else."""

from typing import Any

import torch
from lightning.fabric.plugins.environments import ClusterEnvironment

from springtide.integrations.frameworks import choose_root


class LogicalEnvironment(ClusterEnvironment):
    """What Lightning is told about ranks: this process is rank p of N, and was started by someone else."""

    def __init__(self, run: Any) -> None:
        self.run = run

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return str(self.run.settings.store or "localhost:0").rpartition(":")[0]

    @property
    def main_port(self) -> int:
        return int(str(self.run.settings.store or "localhost:0").rpartition(":")[2])

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return int(self.run.logical_workers)

    def set_world_size(self, size: int) -> None:
        """It is the script's number of logical workers."""

    def global_rank(self) -> int:
        return int(self.run.rank)

    def set_global_rank(self, rank: int) -> None:
        """It is the run's to know."""

    def local_rank(self) -> int:
        return int(self.run.rank)

    def node_rank(self) -> int:
        return 0


class TurnEnvironment(LogicalEnvironment):
    """What Lightning is told in an elastic run: in its turn a logical worker is the rank that it stands for."""

    def global_rank(self) -> int:
        worker = self.run.turns.worker if self.run.prepared else None
        return super().global_rank() if worker is None else int(worker)

    def local_rank(self) -> int:
        return self.global_rank()


class RankMixin:
    """What both strategies say about ranks."""

    run: Any
    parallel_devices: Any

    @property
    def root_device(self) -> torch.device:
        """The GPU that the process holds, or what else the Trainer was told to use."""
        return choose_root(self.parallel_devices or (), self.run.device)

    @property
    def is_distributed(self) -> bool:
        """Whether Lightning cuts loaders for ranks."""
        return True

    @property
    def num_processes(self) -> int:
        """The ranks."""
        return int(self.run.logical_workers)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """What a DistributedSampler is told."""
        return {"num_replicas": self.run.logical_workers, "rank": self.run.rank}

    def _configure_launcher(self) -> None:
        """Processes are there already."""


class TurnMixin(RankMixin):
    """What the elastic ones say."""

    def barrier(self, name: str | None = None) -> None:
        """Wait for all processes; in a turn for nobody, for they differ in how many turns they have."""
        if self.run.prepared and self.run.turns.worker is None:
            self.run.exchange([])
