"""Functions of `accelerate.utils` that need a rank: values of all of them (`gather`, ...), seeds of their own; refused.

They belong to no Accelerator and ask for the process's place where they are written, whoever has imported them and
when. In an elastic run they would give back what this process has, which is not what N ranks have.
"""

import sys
from functools import partial
from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import operations, random

from springtide.errors import JobError

#: Who gathers only to log, or was compared with stock runs.
INNER = ("accelerate.", "transformers.", "springtide.", "trl.")


def watch_functions(run: Any) -> None:
    """Refuse, from now on, that a script calls one of the functions itself."""
    vars(operations)["PartialState"] = partial(find_state, run)


def find_state(run: Any) -> PartialState:
    """What the functions ask for, unless a script has called them."""
    if not run.prepared:
        return PartialState()
    frame, function = sys._getframe(1), ""
    while frame.f_back is not None and frame.f_globals.get("__name__") == operations.__name__:
        wrapped = frame.f_locals.get("function")  # of a decorator there
        function = frame.f_code.co_name if wrapped is None else wrapped.__name__
        frame = frame.f_back
    caller = str(frame.f_globals.get("__name__", ""))
    if not caller.startswith(INNER):
        raise JobError(
            f"accelerate.utils.{function} in an elastic run ({caller}): logical workers take turns, so no place has a "
            "value of each, and it would give back this process's. Call run.mean(values) or run.sum(values) after the "
            "turns; over a prepared evaluation loader, accelerator.gather_for_metrics"
        )
    return PartialState()


def watch_seeds(run: Any) -> None:
    """Refuse, from now on, that a script seeds each rank otherwise with `set_seed(..., device_specific=True)`."""
    vars(random)["AcceleratorState"] = partial(find_accelerator, run)


def find_accelerator(run: Any) -> AcceleratorState:
    """What `set_seed` and others there ask for."""
    if sys._getframe(1).f_code.co_name == "set_seed" and run.logical_workers > 1:
        raise JobError(
            "set_seed(..., device_specific=True) in an elastic run: a process has several logical workers, which would "
            "all have its rank's seed. Use set_seed(seed): each logical worker draws on its own from the first step on"
        )
    return AcceleratorState()
