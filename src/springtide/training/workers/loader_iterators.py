"""Iterators over other DataLoaders that a script carries from step to step: found in first steps, and refused.

`next(unlabelled)` beside the prepared loader: every process has its own place in such an iterator, and one that joins
or resumes begins it anew, so which batch a logical worker gets would depend on the number of processes. An iterator
that is begun and left within a step, as an evaluation is, carries nothing.
"""

import time
import weakref
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from springtide.errors import JobError
from springtide.training.living_objects import find_alive

#: In how many steps they are looked for, each time: a look goes over all objects, for some milliseconds.
LOOKS = 4


class SeenIterator:
    """An iterator over a DataLoader as it was when a step began: how far, and in which walk of the loader."""

    def __init__(self, iterator: _BaseDataLoaderIter) -> None:
        self.reference = weakref.ref(iterator)
        self.place = iterator._num_yielded
        self.walk = iterator._sampler_iter

    def find_carried(self) -> _BaseDataLoaderIter | None:
        """The iterator, if the same walk has gone on since: one with persistent workers begins anew, as another."""
        one = self.reference()
        return one if one is not None and one._sampler_iter is self.walk and one._num_yielded > self.place else None


class IteratorWatch:
    """What iterators there were when the last step began, and how far each was in which walk over its samples."""

    def __init__(self) -> None:
        self.looks = 0
        self.spent_s = 0.0
        self.seen: list[SeenIterator] = []
        #: Those of adapters that read the data of logical workers; their places move with the workers.
        self.of_workers: weakref.WeakSet[Any] = weakref.WeakSet()

    def look(self, own: Any) -> None:
        """At the beginning of a step: refuse an iterator that has gone on since the last, but for the run's own."""
        if self.looks == LOOKS:
            return
        began_s = time.monotonic()
        self.looks += 1
        for one in (seen.find_carried() for seen in self.seen):
            if one is not None and one is not own and one not in self.of_workers:
                refuse(one)
        if self.looks < LOOKS:
            found = find_alive(lambda kind: issubclass(kind, _BaseDataLoaderIter))
            self.seen = [SeenIterator(one) for one in found]
        else:
            self.seen = []
        self.spent_s += time.monotonic() - began_s

    def look_again(self) -> None:
        """Look in the next steps, too."""
        self.looks = 0

    def take_spent(self) -> float:
        """The seconds that looks have taken since this was last asked."""
        spent_s, self.spent_s = self.spent_s, 0.0
        return spent_s


def refuse(iterator: _BaseDataLoaderIter) -> None:
    """Say which, and what to write instead."""
    raise JobError(
        f"the script carries an iterator over another DataLoader (of {type(iterator._dataset).__name__}) from step to "
        "step. Every process has its own place in it, and one that joins or resumes begins it anew, so the bits would "
        "depend on the number of processes. Put both data into one dataset (torch.utils.data.StackDataset, or one of "
        "your own that returns both) and give that to run.prepare; to evaluate, begin the iterator where it is used"
    )
