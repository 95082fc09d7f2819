"""Iterable datasets: read whole by every process, one global batch after another, and never believed to repeat."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from springtide.errors import JobError
from springtide.training.workers import randomness

if TYPE_CHECKING:
    from springtide.training.workers.sampling import Sampling

REPEATED = (
    "Every process reads the whole stream, and reads it again when the job grows, shrinks or resumes, so in one epoch "
    "it must give the same items in the same order each time: shuffle by a seed and the epoch (`set_epoch(epoch)` is "
    "called if there is one), count no epochs in the dataset, and do not split by rank (WebDataset: give `seed=` to it "
    "and to `.shuffle`, no `detshuffle`, no `split_by_node`). Or use a map-style dataset"
)


class Stream:
    """An iterable dataset under its contract, read one global batch after another by every process.

    The contract: iterating it in a given epoch (told by `set_epoch(epoch)`, if it has that) yields the same items in
    the same order each time, with randomness drawn only from Python's, NumPy's and torch's global generators, which
    are seeded here before each item; and `len(dataset)` is the number of items. Logical worker r's batch in a global
    batch is its r-th run of batch_size items. Every process reads the whole stream and drops what is not its own, and
    a resume reads up to its place; datasets for which that is too slow should be map-style.

    Datasets that shuffle by the clock, count their epochs themselves or split by rank break it in silence. So the first
    global batch of an epoch has a checksum, which every later reading must have too, in any process.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        if not hasattr(dataset, "__len__"):
            raise JobError(
                f"iterable dataset {type(dataset).__name__} has no __len__; the number of steps must be known, so "
                "give it the number of items of an epoch (a __len__; of a WebDataset: .with_length(ITEMS))"
            )
        self.dataset = dataset
        self.seed = seed
        #: The epoch that was last read, and the checksum of its first global batch; checkpoints hold it.
        self.opening: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def items(self, epoch: int) -> Iterator[Any]:
        """The items of an epoch, each drawn under its own seed."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        stream = iter(self.dataset)
        for place in range(len(self.dataset)):
            before = randomness.capture()
            randomness.seed_sample(randomness.mix(self.seed, epoch, place))
            try:
                item = next(stream)
            except StopIteration:
                raise JobError(f"iterable dataset ended after {place} items; its length is {len(self)}") from None
            finally:
                randomness.restore(before)
            yield item

    def batches(self, sampling: "Sampling", epoch: int, first_step: int, workers: Sequence[int]) -> Iterator[list[Any]]:
        """Items of these workers' batches from a step on, in the order of their turns."""
        if self.opening is None:  # read its beginning twice, before a step is wasted on a stream that cannot be
            self.check_opening(epoch, read_rounds(self.items(epoch), sampling))
        items = self.items(epoch)
        for step in range(sampling.steps_per_epoch):
            rounds = read_rounds(items, sampling)
            if step == 0:
                self.check_opening(epoch, rounds)
            if step >= first_step:
                for worker in workers:
                    yield from (batches[worker] for batches in rounds)

    def check_opening(self, epoch: int, rounds: list[Any]) -> None:
        """Refuse a stream that begins otherwise than it did when this epoch was read before."""
        before, self.opening = self.opening, (epoch, checksum(rounds))
        if before is not None and before[0] == epoch and before != self.opening:
            raise JobError(
                f"iterable dataset {type(self.dataset).__name__} gave other items when epoch {epoch} was read again. "
                f"{REPEATED}"
            )


def read_rounds(items: Iterator[Any], sampling: "Sampling") -> list[list[list[Any]]]:
    """The next global batch: by round of accumulation and by logical worker, items."""
    size, count = sampling.batch_size, sampling.logical_workers
    return [[[next(items) for _ in range(size)] for _ in range(count)] for _ in range(sampling.accumulate)]


def checksum(value: Any, before: int = 0) -> int:
    """A number of what is in tensors, arrays, texts and numbers, however nested; anything else counts by its type."""
    if isinstance(value, Mapping):
        return checksum([part for pair in value.items() for part in pair], before)
    if isinstance(value, list | tuple):
        for part in value:
            before = checksum(part, before)
        return zlib.crc32(b"%d" % len(value), before)
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return zlib.crc32(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), before)
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return zlib.crc32(value.tobytes(), before)
    if isinstance(value, bytes):
        return zlib.crc32(value, before)
    told = repr(value) if value is None or isinstance(value, bool | int | float | str) else type(value).__name__
    return zlib.crc32(told.encode(errors="replace"), before)
