"""A DataLoader that `accelerate` has prepared, cut into the parts of N ranks; and what it is told about this one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, IterableDatasetShard, SeedableRandomSampler
from accelerate.state import AcceleratorState, PartialState
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler

from springtide.errors import JobError
from springtide.integrations.frameworks import choose_shown
from springtide.integrations.worker_feeds import WorkerData, refuse_stream

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


def show_rank(run: "ElasticRun", rank: int | None = None) -> None:
    """Tell `accelerate` that this is a rank of N: the process's own, which a rescale may change, or a worker's."""
    for state in (PartialState._shared_state, AcceleratorState._shared_state):
        if state:
            state["num_processes"] = run.logical_workers
            state["process_index"] = state["local_process_index"] = run.rank if rank is None else rank
            if (device := state.get("device")) is not None:
                state["device"] = choose_shown(device, run.device)


def walk_workers(run: "ElasticRun") -> Iterator[int]:
    """The logical workers of this process, each in its random context and shown as the rank it is."""
    try:
        for worker in run.local:
            run.turns.contexts.enter(worker)
            show_rank(run, worker)
            yield worker
    finally:
        run.turns.contexts.exit()
        show_rank(run)


class ShardedData(WorkerData):
    """A prepared DataLoader, and every logical worker's part of it."""

    reads_ahead = True

    def __init__(self, shard: Any, logical_workers: int, seed: int) -> None:
        check_shard(shard)
        super().__init__(shard.base_dataloader, seed)
        self.shard = shard
        self.logical_workers = logical_workers
        self.generator = shard.synchronized_generator

    def __len__(self) -> int:
        return len(self.shard)

    def part(self, worker: int) -> Any:
        """A worker's batches as lists of indices, as its rank would have them."""
        return cut_part(self.shard.batch_sampler, self.logical_workers, worker)

    def set_epoch(self, epoch: int) -> None:
        self.shard.set_epoch(epoch)


def cut_part(batches: Any, logical_workers: int, worker: int) -> Any:
    """A rank's part of the batches, from any other rank's."""
    if logical_workers == 1:
        return batches
    return BatchSamplerShard(
        batches.batch_sampler, logical_workers, worker, batches.split_batches, batches.even_batches
    )


def find_rest(shard: Any) -> int:
    """Samples in the last round of batches that are no repetition; 0 if all are."""
    return 0 if shard._drop_last else len(shard.dataset) % int(shard.total_batch_size)


def find_sampler(shard: Any) -> Any:
    """The sampler whose indices are made into batches and cut for ranks."""
    whole = shard.batch_sampler
    inner: Any = getattr(whole, "batch_sampler", whole)
    return inner.sampler if isinstance(inner, BatchSampler) else inner


def find_generator(shard: Any) -> torch.Generator | None:
    """The generator that its sampler draws an order from, and that goes on from walk to walk; if there is one."""
    sampler = find_sampler(shard)
    own = None if isinstance(sampler, SeedableRandomSampler) else getattr(sampler, "generator", None)
    return own if isinstance(own, torch.Generator) else None


def check_shard(shard: Any) -> None:
    """Refuse data whose order could not be found again on another number of processes."""
    data = getattr(shard, "dataset", None)
    if isinstance(data, IterableDataset):
        refuse_stream(data.dataset if isinstance(data, IterableDatasetShard) else data)
    if type(shard) is not DataLoaderShard:
        raise JobError(
            f"the training loader ({type(shard).__name__}) has no batches by index: the Accelerator did not prepare "
            "it, or was told dispatch_batches. Give a DataLoader over a map-style dataset, of which each logical "
            "worker can find its part again after a rescale"
        )
    whole = shard.batch_sampler
    if not getattr(whole, "even_batches", True) and not whole.drop_last:
        raise JobError(
            "even_batches=False gives ranks different numbers of batches; leave it on, or drop the last batch"
        )
    sampler = find_sampler(shard)
    own = getattr(sampler, "generator", None)
    if (
        isinstance(own, torch.Generator)
        and not isinstance(sampler, RandomSampler)
        and own is not shard.synchronized_generator
    ):
        raise JobError(
            f"sampler {type(sampler).__name__} draws from a generator of its own, which no logical worker's context "
            "holds; let it draw from torch's global one, or seed it in set_epoch"
        )
