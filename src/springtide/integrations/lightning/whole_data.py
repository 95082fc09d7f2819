"""A DataLoader for evaluation or prediction, which Lightning has cut for ranks, made whole again.

Every process walks all of it, in an order that is the same on each of them and at each walk, so that all come to one
result. What a rank draws where it walks its part is drawn by each logical worker, see `draw_as_ranks`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSamplerWrapper
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

from springtide.errors import JobError
from springtide.training.workers import randomness

OPTIONS = ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "worker_init_fn")
WRAPPERS = (DistributedSamplerWrapper, UnrepeatedDistributedSamplerWrapper)


class WholeOrder(Sampler[Any]):
    """All indices of a sampler, drawn from the same random state whenever they are asked for."""

    def __init__(self, sampler: Any, seed: int) -> None:
        self.sampler = sampler
        self.seed = seed
        own = getattr(sampler, "generator", None)
        self.generator = own if isinstance(own, torch.Generator) else None
        self.start = None if self.generator is None else self.generator.get_state()

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        before = randomness.capture()
        randomness.seed_all(self.seed)
        if self.generator is not None and self.start is not None:
            self.generator.set_state(self.start)
        indices = list(self.sampler)
        randomness.restore(before)
        return iter(indices)


def make_whole(loader: Any, seed: int, is_cut: bool = True) -> Any:
    """The loader with all of its samples; as it is, if it was not cut."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    if type(loader.batch_sampler) in (BatchSampler, type(None)):
        return make_anew(loader, seed) if isinstance(loader.sampler, DistributedSampler) else loader
    # A batch sampler of the user's, or Lightning's own around one for prediction, was made anew for this rank.
    holder = getattr(loader.batch_sampler, "_batch_sampler", loader.batch_sampler)
    cut = [name for name, value in vars(holder).items() if isinstance(value, DistributedSampler)]
    if not cut and is_cut:
        raise JobError(
            f"batch sampler {type(holder).__name__} of evaluation data in an elastic run: Lightning has cut its "
            "samples for one rank, and the others' would be lost. Keep the sampler that it is given in self.sampler, "
            "or give batch_size"
        )
    for name in cut:
        setattr(holder, name, find_whole(vars(holder)[name], seed))
    note_draws(loader, None)
    loader.generator = torch.Generator()
    return loader


def make_anew(loader: DataLoader[Any], seed: int) -> DataLoader[Any]:
    """A loader with the options of this one, over all samples."""
    options: dict[str, Any] = {name: getattr(loader, name) for name in OPTIONS}
    sampler = find_whole(loader.sampler, seed)
    whole: DataLoader[Any] = DataLoader(loader.dataset, sampler=sampler, generator=torch.Generator(), **options)
    note_draws(whole, loader)
    return whole


def find_whole(cut: Any, seed: int) -> Sampler[Any]:
    """A sampler of all samples: the user's, if there is one, in a fixed order; else one after the other."""
    if isinstance(cut, WRAPPERS):
        return WholeOrder(cut.dataset._sampler, seed)
    return torch.utils.data.SequentialSampler(cut.dataset)


def note_draws(whole: Any, cut: DataLoader[Any] | None) -> None:
    """Note what a rank draws where it walks its part: a seed, and the order of a sampler that draws from all's."""
    source = whole if cut is None else cut
    order = whole.sampler if isinstance(whole.sampler, WholeOrder) else None
    whole.draws_seed = source.generator is None and not (source.persistent_workers and source.num_workers)
    whole.drawn_order = None if order is None or order.generator is not None else order.sampler


def draw_as_ranks(run: Any, loader: Any) -> None:
    """Let every logical worker here draw what its rank would where it begins to walk a whole loader."""
    if not getattr(loader, "draws_seed", False) and getattr(loader, "drawn_order", None) is None:
        return
    for worker in run.local:
        run.turns.contexts.enter(worker)
        draw_as_rank(loader)
    run.turns.contexts.exit()


def draw_as_rank(loader: Any) -> None:
    """Draw what a rank does where it begins to walk a whole loader."""
    if getattr(loader, "draws_seed", False):
        torch.empty((), dtype=torch.int64).random_()
    if getattr(loader, "drawn_order", None) is not None:
        list(loader.drawn_order)
