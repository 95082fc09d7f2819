"""The batches of a prepared evaluation loader, each in the random context of its logical worker."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from accelerate.data_loader import DataLoaderShard

from springtide.integrations.accelerate_data import cut_part
from springtide.training.workers import randomness
from springtide.training.workers.contexts import Contexts

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

LOADER_OPTIONS = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")


def list_walked(run: "ElasticRun") -> list[int]:
    """The logical workers whose batches this process walks; all of them before there is a roster."""
    return run.local if run.prepared else list(range(run.logical_workers))


def walk_parts(run: "ElasticRun", shard: Any, tell: Callable[[list[Any]], None] | None = None) -> Iterator[Any]:
    """Round after round, one batch of each logical worker here, in its context; `tell` sees a round's before."""
    workers = list_walked(run)
    contexts = run.turns.contexts if run.prepared else copy_context(workers)
    parts = {worker: iter(open_part(run, shard, worker)) for worker in workers}
    try:
        for _ in range(len(shard)):
            batches = {}
            for worker, part in parts.items():
                contexts.enter(worker)
                batches[worker] = next(part)
            if tell is not None:
                contexts.exit()
                tell(list(batches.values()))
            for worker, batch in batches.items():
                contexts.enter(worker)
                yield batch
        for worker, part in parts.items():  # what a loop over a loader does last
            contexts.enter(worker)
            next(part, None)
    finally:
        contexts.exit()
        if not run.prepared:
            randomness.restore(contexts.states[0])


def open_part(run: "ElasticRun", shard: Any, worker: int) -> DataLoaderShard:
    """A worker's loader, as its rank would have it."""
    base = shard.base_dataloader
    options = {name: getattr(base, name) for name in LOADER_OPTIONS}
    if base.num_workers:
        options["prefetch_factor"] = base.prefetch_factor
    part = cut_part(shard.batch_sampler, run.logical_workers, worker)
    return DataLoaderShard(shard.dataset, batch_sampler=part, device=shard.device, rng_types=[], **options)


def copy_context(workers: Iterable[int]) -> Contexts:
    """Contexts of workers that have none yet: all start from the process's own, as ranks that have drawn alike."""
    contexts = Contexts()
    contexts.states = {worker: randomness.capture() for worker in workers}
    return contexts


def cut(tensors: Any, count: int) -> Any:
    """The first so many samples of a tensor, or of lists and dictionaries of them."""
    if isinstance(tensors, list | tuple):
        return type(tensors)(cut(one, count) for one in tensors)
    if isinstance(tensors, dict):
        return type(tensors)({name: cut(one, count) for name, one in tensors.items()})
    if getattr(tensors, "shape", None) == ():
        return tensors.reshape(1)[:count]
    return tensors[:count]
