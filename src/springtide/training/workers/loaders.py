"""The loader the user's loop walks: one step after another, each with a batch for every logical worker.

Between global steps the runtime gets its say (agreement, rescale, checkpoint). Which samples form a batch is in
`sampling`, what the user's DataLoader said in `feeds`.
"""

import inspect
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch.utils.data import DataLoader, default_collate

from springtide.errors import JobError
from springtide.training.living_objects import set_aside
from springtide.training.workers import feeds
from springtide.training.workers import sampling as samplings
from springtide.training.workers.contexts import LogicalWorker
from springtide.training.workers.feeds import DrawnPlans, Feed
from springtide.training.workers.sampling import SampleKey, Sampling, Seeded, Tensors
from springtide.training.workers.step_counters import CounterWatch, find_asker
from springtide.training.workers.steps import Step
from springtide.training.workers.streams import Stream

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


#: What loaders have that keep their own place, such as torchdata's StatefulDataLoader.
OWN_PLACE = ("state_dict", "load_state_dict")
#: What any DataLoader is told.
OPTIONS = frozenset(inspect.signature(DataLoader).parameters)


def refuse_place(name: str, *_words: Any, **_options: Any) -> None:
    """Refuse to save or load where a loader is: it was never walked itself, and would say so."""
    raise JobError(
        f"loader.{name}() was called; which samples come next is part of every checkpoint of the run, and a resume "
        "goes on there by itself: leave the line out"
    )


def refuse_option(name: str) -> None:
    """Refuse to change what the loader was prepared with: batches are not made by the DataLoader that has it."""
    raise JobError(
        f"loader.{name} was set after run.prepare, where all that a DataLoader says was read; nothing reads it again. "
        "Set it before run.prepare. What is to change on the way belongs into an object that is there from the start, "
        "such as a collate function with an attribute that is set at the top of an epoch"
    )


def tell_unused(feed: Feed) -> str:
    """What to say of DataLoader workers over a stream."""
    return (
        f"num_workers={feed.num_workers} of a DataLoader over {type(feed.dataset).__name__} is not used: an iterable "
        "dataset is read by each process itself, item by item, so that any number of processes has the same bits. Give "
        "a map-style dataset if reading is slow, or fetch ahead within the dataset"
    )


class FixedOptions:
    """A loader whose options are those that the user's DataLoader had in `run.prepare`.

    What a loader has of its own is set before `freeze`, and may be set again; so may what no DataLoader has.
    """

    is_frozen = False

    def freeze(self, given: Any) -> None:
        """From now on, refuse to set what the given DataLoader, or any, has."""
        self.frozen_names = OPTIONS | (set(dir(given)) if isinstance(given, DataLoader) else set())
        self.frozen_names -= set(vars(self))
        self.is_frozen = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self.is_frozen and name in self.frozen_names:
            refuse_option(name)
        super().__setattr__(name, value)


class PlacedStep(Protocol):
    """A step that knows its place in the epoch."""

    index: int


Placed = TypeVar("Placed", bound=PlacedStep)


def number_steps(steps: Iterable[Placed], start: int) -> Iterator[tuple[int, Placed]]:
    """Steps with their places in the epoch."""
    for step in steps:
        yield start + step.index, step


class StepSource(Protocol):
    """What a step asks for when it is walked."""

    accumulate: int

    @property
    def workers(self) -> list[int]:
        """The logical workers whose turns these are."""

    def find_worker(self) -> LogicalWorker:
        """The worker whose turn it is."""

    def begin_walk(self, step: Step) -> None:
        """A loop over the step begins."""

    def begin_turn(self, worker: int) -> None:
        """A worker's turn begins."""

    def take_batch(self, step: Step, worker: int, micro: int) -> Any:
        """A worker's batch."""

    def end_turn(self, worker: int) -> None:
        """A worker's turn has ended."""

    def end_walk(self) -> None:
        """All turns have ended."""

    def abandon_walk(self) -> int:
        """The loop was left; whose turn it was."""


class Loader(FixedOptions):
    """The steps of an epoch, and the batches of this process's logical workers in each.

    `len(loader)` is the number of steps per epoch. All else that the user's DataLoader has can be asked of this one.
    """

    def __init__(self, run: "ElasticRun", given: Any, feed: Feed, sampling: Sampling) -> None:
        self.run = run
        self.given = given
        self.feed = feed
        self.collate = samplings.choose_collate(feed.collate, feed.num_workers > 0)
        self.data = samplings.adopt(feed.dataset, run.seed, is_pooled=self.collate is not feed.collate)
        self.sampling = sampling
        self.accumulate = sampling.accumulate
        self.batches: Iterator[Any] = iter(())
        self.taken: dict[tuple[int, int], Any] = {}
        self.counters = CounterWatch()
        self.iterator: Any = None
        self.plan: Any = None
        self.plans = DrawnPlans()
        if feed.num_workers and self.stream is not None and run.is_main:
            run.channel.warn(tell_unused(feed))
        self.freeze(given)

    @property
    def stream(self) -> Stream | None:
        """The data, if they are a stream."""
        return self.data if isinstance(self.data, Stream) else None

    @property
    def dataset(self) -> Any:
        """The user's dataset."""
        return self.feed.dataset

    def __getattr__(self, name: str) -> Any:
        given = self.__dict__.get("given")
        if isinstance(given, DataLoader) and not name.startswith("__"):
            value = getattr(given, name)
            return partial(refuse_place, name) if name in OWN_PLACE else value
        raise AttributeError(f"the loader of run.prepare has no {name!r}")

    def __len__(self) -> int:
        return self.sampling.steps_per_epoch

    def __iter__(self) -> Iterator[Step]:
        steps = self.walk_steps()
        self.iterator = weakref.ref(steps)
        return steps

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Step]]:
        """The steps with their places in the epoch, which are right in a process that joins or resumes within it."""
        return number_steps(self, start)

    def walk_steps(self) -> Iterator[Step]:
        """The steps of the present epoch that are left."""
        if self.counters.check(self.iterator(), find_asker()):
            set_aside()
        self.run.enter_loop()
        epoch, plan = self.run.position.epoch, self.plan
        if isinstance(self.data, Seeded):
            self.data.set_epoch(epoch)
        try:
            while self.run.wants_step(len(self)):
                generation = self.run.generation
                self.batches = self.fetch(epoch, plan)
                while self.run.generation == generation and self.run.wants_step(len(self)):
                    self.taken = {}
                    yield self.run.begin_step(self)
                    self.run.end_step()
        finally:
            self.run.leave_loop()

    # What a step asks for.

    @property
    def workers(self) -> list[int]:
        """The logical workers of this process."""
        return self.run.turns.local

    def find_worker(self) -> LogicalWorker:
        """The worker whose turn it is."""
        turns = self.run.turns
        if turns.worker is None:
            raise JobError("step.worker is the logical worker whose turn it is; ask for it inside `for ... in step:`")
        return turns.contexts.workers[turns.worker]

    def begin_walk(self, step: Step) -> None:
        """A loop over the step begins."""
        self.run.begin_walk(step)

    def begin_turn(self, worker: int) -> None:
        """A worker's turn begins."""
        self.run.begin_turn(worker)

    def take_batch(self, step: Step, worker: int, micro: int) -> Any:
        """A worker's batch; a step that is walked again has the same ones."""
        if (worker, micro) not in self.taken:
            self.taken[worker, micro] = next(self.batches)
        self.run.turns.begin_batch(holding=micro < self.accumulate - 1)
        return self.taken[worker, micro]

    def end_turn(self, worker: int) -> None:
        """A worker's turn has ended."""
        self.run.end_turn(worker)

    def end_walk(self) -> None:
        """All turns have ended."""
        self.run.end_walk()

    def abandon_walk(self) -> int:
        """The loop was left."""
        return self.run.turns.abandon()

    def skip_batches(self) -> None:
        """Pass over the batches of a step that was not walked."""
        for _ in range(len(self.workers) * self.accumulate - len(self.taken)):
            next(self.batches)

    # Data.

    def draw_plan(self, epoch: int) -> None:
        """Draw the order of an epoch: of samples, or of a batch sampler's batches."""
        self.check_collate()
        if isinstance(self.data, Stream):
            feeds.check_data(self.feed, self.sampling)
            return
        is_batched = self.feed.batch_sampler is not None
        self.plan = (feeds.draw_batches if is_batched else feeds.draw_order)(self.feed, self.sampling, epoch)
        self.plans.note(self.feed, epoch, self.plan)

    def check_collate(self) -> None:
        """Refuse another collate function than that of `prepare`, set on the DataLoader that the script still has."""
        if isinstance(self.given, DataLoader) and vars(self.given).get("collate_fn", self.feed.collate) is not (
            self.feed.collate
        ):
            refuse_option("collate_fn")

    def fetch(self, epoch: int, plan: Any) -> Iterator[Any]:
        """The batches of this process's workers from the present position to the end of the epoch."""
        if isinstance(self.data, Stream):
            batches = self.data.batches(self.sampling, epoch, self.run.position.step_in_epoch, self.workers)
            return (self.feed.collate(batch) for batch in batches)
        indices = self.plan_batches(plan, self.workers)
        if isinstance(self.data, Tensors) and self.feed.collate is default_collate:
            return (self.data.batch(torch.as_tensor(batch)) for batch in indices)
        keys = ([SampleKey(epoch, int(index)) for index in batch] for batch in indices)
        if self.feed.num_workers == 0:
            return (self.collate(self.data.__getitems__(batch)) for batch in keys)
        return iter(self.open_pool(list(keys)))

    def plan_batches(self, plan: Any, local: list[int]) -> Iterator[Any]:
        """Sample indices, batch by batch in the order of the turns."""
        for step in range(self.run.position.step_in_epoch, len(self)):
            for worker in local:
                for micro in range(self.accumulate):
                    number = step * self.accumulate + micro
                    if self.feed.batch_sampler is not None:
                        yield plan[number * self.sampling.logical_workers + worker]
                    else:
                        yield samplings.batch_indices(self.sampling, plan, worker, number)

    def open_pool(self, batches: list[list[SampleKey]]) -> DataLoader[Any]:
        """DataLoader workers over these batches; their base seed comes from a generator of their own."""
        return DataLoader(
            self.data,
            batch_sampler=batches,
            num_workers=self.feed.num_workers,
            collate_fn=self.collate,
            generator=torch.Generator(),
            **dict(self.feed.pool),
        )
