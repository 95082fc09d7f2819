"""A DataLoader as Lightning gives it to each of N ranks: a DistributedSampler cuts it, no batch is read ahead."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

from springtide.errors import JobError
from springtide.integrations.worker_feeds import WorkerData, open_pool, refuse_stream


class SampledData(WorkerData):
    """A training DataLoader with a DistributedSampler, and every logical worker's part of it."""

    def __init__(self, loader: Any, seed: int) -> None:
        if isinstance(getattr(loader, "dataset", None), IterableDataset):
            refuse_stream(loader.dataset)
        sampler = getattr(loader, "sampler", None)
        if not isinstance(loader, DataLoader) or not isinstance(sampler, DistributedSampler):
            kind = type(getattr(loader, "dataset", loader)).__name__
            raise JobError(
                f"the training data ({kind}) have no DistributedSampler: a batch sampler of your own, or "
                "use_distributed_sampler=False. Give a DataLoader over a map-style dataset, and let Lightning cut it"
            )
        check_sampler(sampler)
        self.loader = loader
        self.seed = seed
        self.sampler: DistributedSampler[Any] = sampler
        self.num_workers = loader.num_workers

    def __len__(self) -> int:
        return len(self.loader)

    def find_loader(self) -> DataLoader[Any]:
        return self.loader

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def part(self, worker: int) -> BatchSampler:
        one = self.sampler
        options: dict[str, Any] = {"shuffle": one.shuffle, "seed": one.seed, "drop_last": one.drop_last}
        inner = find_inner(one)
        own: DistributedSampler[Any]
        if inner is None:
            own = DistributedSampler(one.dataset, one.num_replicas, worker, **options)
        else:  # it draws where it is asked, as on its rank
            own = DistributedSamplerWrapper(inner, num_replicas=one.num_replicas, rank=worker, **options)
        own.set_epoch(one.epoch)
        return BatchSampler(own, self.loader.batch_size or 1, self.loader.drop_last)

    def read(self, indices: list[Any]) -> Any:
        dataset, collate = self.loader.dataset, self.loader.collate_fn
        if hasattr(dataset, "__getitems__"):
            return collate(dataset.__getitems__(indices))
        return collate([dataset[index] for index in indices])

    def open_pool(self, epoch: int, batches: list[list[Any]]) -> Iterator[Any]:
        return open_pool(self.loader, self.seed, epoch, batches)


def find_inner(sampler: DistributedSampler[Any]) -> Sampler[Any] | None:
    """The user's own sampler, whose indices Lightning cuts for ranks; none if it cuts the dataset itself."""
    return getattr(sampler.dataset, "_sampler", None) if isinstance(sampler, DistributedSamplerWrapper) else None


def check_sampler(sampler: DistributedSampler[Any]) -> None:
    """Refuse samplers whose order could not be found again for another rank, or on another number of processes."""
    if type(sampler) not in (DistributedSampler, DistributedSamplerWrapper):
        raise JobError(
            f"sampler {type(sampler).__name__} cuts the data for ranks by itself; a logical worker that moves could "
            "not find its part again. Give a sampler of the whole dataset, which Lightning cuts, or shuffle=True"
        )
    inner = find_inner(sampler)
    if isinstance(getattr(inner, "generator", None), torch.Generator):
        raise JobError(
            f"sampler {type(inner).__name__} draws from a generator of its own, which no logical worker's context "
            "holds; let it draw from torch's global one"
        )


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
