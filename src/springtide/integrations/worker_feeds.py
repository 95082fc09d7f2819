"""The batches of each logical worker, read as its rank's DataLoader would read them under a framework.

A rank draws a seed where it enters an epoch, lists its part of the batches, and may read one batch ahead of the step.
Here each worker does so in its own random context, so that a collator that draws (masked language modelling) draws what
it would there. Where a worker is taken over in the middle of an epoch its list is made again and the batch ahead read
again, from random states that move with the worker.
"""

import abc
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils.data import DataLoader, TensorDataset

from springtide.errors import JobError
from springtide.training.workers import randomness
from springtide.training.workers.contexts import LogicalWorker
from springtide.training.workers.loader_iterators import IteratorWatch
from springtide.training.workers.sampling import SampleKey, SeededCollate, seeded

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: Where a worker's own state is kept.
KEY = "feed"


class WorkerData(abc.ABC):
    """A framework's training data: every logical worker's part of them."""

    #: Whether a rank reads one batch ahead of the step.
    reads_ahead = False
    #: A sampler's own generator, which the framework keeps alike on all ranks.
    generator: torch.Generator | None = None

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        #: The DataLoader that a rank has; what its workers draw is seeded by sample.
        self.loader = loader
        self.seed = seed

    @abc.abstractmethod
    def set_epoch(self, epoch: int) -> None:
        """Be in this epoch."""

    @abc.abstractmethod
    def part(self, worker: int) -> Any:
        """A worker's batches as lists of indices, as its rank would have them."""

    def draw_seed(self, epoch: int) -> None:
        """Draw what iter(DataLoader) draws; one with persistent workers goes on with those of its first epoch."""
        loader = self.loader
        if loader.generator is None and not (epoch and loader.num_workers and loader.persistent_workers):
            torch.empty((), dtype=torch.int64).random_()

    def read(self, indices: list[Any]) -> Any:
        """One batch, drawn from whatever random context is active."""
        dataset: Any = self.loader.dataset
        collate: Any = self.loader.collate_fn
        if hasattr(dataset, "__getitems__"):
            return collate(dataset.__getitems__(indices))
        return collate([dataset[index] for index in indices])

    def open_pool(self, epoch: int, batches: list[list[Any]]) -> Iterator[Any]:
        """Batches read by DataLoader workers as the loader has them, with randomness that is each sample's own."""
        loader = self.loader
        keys = [[SampleKey(epoch, int(index)) for index in batch] for batch in batches]
        collate: Any = loader.collate_fn
        return iter(
            DataLoader(
                seeded(loader.dataset, self.seed),
                batch_sampler=keys,
                num_workers=loader.num_workers,
                collate_fn=SeededCollate(collate),
                pin_memory=loader.pin_memory,
                timeout=loader.timeout,
                worker_init_fn=loader.worker_init_fn,
                prefetch_factor=loader.prefetch_factor,
                multiprocessing_context=loader.multiprocessing_context,
                generator=torch.Generator(),
            )
        )


def number_plan(batches: list[list[Any]]) -> int:
    """A checksum of an epoch's batches."""
    return zlib.crc32(repr(batches).encode())


def refuse_stream(dataset: Any) -> NoReturn:
    """Refuse data that can only be read from their start."""
    length = "that has a length but" if hasattr(dataset, "__len__") else "without a length and"
    raise JobError(
        f"the training data ({type(dataset).__name__}) are an IterableDataset {length} no samples by index: a process "
        "that joins or resumes could not find a logical worker's next batch without reading all before it. Give a "
        "map-style dataset (__getitem__ and __len__); `datasets` makes one of a stream with Dataset.from_generator"
    )


class WorkerFeed:
    """One logical worker's batches in one epoch. Its methods are called in the worker's random context."""

    def __init__(self, data: WorkerData, worker: LogicalWorker, epoch: int, watch: IteratorWatch) -> None:
        self.data = data
        self.worker = worker
        self.epoch = epoch
        self.watch = watch
        self.batches: list[list[Any]] = []
        #: The next batch to read.
        self.place = 0
        self.ahead: list[Any] = []
        self.pool: Iterator[Any] | None = None

    def begin(self, taken: int) -> None:
        """Enter the epoch, of which so many batches are passed over."""
        start = randomness.to_plain(randomness.capture())
        self.pass_over_orders()
        order = None if self.data.generator is None else self.data.generator.get_state()
        self.worker.state[KEY] = {"epoch": self.epoch, "start": start, "ahead": None, "order": order}
        self.list_batches()
        self.worker.state[KEY]["plan"] = number_plan(self.batches)
        self.place = taken
        self.read_ahead()

    def pass_over_orders(self) -> None:
        """Have the sampler's generator where the epoch before has left it, which a process that joins has not drawn."""
        saved = self.worker.state.get(KEY)
        if self.data.generator is not None and saved is not None:
            before = randomness.capture()
            self.data.generator.set_state(saved["order"])
            self.data.set_epoch(saved["epoch"])
            list(self.data.part(self.worker.rank))
            randomness.restore(before)

    def go_on(self, taken: int) -> None:
        """Take the worker over where so many batches of the epoch were taken."""
        saved = self.worker.state[KEY]
        before = randomness.capture()
        randomness.restore(randomness.from_plain(saved["start"]))
        self.list_batches()
        if saved.get("plan", plan := number_plan(self.batches)) != plan:  # earlier versions have kept none
            raise JobError(
                f"logical worker {self.worker.rank} moved in epoch {self.epoch}, and the sampler gave it other batches "
                "when it was asked again: it remembers something of its own. Let its order depend on the epoch "
                "(set_epoch) and on torch's global generator only"
            )
        self.place = taken
        if saved["ahead"] is not None:
            randomness.restore(randomness.from_plain(saved["ahead"]))
        self.read_ahead()
        randomness.restore(before)

    def list_batches(self) -> None:
        """What iter(DataLoader) does: a seed is drawn, then the sampler is asked."""
        self.data.draw_seed(self.epoch)
        if self.data.generator is not None:  # one for all ranks, which accelerate keeps alike
            self.data.generator.set_state(self.worker.state[KEY]["order"])
        self.data.set_epoch(self.epoch)  # a seedable sampler that was asked once is in the next epoch
        self.batches = list(self.data.part(self.worker.rank))

    def take(self) -> Any:
        """The next batch; where a rank reads ahead, the one after it is read first."""
        if not self.data.reads_ahead:
            return self.read()
        batch = self.ahead.pop()
        self.read_ahead()
        return batch

    def read(self) -> Any:
        """Read one more batch."""
        self.place += 1
        if not self.data.loader.num_workers:
            return self.data.read(self.batches[self.place - 1])
        if self.pool is None:
            self.pool = self.data.open_pool(self.epoch, self.batches[self.place - 1 :])
            self.watch.of_workers.add(self.pool)
        return next(self.pool)

    def read_ahead(self) -> None:
        """Read the batch after the next, where a rank does so and there is one; note where it began to draw."""
        if not self.data.reads_ahead or self.place >= len(self.batches):
            return
        before = randomness.capture()
        self.ahead.append(self.read())
        drew = not randomness.is_at(before)
        self.worker.state[KEY]["ahead"] = randomness.to_plain(before) if drew else None


class LocalFeeds:
    """The feeds of this process's logical workers."""

    def __init__(self, run: "ElasticRun", data: WorkerData) -> None:
        self.run = run
        self.data = data
        self.feeds: dict[int, WorkerFeed] = {}
        self.epoch = -1
        self.generation = -1

    def follow(self, epoch: int, taken: int) -> None:
        """Have feeds for the workers that are here, where so many batches of the epoch were taken."""
        if epoch == self.epoch and self.generation == self.run.generation:
            return
        self.epoch, self.generation = epoch, self.run.generation
        contexts = self.run.turns.contexts
        start = None if self.data.generator is None else self.data.generator.get_state()
        self.feeds = {
            worker: WorkerFeed(self.data, contexts.workers[worker], epoch, self.run.iterators)
            for worker in self.run.local
        }
        for worker, feed in self.feeds.items():
            contexts.enter(worker)
            if start is not None:
                self.data.generator.set_state(start)  # type: ignore[union-attr]
            if feed.worker.state.get(KEY, {}).get("epoch") == epoch:
                feed.go_on(taken)
            else:
                feed.begin(taken)
        contexts.exit()

    def take(self, count: int) -> dict[int, list[Any]]:
        """So many batches of every worker, each read in its worker's context."""
        taken = {}
        for worker, feed in self.feeds.items():
            self.run.turns.contexts.enter(worker)
            taken[worker] = [feed.take() for _ in range(count)]
        self.run.turns.contexts.exit()
        return taken


def begin_contexts(run: "ElasticRun") -> None:
    """At a run's very start: every logical worker goes on from the script's random state, as every rank does.

    It must be the same on all processes. Where a rank is in a script's seed, it is not that of a logical worker.
    """
    if run.sharding is not None:
        raise JobError(
            "a model that run.fully_shard has sharded was given to Hugging Face, Lightning or Accelerate, which clip, "
            "evaluate and save whole models; train it in a loop of your own (the guide to FSDP2), or leave it whole"
        )
    if run.saved is not None:
        return
    state = randomness.capture()
    if len({theirs[0] for theirs in run.exchange([zlib.crc32(state.cpu.numpy().tobytes())])}) > 1:
        raise JobError(
            "processes have different random states of torch before the first step: a rank is in the script's seed, as "
            "by set_seed(..., device_specific=True), or only some have drawn. A logical worker's draws would depend on "
            "the process that it is in; seed all processes alike"
        )
    for worker in run.local:
        run.turns.contexts.states[worker] = state


def make_turns(count: int) -> DataLoader[Any]:
    """What a run is prepared with where feeds read the data: sample s * N + w stands for worker w's turn in step s."""
    return DataLoader(TensorDataset(torch.arange(count)), batch_size=1, generator=torch.Generator())
