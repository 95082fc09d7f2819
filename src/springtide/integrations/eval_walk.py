"""The batches of a prepared evaluation loader, each in the random context of its logical worker."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from accelerate.data_loader import DataLoaderShard

from springtide.integrations.accelerate_data import cut_part, find_generator
from springtide.training.group.membership import is_joining
from springtide.training.workers import randomness
from springtide.training.workers.contexts import Contexts

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

LOADER_OPTIONS = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")


class OneOrder:
    """A rank's batches of an order that all ranks draw alike: from where its generator stood when a walk began."""

    def __init__(self, batches: Any, generator: torch.Generator, start: torch.Tensor) -> None:
        self.batches = batches
        self.generator = generator
        self.start = start

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "batches" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        self.generator.set_state(self.start)
        return iter(list(self.batches))


def is_alone(run: "ElasticRun") -> bool:
    """Whether this process walks what all would: before the run is prepared, and before a joining process is in."""
    return not run.prepared or is_joining(run)


def list_walked(run: "ElasticRun") -> list[int]:
    """The logical workers whose batches this process walks."""
    return list(range(run.logical_workers)) if is_alone(run) else run.local


def count_rounds(run: "ElasticRun") -> tuple[int, ...]:
    """How many batches of a round each process walks, by rank."""
    return (run.logical_workers,) if is_alone(run) else run.roster.counts


def walk_parts(run: "ElasticRun", shard: Any, tell: Callable[[list[Any]], None] | None = None) -> Iterator[Any]:
    """Round after round, one batch of each logical worker here, in its context; `tell` sees a round's before."""
    workers = list_walked(run)
    contexts = copy_context(workers) if is_alone(run) else run.turns.contexts
    start = find_start(run, shard)
    parts = {worker: iter(open_part(run, shard, worker, start)) for worker in workers}
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
        if is_alone(run):
            randomness.restore(contexts.states[0])


def find_start(run: "ElasticRun", shard: Any) -> torch.Tensor | None:
    """Where the first process's generator of the order stands, if there is one: accelerate lets all ranks have that."""
    generator = find_generator(shard)
    if generator is None:
        return None
    return generator.get_state() if is_alone(run) else run.exchange([generator.get_state()])[0][0]


def open_part(run: "ElasticRun", shard: Any, worker: int, start: torch.Tensor | None = None) -> DataLoaderShard:
    """A worker's loader, as its rank would have it."""
    base = shard.base_dataloader
    options = {name: getattr(base, name) for name in LOADER_OPTIONS}
    if base.num_workers:
        options["prefetch_factor"] = base.prefetch_factor
    if base.generator is not None:  # a rank draws its seed from that one
        options["generator"] = torch.Generator()
    part = cut_part(shard.batch_sampler, run.logical_workers, worker)
    generator = find_generator(shard)
    if generator is not None and start is not None:
        part = OneOrder(part, generator, start)
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
