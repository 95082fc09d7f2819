"""How far a script's own iterators have come: `next(rates)`, `itertools.count()`, a generator of the script.

A process that joins or resumes makes such an iterator anew. It cannot be set from outside, so that it is behind is told
by name. What is under way, as a generator that the loop over the steps goes through, is at its place in every process.
"""

import itertools
import operator
import warnings
from types import GeneratorType
from typing import Any

from springtide.training.state.script.loop_variables import OURS

#: How deep iterators are looked into: `zip` has others in it.
DEEPEST = 3
PLAIN = (bool, int, float, str, type(None))
EXAMPLES: list[Any] = [[], (), range(0), range(1 << 70), "", set(), {}, {}.values(), {}.items()]
OF_ITERTOOLS = (itertools.count, itertools.cycle, itertools.chain, itertools.repeat, itertools.islice)
BUILT_IN: tuple[Any, ...] = (
    *(type(iter(one)) for one in EXAMPLES),
    *(enumerate, zip, map, filter, reversed, type(reversed([]))),
    *(*OF_ITERTOOLS, itertools.starmap, itertools.accumulate),
    GeneratorType,
)


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of Python's own."""
    return type(value) in BUILT_IN


def mark_iterator(value: Any, depth: int = DEEPEST) -> str:
    """A text that is another when an iterator has gone on, and the same in every process where it has come as far."""
    if type(value) is GeneratorType:
        return mark_generator(value)
    if type(value) in (list, tuple, range) or not is_iterator(value) or not depth:
        return type(value).__name__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies of itertools will not be made by later Pythons
        try:
            parts: Any = value.__reduce__()
        except TypeError:
            parts = ()
    found = [*(parts[1] if len(parts) > 1 else ()), *(parts[2:])]
    inner = [repr(one) if type(one) in PLAIN else mark_iterator(one, depth - 1) for one in found]
    return f"{type(value).__name__} {operator.length_hint(value, -1)} {' '.join(inner)}"


def mark_generator(value: Any) -> str:
    """The same of a generator: where its code is, and its plain variables."""
    frame = value.gi_frame
    if frame is None:
        return "over"
    if value.gi_running or str(frame.f_globals.get("__name__", "")).startswith(OURS):
        return "under way"
    plain = {name: one for name, one in frame.f_locals.items() if type(one) in PLAIN}
    inner = [mark_iterator(one, 1) for one in frame.f_locals.values() if type(one) in BUILT_IN[:-1]]
    return f"generator {frame.f_lasti} {plain} {inner}"
