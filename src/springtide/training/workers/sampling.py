"""Which samples each logical worker sees, and randomness per (epoch, sample): the same for every placement.

The order is that of `DistributedSampler(num_replicas=N, rank=worker)`; a test compares them. Any other sampler's order
is split in the same way, and a batch sampler's batches go to the workers in turn. Nothing here depends on processes or
on DataLoader workers. What a user's DataLoader says is read in `feeds`, walking the batches is in `loaders`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from springtide.errors import JobError
from springtide.training.workers import generators, randomness
from springtide.training.workers.generators import HeldGenerators
from springtide.training.workers.streams import Stream, checksum


class SampleKey(NamedTuple):
    """A sample of an epoch: what is sent to DataLoader workers, which may be epochs old."""

    epoch: int
    place: int


class Seeded(Dataset[Any]):
    """A dataset whose samples draw their randomness from (seed, epoch, index), whoever loads them and when.

    Python, NumPy and torch generators are seeded before each sample and put back after the batch. Seeding costs more
    than many a sample, so until one has drawn, a batch is read under the seed of its first sample, and read again
    only if it drew after all: a sample that draws nothing is the same under any seed. Generators that the dataset or
    its transforms have for themselves are seeded from the moment that samples are seen to draw from them.
    """

    def __init__(self, dataset: Any, seed: int = 0) -> None:
        self.dataset = dataset
        self.seed = seed
        self.epoch = 0
        self.draws = False
        self.own: HeldGenerators | None = None
        self.repeats = RepeatCheck()

    def set_epoch(self, epoch: int) -> None:
        """Draw the randomness of this epoch from now on, as `DistributedSampler.set_epoch` does for the order."""
        self.epoch = epoch
        self.repeats.begin_epoch(epoch)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        keys = [index if isinstance(index, SampleKey) else SampleKey(self.epoch, int(index)) for index in indices]
        before = randomness.capture()
        try:
            self.repeats.look(self, keys, before)
            at_rest = self.find_own().read()
            batch = self.read(keys)
            while self.find_own().note(at_rest):
                at_rest, batch = self.find_own().read(), self.read(keys)
        finally:
            randomness.restore(before)
        batch.seed = randomness.mix(self.seed, *keys[0], len(keys))
        return batch

    def find_own(self) -> HeldGenerators:
        """The dataset's own generators, looked for where it is first read: in this process, which may be a copy."""
        self.own = self.own or HeldGenerators(self.dataset)
        return self.own

    def read(self, keys: Sequence[SampleKey]) -> "Samples":
        """The samples of a batch."""
        samples = [] if self.draws else self.try_quiet(keys)
        return Samples([self.draw(key) for key in keys] if self.draws else samples)

    def try_quiet(self, keys: Sequence[SampleKey]) -> list[Any]:
        """The samples under one seed; notes if that is not enough, because one of them drew."""
        self.seed_for(keys[0])
        at_rest = randomness.capture()
        samples = [self.dataset[key.place] for key in keys]
        self.draws = not randomness.is_at(at_rest) or self.find_own().is_seeded
        return samples

    def draw(self, key: SampleKey) -> Any:
        """One sample under its own seed."""
        self.seed_for(key)
        return self.dataset[key.place]

    def seed_for(self, key: SampleKey) -> None:
        """Seed what a dataset can draw from for one sample."""
        number = randomness.mix(self.seed, *key)
        randomness.seed_sample(number)
        self.find_own().seed(number)


class RepeatCheck:
    """Looks once per process whether a dataset gives the same sample when it is read again under the same seed.

    One that draws from a generator of its own, or keeps what chance has made, gives samples that depend on which
    process has read what before. Counters, files that are opened late and caches of data are none of this: the first
    sample is not judged, and a refusal takes two further ones, none of which this process has read before. Nor is one
    judged in which generators that the dataset holds are found to be drawn from: those are seeded by then.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.first_epoch: int | None = None
        self.seen: set[int] = set()
        self.suspected = False

    def begin_epoch(self, epoch: int) -> None:
        """DataLoader workers are new in every epoch; those of the first have looked."""
        self.first_epoch = epoch if self.first_epoch is None else self.first_epoch
        self.is_over = self.is_over or epoch != self.first_epoch

    def look(self, data: Seeded, keys: Sequence[SampleKey], before: randomness.RngState) -> None:
        """Look at samples that this process has not read yet; all random states are as `before` afterwards."""
        for key in keys:
            if self.is_over:
                return
            if key.place not in self.seen:
                self.judge(data, key, before) if self.seen else data.draw(key)
                randomness.restore(before)
            self.seen.add(key.place)

    def judge(self, data: Seeded, key: SampleKey, before: randomness.RngState) -> None:
        """Read a sample twice: one that repeats ends the look, the second that does not ends the run."""
        own = data.find_own()
        at_rest, once = own.read(), read_traced(data, key)
        randomness.restore(before)  # CUDA's too, which is not seeded by sample
        moved, middle = own.note(at_rest), own.read()
        again = read_traced(data, key)
        if moved or own.note(middle):
            return
        if once == again:
            self.is_over = True
        elif self.suspected:
            refuse_changing(data.dataset, key.place, is_same=once[0] == again[0])
        self.suspected = True


def read_traced(data: Seeded, key: SampleKey) -> tuple[int, bool]:
    """A checksum of a sample under its own seed, and whether it was drawn for."""
    data.seed_for(key)
    at_rest, own = randomness.capture(), data.find_own().read()
    sample = data.dataset[key.place]
    return sign_sample(sample), randomness.is_at(at_rest) and data.find_own().read() == own


def sign_sample(sample: Any) -> int:
    """A checksum of a sample; the same for all whose tensors have no bytes to be read, as quantized ones."""
    try:
        return checksum(sample)
    except (RuntimeError, TypeError, ValueError):
        return 0


def refuse_changing(dataset: Any, place: int, is_same: bool) -> None:
    """Say which dataset changes when it is read, and what to write instead."""
    how = "sample {} without the draws that it took before" if is_same else "another sample {}"
    raise JobError(
        f"dataset {type(dataset).__name__} gives {how.format(place)} when it is read again: what a worker is given "
        "would depend on what its process has read before. Draw from torch, np.random or random, which are seeded by "
        "epoch and sample; seed a generator of your own, or of a library's transforms, in __getitem__ with "
        "torch.randint; and do not cache what chance has made, only what it is made of"
    )


def seeded(dataset: Any, seed: int = 0) -> Seeded:
    """The dataset with randomness per (epoch, sample), so that `num_workers` and placement do not matter.

    `run.prepare` does this by itself; use it by hand in a plain script that must see the same augmentation.
    """
    return dataset if isinstance(dataset, Seeded) else Seeded(dataset, seed)


class Samples(list[Any]):
    """The samples of a batch, with a seed for whoever collates them in a process of its own."""

    seed: int = 0


class SeededCollate:
    """A collate function that draws from (seed, epoch, first sample), whichever DataLoader worker calls it."""

    def __init__(self, collate: Any) -> None:
        self.collate = OwnSeededCollate(collate)

    def __call__(self, samples: Any) -> Any:
        before = randomness.capture()
        randomness.seed_sample(samples.seed)
        try:
            return self.collate(samples)
        finally:
            randomness.restore(before)


class OwnSeededCollate:
    """A collate function whose own generators are seeded by the batch; from the global ones it draws as ever."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate
        #: Found where it is first called: in this process, which may have a copy.
        self.own: list[Any] | None = None

    def __call__(self, samples: Any) -> Any:
        self.own = generators.find_held(self.collate) if self.own is None else self.own
        for place, one in enumerate(self.own):
            generators.seed(one, randomness.mix(samples.seed, place))
        return self.collate(samples)


def choose_collate(collate: Any, is_pooled: bool) -> Any:
    """The collate function as the loader calls it, which seeds what it draws from where logical workers share that."""
    if is_pooled:
        return SeededCollate(collate)
    return OwnSeededCollate(collate) if generators.find_held(collate) else collate


class Tensors(Dataset[Any]):
    """A TensorDataset, which draws nothing at random, indexed a batch at a time."""

    def __init__(self, dataset: TensorDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index.place if isinstance(index, SampleKey) else index]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        return [self[index] for index in indices]

    def batch(self, indices: torch.Tensor) -> list[torch.Tensor]:
        """The collated batch of these samples."""
        return [tensor[indices] for tensor in self.dataset.tensors]


def adopt(dataset: Any, seed: int, is_pooled: bool = False) -> Any:
    """The dataset as the loader uses it: seeded per sample unless nothing in it can be random."""
    if isinstance(dataset, Seeded):
        return dataset
    if isinstance(dataset, IterableDataset):
        return Stream(dataset, seed)
    if type(dataset) is TensorDataset and not is_pooled:
        return Tensors(dataset)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise JobError(
            f"dataset {type(dataset).__name__} has no __getitem__ and __len__ and is no IterableDataset; "
            "pass a map-style or an iterable dataset"
        )
    return Seeded(dataset, seed)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The fixed facts of a job's data order."""

    samples: int
    logical_workers: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = True
    #: Mini-batches per logical worker and global step (gradient accumulation).
    accumulate: int = 1
    #: Whether samples are repeated until every worker has as many, as DistributedSampler does by default, or the rest
    #: is left out.
    pad: bool = False
    #: How many batches a batch sampler of the user's makes, if there is one.
    batches: int | None = None

    #: Whether every batch must be full: a stream is cut into runs of batch_size items.
    full: bool = False

    @property
    def samples_per_worker(self) -> int:
        """Samples of each worker per epoch, as DistributedSampler counts them."""
        return (-(-self.samples // self.logical_workers)) if self.pad else self.samples // self.logical_workers

    @property
    def steps_per_epoch(self) -> int:
        """Global steps per epoch; an incomplete round of accumulation is left out."""
        if self.batches is not None:
            return self.batches // self.logical_workers // self.accumulate
        whole, rest = divmod(self.samples_per_worker, self.batch_size)
        batches = whole + (0 if self.drop_last or self.full or not rest else 1)
        return batches // self.accumulate


def check_size(sampling: Sampling) -> None:
    """Refuse a dataset that cannot fill one global batch."""
    needed = sampling.logical_workers * sampling.batch_size * sampling.accumulate
    if sampling.batch_size < 1 or sampling.accumulate < 1:
        raise JobError(f"batch_size {sampling.batch_size} and accumulate {sampling.accumulate} must be at least 1")
    if sampling.steps_per_epoch < 1:
        raise JobError(
            f"the dataset has {sampling.samples} samples; one global batch needs {needed} "
            f"({sampling.logical_workers} logical workers x batch_size {sampling.batch_size} x accumulate "
            f"{sampling.accumulate}): use more data, a smaller batch, or fewer logical workers"
        )


def check_steps(sampling: Sampling, now: Sampling, source: str, remedy: str) -> None:
    """Refuse data that make other steps in this epoch than in `run.prepare`: some would be dropped, or seen twice.

    Schedules, checkpoints and predictions count by the number of steps, so it cannot follow the data.
    """
    if now.steps_per_epoch == sampling.steps_per_epoch:
        return
    given, before = (one.samples if one.batches is None else one.batches for one in (now, sampling))
    raise JobError(
        f"{source}: {given} for this epoch, {before} in run.prepare. That would be {now.steps_per_epoch} instead of "
        f"{sampling.steps_per_epoch} steps, and the number of steps of an epoch is fixed in run.prepare. {remedy}, or "
        "train each stage as a job of its own"
    )


def epoch_order(sampling: Sampling, epoch: int, drawn: Sequence[int] | None = None) -> torch.Tensor:
    """Sample indices of an epoch over all workers; worker r's are every N-th from r.

    `drawn` is what a sampler of the user's gave for this epoch. As in DistributedSampler it is the number of these, not
    of those of another epoch, that decides how many are repeated or left out.
    """
    if drawn is not None:
        order = torch.as_tensor(list(drawn), dtype=torch.int64)
        sampling = replace(sampling, samples=len(order))
    elif sampling.shuffle:
        generator = torch.Generator().manual_seed(sampling.seed + epoch)
        order = torch.randperm(sampling.samples, generator=generator)
    else:
        order = torch.arange(sampling.samples)
    total = sampling.samples_per_worker * sampling.logical_workers
    if total > len(order):
        order = order.repeat(-(-total // len(order)))
    return order[:total]


def batch_indices(sampling: Sampling, order: torch.Tensor, worker: int, batch: int) -> torch.Tensor:
    """Samples of a worker's batch, by its number in the epoch."""
    first = batch * sampling.batch_size
    stride = sampling.logical_workers
    last = min(first + sampling.batch_size, len(order) // stride)
    return order[worker + first * stride : worker + (last - 1) * stride + 1 : stride]
