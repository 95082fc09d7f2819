"""A global step as the script sees it: what the loader yields, and what it walks once per logical worker.

The loop over the loader runs once per global step, the same on every process. The loop over a step runs once for each
logical worker of this process. Whoever takes a step for a batch, as in a script for one process, is told at once.
"""

import contextlib
import dis
import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from springtide.errors import JobError
from springtide.training.workers.contexts import LogicalWorker

if TYPE_CHECKING:
    from springtide.training.workers.loaders import StepSource

FORM = """
    for step in loader:            # one global step, the same on every process
        for x, y in step:          # the batches of the logical workers of this process
            loss = loss_fn(model(x), y)
            loss.backward()
        optimizer.step()           # once, on the reduced gradients
        optimizer.zero_grad()"""
UNPACKING = {dis.opmap["UNPACK_SEQUENCE"], dis.opmap["UNPACK_EX"]}


class Step:
    """One global step: `for batch in step` gives the batch of each logical worker of this process in its turn.

    When that loop ends the gradients are reduced. A step may be walked again (an L-BFGS closure, a second network):
    each walk has the same batches and a reduction of its own.
    """

    def __init__(self, source: "StepSource", index: int, number: int) -> None:
        self._source = source
        #: Its place in the epoch, from 0: what `enumerate(loader)` would count.
        self.index = index
        #: Its place in the run, from 0.
        self.number = number
        #: How often it was walked to the end, and the worker in whose turn a walk was left.
        self.walks = 0
        self.left_at: int | None = None

    @property
    def worker(self) -> LogicalWorker:
        """The logical worker whose turn it is."""
        return self._source.find_worker()

    def __iter__(self) -> Iterator[Any]:
        if is_unpacking(sys._getframe(1)):
            refuse_form("unpacked")
        return self.walk()

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        """The batches of a walk, numbered within the epoch as `enumerate(loader)` numbers them on a rank of DDP."""
        accumulate, place = self._source.accumulate, 0
        with contextlib.closing(self.walk()) as batches:
            for batch in batches:
                yield start + self.index * accumulate + place % accumulate, batch
                place += 1

    def walk(self) -> Generator[Any]:
        """The batches of this process's logical workers, each in its worker's context."""
        source = self._source
        source.begin_walk(self)
        try:
            for worker in source.workers:
                source.begin_turn(worker)
                for micro in range(source.accumulate):
                    batch = source.take_batch(self, worker, micro)
                    yield batch
                source.end_turn(worker)
        except GeneratorExit:
            self.left_at = source.abandon_walk()
            raise
        source.end_walk()
        self.walks += 1

    def check_whole(self) -> None:
        """Refuse a step whose loop was left before every logical worker had its turn."""
        if self.left_at is not None:
            raise JobError(
                f"`for ... in step:` was left in the turn of logical worker {self.left_at}; every logical worker must "
                "take its turn, as every rank of DDP must. Leave the loop over the loader instead; beside other things "
                "walk zip(step, others), for zip(others, step) ends before the last turn has"
            )

    # What a batch would have.

    def __getitem__(self, key: Any) -> NoReturn:
        refuse_form("indexed")

    def __len__(self) -> NoReturn:
        refuse_form("measured with len()")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(describe_form(f"asked for .{name}"))

    def keys(self) -> NoReturn:
        """A step is no dictionary."""
        refuse_form("taken for a dictionary")


def is_unpacking(frame: FrameType) -> bool:
    """Whether a frame is at `a, b = ...`, as `for x, y in loader` is."""
    return frame.f_code.co_code[frame.f_lasti] in UNPACKING


def describe_form(how: str) -> str:
    """How a loop over the loader is to be written."""
    return f"a step of the loader was {how}, as if it were a batch. Walk it:{FORM}"


def refuse_form(how: str) -> NoReturn:
    """Refuse to be a batch."""
    raise JobError(describe_form(how))
