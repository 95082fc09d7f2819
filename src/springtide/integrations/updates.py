"""A training loader as updates, for loops that users write: Accelerate's and Fabric's.

The loop over the loader runs once per update, the same on every process. The loop over an update gives the batches that
each logical worker here accumulates, in its turn; in a reference run those of the rank.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Protocol

import torch

from springtide.errors import JobError
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.worker_feeds import LocalFeeds
from springtide.training.workers.loaders import number_steps
from springtide.training.workers.steps import Step


class Update(Step):
    """One update: `for batch in update` gives each logical worker's batches of it, all that are accumulated."""

    def __init__(self, batches: Callable[[], Iterator[Any]], count: int, index: int, number: int, first: int) -> None:
        self.batches = batches
        #: How many batches of one logical worker it has, and whether more come after the present one.
        self.count, self.has_more = count, False
        #: Its places in the epoch and in the run, and that of its first batch in the epoch, from 0.
        self.index, self.number, self.first = index, number, first

    def walk(self) -> Generator[Any]:
        for place, batch in enumerate(self.batches(), 1):
            self.has_more = place % self.count > 0
            yield batch

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        for place, batch in enumerate(self.walk()):
            yield start + self.first + place % self.count, batch


class UpdateLoader:
    """A training loader as updates; what else a DataLoader has can be asked of it."""

    def __init__(self, loader: Any, accumulate: int, walk: Callable[["UpdateLoader"], Iterator[Update]]) -> None:
        self.loader = loader
        #: Batches of an update; an epoch's last one may have fewer.
        self.accumulate = accumulate
        self.walk = walk

    def __len__(self) -> int:
        return -(-len(self.loader) // self.accumulate)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.loader, name)

    def make_update(self, take: Callable[[int], Iterator[Any]], index: int, number: int) -> Update:
        """The update of this place in the epoch; an epoch's last one may have fewer batches."""
        first = index * self.accumulate
        count = min(self.accumulate, len(self.loader) - first)
        return Update(partial(take, count), count, index, number, first)

    def __iter__(self) -> Iterator[Update]:
        return self.walk(self)

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Update]]:
        """The updates with their places in the epoch, which are right in a process that joins or resumes within it."""
        return number_steps(self, start)


class Framework(Protocol):
    """What an adapter does where logical workers take turns."""

    run: Any
    #: What a script writes to walk epochs.
    epochs_call: str

    def show_worker(self, rank: int) -> None:
        """Tell the framework which rank is at work: a logical worker in its turn, else the process's own."""

    def tell_more(self, has_more: bool) -> None:
        """Tell the framework whether a batch is followed by others of its update."""

    def place_batch(self, batch: Any) -> Any:
        """A batch on its device."""


class ElasticUpdates:
    """The updates of an elastic run, in which the logical workers of this process take turns."""

    def __init__(self, framework: Framework, steps: Any, feeds: LocalFeeds) -> None:
        self.framework = framework
        self.run = framework.run
        self.steps = steps
        self.feeds = feeds

    def walk(self, loader: UpdateLoader) -> Iterator[Update]:
        """The updates of the epoch that are left."""
        if not self.run.in_epoch:
            raise JobError(
                f"the training loader was walked outside {self.framework.epochs_call}(n); write `for epoch in "
                f"{self.framework.epochs_call}(n):` around `for step in loader:`, and `for batch in step:` within it"
            )
        for step in self.steps:
            self.framework.show_worker(self.run.rank)  # a rescale may have changed it
            position = self.run.position
            self.feeds.follow(position.epoch, position.step_in_epoch * loader.accumulate)
            yield loader.make_update(partial(self.walk_turns, step, {}), step.index, step.number)
        self.framework.show_worker(self.run.rank)

    def walk_turns(self, step: Step, taken: dict[tuple[int, int], Any], count: int) -> Iterator[Any]:
        """The batches of each logical worker here, in its turn; the same ones where an update is walked again."""
        framework = self.framework
        try:
            for _ in step:
                worker = step.worker.rank
                framework.show_worker(worker)
                for number in range(count):
                    framework.tell_more(number < count - 1)
                    if (worker, number) not in taken:
                        taken[worker, number] = framework.place_batch(self.feeds.feeds[worker].take())
                    yield taken[worker, number]
        finally:
            framework.show_worker(self.run.rank)


class StockUpdates:
    """The updates of a rank of a stock run."""

    def __init__(self, stock: StockSteps, models: list[Any], optimizers: list[Any]) -> None:
        self.stock = stock
        self.parts = models, optimizers

    def note(self) -> None:
        """Write the digests of the update that has ended."""
        self.stock.note(self.stock.taken, *self.parts)

    def walk(self, loader: UpdateLoader) -> Iterator[Update]:
        """A rank's updates."""
        batches = iter(loader.loader)
        for index in range(len(loader)):
            if self.stock.is_last(self.stock.taken):
                return
            yield loader.make_update(partial(take, batches, []), index, self.stock.taken)
            self.stock.taken += 1
            self.note()
        next(batches, None)  # what a loop over a loader does last: it counts its epochs there

    def walk_epochs(self, count: int) -> Iterator[int]:
        """The epochs of a run."""
        for epoch in range(count):
            yield epoch
            self.note()
            if self.stock.is_last(self.stock.taken):
                break
        self.stock.finish()


def take(batches: Iterator[Any], taken: list[Any], count: int) -> Iterator[Any]:
    """So many batches; the same ones where an update is walked again."""
    for place in range(count):
        if place == len(taken):
            taken.append(next(batches))
        yield taken[place]


def hold_back(run: Any, models: tuple[torch.nn.Module, ...]) -> Any:
    """Within, backwards add to a logical worker's own gradients of these models, as in DDP's `no_sync`."""
    given = [getattr(one, "_orig_mod", one) for one in models]
    numbers = [number for number, model in enumerate(run.models) if any(model is one for one in given)]
    return run.turns.hold(numbers)
