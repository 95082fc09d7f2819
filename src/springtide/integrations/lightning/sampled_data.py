"""A DataLoader as Lightning gives it to each of N ranks: a DistributedSampler cuts it, no batch is read ahead."""

from typing import Any

import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

from springtide.errors import JobError
from springtide.integrations.worker_feeds import WorkerData, refuse_stream


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
        super().__init__(loader, seed)
        self.sampler: DistributedSampler[Any] = sampler

    def __len__(self) -> int:
        return len(self.loader)

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
