"""One process of a profiling run: the user's script, unchanged, timed step by step. Started by `springtide profile`.

    SPRINGTIDE_PROFILE='{"factor": 2, "steps": 20, ...}' python -m springtide.cli.profile_worker SCRIPT ARGUMENT...

`springtide.init` is wrapped for this process: one logical worker per process, so that a process is a device; the
script's batch size times a factor; a stop after the asked steps or seconds. Only here does profiling import torch.
"""

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import springtide
from springtide.training import run
from springtide.training.workers.feeds import Feed
from springtide.training.workers.sampling import Sampling

VARIABLE = "SPRINGTIDE_PROFILE"
PROFILED = "profiled"


@dataclass
class Record:
    """What one process saw: when steps ended, and what the model is made of."""

    orders: dict[str, Any]
    ends_s: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    activation_bytes: int = 0

    def save(self) -> None:
        """Write the record where the orders say, for the process that started this one."""
        steps = [after - before for before, after in zip(self.ends_s, self.ends_s[1:], strict=False)]
        Path(self.orders["out"]).write_text(json.dumps({"steps_s": steps, **self.facts}), encoding="utf-8")


def main() -> None:
    """Run the script under the wrapped `springtide.init`."""
    record = Record(json.loads(os.environ[VARIABLE]))
    springtide.init = wrap_init(record, run.init)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def wrap_init(record: Record, init: Callable[..., Any]) -> Callable[..., Any]:
    """`springtide.init` with one logical worker per process, its run watched by the record."""

    def wrapped(logical_workers: int, seed: int = 0, determinism: str = "D1") -> Any:
        record.facts["script_logical_workers"] = logical_workers
        run = init(int(os.environ.get("WORLD_SIZE", "1")), seed, determinism)
        run.scale_feed = wrap_feed(record)
        run.prepare = wrap_prepare(record, run, run.prepare)
        run.begin_step = wrap_begin_step(record, run, run.begin_step)
        run.end_step = wrap_end_step(record, run, run.end_step)
        run.finish = wrap_finish(run, run.finish)
        if record.orders.get("count"):
            count_first_turn(record, run)
        return run

    return wrapped


def wrap_feed(record: Record) -> Callable[[Feed], Feed]:
    """The script's batch size times the ordered factor."""

    def wrapped(feed: Feed) -> Feed:
        record.facts["script_batch"] = feed.batch_size
        return replace(feed, batch_size=max(1, round(feed.batch_size * record.orders["factor"])))

    return wrapped


def wrap_prepare(record: Record, run: Any, prepare: Callable[..., Any]) -> Callable[..., Any]:
    """`run.prepare` that notes what it was given."""

    def wrapped(*parts: Any, **options: Any) -> Any:
        prepared = prepare(*parts, **options)
        parameters = [p for model in run.models for p in model.parameters()]
        sampling, batch = run.loader.sampling, record.facts["script_batch"]
        record.facts |= {
            "local_batch": sampling.batch_size * sampling.accumulate,
            "gradient_bytes": sum(p.numel() * p.element_size() for p in parameters if p.requires_grad),
            "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
            "transport": run.backend if len(run.roster.names) > 1 else "none",
            "steps_per_epoch": count_epoch(sampling, record.facts["script_logical_workers"], batch),
        }
        return prepared

    return wrapped


def count_epoch(sampling: Sampling, logical_workers: int, batch_size: int) -> int:
    """Global steps per epoch of the script as it is written, whatever is tried here."""
    return replace(sampling, logical_workers=logical_workers, batch_size=batch_size).steps_per_epoch


def wrap_begin_step(record: Record, run: Any, begin_step: Callable[..., Any]) -> Callable[..., Any]:
    """`run.begin_step` that lets the step be the last when enough steps or seconds have passed.

    By the clock of the first process, which the others hear of in the step.
    """

    def wrapped(*given: Any) -> Any:
        done = len(record.ends_s)
        over = done > record.orders["fewest"] and time.monotonic() - record.ends_s[0] > record.orders["seconds"]
        if (run.is_main and over) or done >= record.orders["steps"]:
            run.stop(PROFILED)
        return begin_step(*given)

    return wrapped


def wrap_end_step(record: Record, run: Any, end_step: Callable[[], None]) -> Callable[[], None]:
    """`run.end_step` that notes the time."""

    def wrapped() -> None:
        if run.device.type == "cuda":
            torch.cuda.synchronize()
        record.facts["script_steps"] = run.goal.total_steps(record.facts["steps_per_epoch"])
        end_step()
        record.ends_s.append(time.monotonic())
        if run.is_main:
            record.save()

    return wrapped


def wrap_finish(run: Any, finish: Callable[[], None]) -> Callable[[], None]:
    """`run.finish` that ends a profiled script: what follows its loop may save a model that has hardly been trained."""

    def wrapped() -> None:
        finish()
        if run.stop_reason == PROFILED:
            raise SystemExit(0)

    return wrapped


def count_first_turn(record: Record, run: Any) -> None:
    """Count the floating-point operations of the first turn, and the bytes that backward keeps."""
    counter = FlopCounterMode(display=False)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: _keep(record, tensor), lambda kept: kept)
    begin, end = run.begin_turn, run.end_turn
    counting = {"open": False, "done": False}

    def begin_turn(worker: int) -> None:
        begin(worker)
        if not counting["done"]:
            counting["open"] = True
            counter.__enter__()
            hooks.__enter__()

    def end_turn(worker: int) -> None:
        if counting["open"]:
            hooks.__exit__(None, None, None)
            counter.__exit__(None, None, None)
            counting.update(open=False, done=True)
            record.facts |= {"flops": counter.get_total_flops(), "activation_bytes": record.activation_bytes}
        end(worker)

    run.begin_turn, run.end_turn = begin_turn, end_turn


def _keep(record: Record, tensor: torch.Tensor) -> torch.Tensor:
    record.activation_bytes += tensor.numel() * tensor.element_size()
    return tensor


if __name__ == "__main__":
    main()
