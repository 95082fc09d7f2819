"""Functions of `accelerate.utils` that make one value of all ranks' (`gather`, `reduce`, `broadcast`, ...), refused.

They belong to no Accelerator and ask for the process's place where they are written, whoever has imported them and
when. In an elastic run they would give back what this process has, which is not what N ranks have.
"""

import sys
from functools import partial
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import operations

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
