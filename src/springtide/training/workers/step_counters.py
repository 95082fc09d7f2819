"""What counts the steps a loop is given: it would count from 0 in a process that joins or resumes within an epoch.

`enumerate(loader)` refers to the loader's iterator, and is found by that. Between the two there may be generators and
objects with a `__next__` (`enumerate(tqdm(loader))`, a function that passes steps on): they are at work while the first
step is asked for, so they are found by their frames.
"""

import gc
import inspect
import itertools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, GeneratorType
from typing import Any

from springtide.errors import JobError
from springtide.training.living_objects import bring_back, find_alive

#: What begins anew with every iterator, beside the steps that it passes on.
COUNTERS = (enumerate, zip, itertools.islice, itertools.compress, itertools.accumulate)
#: What passes items on and counts nothing; a tuple holds the iterators of `zip` and `map`.
PASSING = (tuple, map, filter, itertools.chain, itertools.takewhile, itertools.dropwhile, itertools.starmap)
#: More wrappers than anyone puts around a loader: a search that goes on beyond them is lost.
DEEPEST = 16


class CounterWatch:
    """Looks once at every place of the script that walks the loader, by whatever way its steps come there."""

    def __init__(self) -> None:
        self.seen: set[tuple[tuple[CodeType, int], ...]] = set()

    def check(self, iterator: Any, frame: FrameType | None) -> bool:
        """Refuse what counts the steps of an iterator; `frame` is the one that has just asked for its first step.

        Whether this place is a new one, so that it was looked for.
        """
        passing = list(list_passing(frame))
        loop = passing[-1].f_back if passing else frame
        # By lines: where in one a call is made changes when the interpreter has made the call a faster one.
        place = tuple((one.f_code, one.f_lineno) for one in (*passing, loop) if one is not None)
        if place in self.seen:
            return False
        self.seen.add(place)
        bring_back()
        counter = find_counter([iterator, *(find_owner(one) for one in passing)])
        if counter is not None:
            raise JobError(
                f"{type(counter).__name__} around the loader counts from 0 in a process that joins or resumes in the "
                "middle of an epoch; write `for i, step in loader.enumerate():`, or `for step in loader:` and use "
                "step.index (in the epoch) or step.number (in the run); within a step there is "
                "`for i, (x, y) in step.enumerate():`, with the same i for every logical worker"
            )
        return True


def list_passing(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames between the loader and the loop that pass its steps on: generators and `__next__`."""
    while frame is not None and (frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_code.co_name == "__next__"):
        yield frame
        frame = frame.f_back


def find_owner(frame: FrameType) -> Any:
    """The generator or the object whose frame this is."""
    if not frame.f_code.co_flags & inspect.CO_GENERATOR:
        return frame.f_locals.get(frame.f_code.co_varnames[0]) if frame.f_code.co_argcount else None
    generators = find_alive(lambda kind: kind is GeneratorType)
    return next((one for one in generators if one.gi_frame is frame), None)


def find_counter(iterators: list[Any]) -> Any:
    """What counts the items of one of these iterators, or of one that passes them on."""
    looked = {id(one) for one in iterators}
    for _ in range(DEEPEST):
        holders = [one for one in gc.get_referrers(*iterators) if id(one) not in looked]
        counter = next((one for one in holders if is_counter(one)), None)
        iterators = [one for one in holders if isinstance(one, PASSING)]
        if counter is not None or not iterators:
            return counter
        looked |= {id(one) for one in iterators}
    return None


def is_counter(holder: Any) -> bool:
    """Whether an iterator counts; `map` does over several iterables, as `zip`."""
    if isinstance(holder, map):
        return any(isinstance(one, tuple) and len(one) > 1 for one in gc.get_referents(holder))
    return isinstance(holder, COUNTERS)


def find_asker() -> FrameType | None:
    """The frame that has asked a generator for its next item; to be called by that generator."""
    return sys._getframe(1).f_back
