"""What a training loop is fed with: a user's finished DataLoader, or a dataset and options, read into one form.

A DataLoader keeps its meaning: its batch size is per logical worker, its order is split between them as a
DistributedSampler would split it. Which samples form a batch is in `sampling`.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from springtide.errors import JobError
from springtide.training.workers import randomness
from springtide.training.workers.sampling import Sampling, check_size, check_steps, epoch_order

SAME_INDICES = (
    "Let it give as many in every epoch, chosen among all samples by weights (WeightedRandomSampler, whose weights are "
    "0 for what is not wanted yet)"
)
SAME_BATCHES = "Let it make as many in every epoch, at the price of some that are larger, repeated or left out"
SAME_DATA = "Prepare the dataset whole, and choose within it by a sampler's weights"
ORDER = 0x6F72646572  # keeps the draws of an epoch's order apart from others of the same epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A dataset and how batches are made of it."""

    dataset: Any
    batch_size: int
    shuffle: bool = True
    drop_last: bool = True
    #: Whether samples are repeated so that every logical worker has as many, as DistributedSampler does by default.
    pad: bool = False
    accumulate: int = 1
    collate: Callable[[list[Any]], Any]
    num_workers: int = 0
    #: A sampler of the user's other than torch's shuffled and sequential ones, or one of batches.
    sampler: Any = None
    batch_sampler: Any = None
    #: Whether iterating draws a seed from the global generator, as a DataLoader without one of its own does.
    draws_seed: bool = True
    #: Further options for DataLoader workers.
    pool: tuple[tuple[str, Any], ...] = ()


def read_loader(loader: DataLoader[Any], accumulate: int) -> Feed:
    """A finished DataLoader as a feed."""
    iterable = isinstance(loader.dataset, IterableDataset)
    if loader.batch_size is None and (iterable or not is_batch_sampler(loader.batch_sampler)):
        raise JobError(
            "run.prepare was given a DataLoader with batch_size=None; a logical worker's batch needs a size, or a "
            "batch_sampler that makes the batches"
        )
    collate: Any = loader.collate_fn
    feed = Feed(
        dataset=loader.dataset,
        batch_size=loader.batch_size or 1,
        shuffle=False,
        drop_last=loader.drop_last,
        pad=True,
        accumulate=accumulate,
        collate=collate,
        num_workers=loader.num_workers,
        draws_seed=loader.generator is None,
        pool=read_pool(loader),
    )
    if iterable:
        return replace(feed, pad=False)
    if loader.batch_size is None:
        return replace(feed, batch_sampler=loader.batch_sampler)
    return replace(feed, **read_sampler(loader.sampler))


def is_batch_sampler(sampler: Any) -> bool:
    """Whether a DataLoader was given batches, and not told to make none."""
    return sampler is not None and hasattr(sampler, "__len__")


def read_pool(loader: DataLoader[Any]) -> tuple[tuple[str, Any], ...]:
    """What a DataLoader says about its worker processes."""
    if not loader.num_workers:
        return (("pin_memory", loader.pin_memory),)
    names = ("pin_memory", "timeout", "worker_init_fn", "prefetch_factor", "multiprocessing_context")
    return tuple((name, getattr(loader, name)) for name in names)


def read_sampler(sampler: Any) -> dict[str, Any]:
    """What a DataLoader's sampler says about the order."""
    if type(sampler) is SequentialSampler:
        return {"shuffle": False}
    if type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None:
        return {"shuffle": True}
    if type(sampler) is DistributedSampler:
        return {"shuffle": sampler.shuffle, "pad": not sampler.drop_last, "sampler": sampler}
    if not hasattr(sampler, "__len__"):
        raise JobError(
            f"sampler {type(sampler).__name__} has no __len__; the number of steps must be known, so give it the "
            "number of indices of an epoch"
        )
    return {"sampler": sampler}


def make_sampling(feed: Feed, samples: int, logical_workers: int, seed: int) -> Sampling:
    """The job's data order, if the samples can fill a global batch."""
    own = feed.sampler if not isinstance(feed.sampler, DistributedSampler) else None
    sampling = Sampling(
        samples=samples if own is None else len(own),
        logical_workers=logical_workers,
        batch_size=feed.batch_size,
        seed=feed.sampler.seed if isinstance(feed.sampler, DistributedSampler) else seed,
        shuffle=feed.shuffle,
        drop_last=feed.drop_last,
        accumulate=feed.accumulate,
        pad=feed.pad,
        full=isinstance(feed.dataset, IterableDataset),
        batches=None if feed.batch_sampler is None else len(feed.batch_sampler),
    )
    check_size(sampling)
    return sampling


def draw_order(feed: Feed, sampling: Sampling, epoch: int) -> torch.Tensor:
    """The sample indices of an epoch over all workers, the same on every process."""
    check_data(feed, sampling)
    if isinstance(feed.sampler, DistributedSampler):
        return epoch_order(sampling, feed.sampler.epoch)
    if feed.sampler is None:
        return epoch_order(sampling, epoch)
    drawn = draw(feed.sampler, sampling.seed, epoch)
    source = f"the number of indices of sampler {type(feed.sampler).__name__} has changed"
    check_steps(sampling, replace(sampling, samples=len(drawn)), source, SAME_INDICES)
    return epoch_order(sampling, epoch, drawn)


def draw_batches(feed: Feed, sampling: Sampling, epoch: int) -> list[list[int]]:
    """The batches of an epoch that a batch sampler of the user's makes, the same on every process.

    They go to the workers in turn; the last ones, if they are not one for each, are left out.
    """
    drawn = [[int(index) for index in batch] for batch in draw(feed.batch_sampler, sampling.seed, epoch)]
    source = f"the number of batches of batch sampler {type(feed.batch_sampler).__name__} has changed"
    check_steps(sampling, replace(sampling, batches=len(drawn)), source, SAME_BATCHES)
    return drawn


def check_data(feed: Feed, sampling: Sampling) -> None:
    """Refuse a dataset that has grown or shrunk since `run.prepare`, where its length decides the order."""
    if feed.batch_sampler is not None or not isinstance(feed.sampler, DistributedSampler | None):
        return
    source, now = f"the length of dataset {type(feed.dataset).__name__} has changed", len(feed.dataset)
    check_steps(sampling, replace(sampling, samples=now), source, SAME_DATA)
    if not isinstance(feed.dataset, IterableDataset) and now != sampling.samples:
        raise JobError(
            f"{source}: {now} for this epoch, {sampling.samples} in run.prepare, where the samples of an order are "
            f"fixed. {SAME_DATA}"
        )


def number_plan(plan: torch.Tensor | list[list[int]], before: int) -> int:
    """A checksum of an epoch's order or batches that goes on from that of the epochs before."""
    if isinstance(plan, torch.Tensor):
        return zlib.crc32(plan.numpy().tobytes(), before)
    for batch in plan:
        before = zlib.crc32(np.asarray((len(batch), *batch), dtype=np.int64).tobytes(), before)
    return before


class DrawnPlans:
    """What a run has drawn so far, as a number: in checkpoints, and compared between processes.

    A sampler may remember things (weights that follow the last losses, a generator of its own) which a process that
    joins or resumes has not. It would draw another order, and some samples would be seen twice and others never.
    """

    def __init__(self) -> None:
        self.epoch = -1
        #: The checksum of all epochs before this one, and with it.
        self.before = 0
        self.number = 0

    def note(self, feed: Feed, epoch: int, plan: torch.Tensor | list[list[int]]) -> None:
        """Take up an epoch's plan; refuse another one for an epoch whose plan is known."""
        if epoch != self.epoch:
            self.epoch, self.before = epoch, self.number
            self.number = number_plan(plan, self.before)
        elif number_plan(plan, self.before) != self.number:
            raise JobError(
                f"{name_order(feed)} gave another order for epoch {epoch} than before: this process has joined or "
                "resumed, and what was remembered elsewhere is not known here. Draw from torch, np.random or random, "
                "which are seeded by the epoch; keep what else decides the order in run.state (sampler.weights = "
                "run.state['weights'] at the top of an epoch), or in an object with a state_dict by run.keep(...)"
            )

    def to_plain(self) -> list[int]:
        """For a checkpoint."""
        return [self.epoch, self.before, self.number]

    def from_plain(self, plain: Sequence[int]) -> None:
        """Go on from a checkpoint."""
        self.epoch, self.before, self.number = plain


def name_order(feed: Feed) -> str:
    """What decides the order."""
    if feed.batch_sampler is not None:
        return f"batch sampler {type(feed.batch_sampler).__name__}"
    return "the DataLoader" if feed.sampler is None else f"sampler {type(feed.sampler).__name__}"


def draw(sampler: Any, seed: int, epoch: int) -> list[Any]:
    """All that a sampler gives in an epoch, drawn from a seed of that epoch whoever asks and whenever."""
    before = randomness.capture()
    randomness.seed_sample(randomness.mix(seed, ORDER, epoch))
    inside: list[Any] = [sampler.sampler] if isinstance(sampler, BatchSampler) else []
    for one in (sampler, *inside):
        if isinstance(generator := getattr(one, "generator", None), torch.Generator):
            generator.manual_seed(randomness.mix(seed, ORDER, epoch))
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
    try:
        return list(sampler)
    finally:
        randomness.restore(before)
