"""What of accelerate needs a rank of its own and belongs to no Accelerator: refused in an elastic run.

Functions of `accelerate.utils` (values of all ranks, seeds of their own) ask for the process's place where they are
written, whoever has imported them and when. They would give back what this process has, which is not what N ranks have.
"""

import sys
from functools import partial
from typing import Any

from accelerate.local_sgd import LocalSGD
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


def refuse_local_sgd() -> None:
    """Refuse, from now on, that a script trains weights of a rank's own; as on one process it would do nothing."""
    original = LocalSGD.__init__

    def begin(self: LocalSGD, accelerator: Any, model: Any, local_sgd_steps: int, enabled: bool = True) -> None:
        if enabled:
            raise JobError(
                f"LocalSGD(local_sgd_steps={local_sgd_steps}) in an elastic run: between two averages each rank would "
                "have weights of its own, and the logical workers of a process share theirs. Leave it out, or give "
                "enabled=False; gradient_accumulation_steps makes updates rarer with the same bits"
            )
        original(self, accelerator, model, local_sgd_steps, enabled)

    LocalSGD.__init__ = begin
