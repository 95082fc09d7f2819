"""What logical workers cost in time, measured on the examples: switches, turns beside stock DDP, determinism levels.

    python -m experiments.overheads     (an order as JSON on its input: what, example, workers, steps, ...)

CPU seconds of one worker's mini-batch. Every order is answered by a process that has not trained before: libraries read
their instruction set at their first operator, and forked ranks must not inherit a pool of threads.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it; forked ranks must not pay for it

from experiments.emulated_devices import DEVICE_TYPES
from experiments.gangs import Trial, advance, time_gang
from experiments.loops import Loop, load_workload, step_accumulating, step_ddp, step_elastic
from experiments.switches import measure_switches


def measure_switching(example: str, workers: int, steps: int) -> dict[str, float]:
    """Seconds of a mini-batch with all workers in one process, and of the switches in it."""
    loop = step_elastic(load_workload(example), workers)
    advance(loop, 2)
    switching_s, step_s = measure_switches(loop, steps)
    return {"switch_s": switching_s / workers, "minibatch_s": step_s / workers}


def measure_turns(example: str, workers: int, steps: int) -> dict[str, float]:
    """Seconds of an ordinary worker's turn, of the last one's (which adds up and updates), and of stock DDP's."""
    stock = time_gang([partial(step_ddp, load_workload(example))] * workers, Trial(steps))
    loop = step_elastic(load_workload(example), workers)
    advance(loop, 2 * workers)
    turns = [[time_next(loop) for _ in range(workers)] for _ in range(steps)]
    ordinary = median(seconds for step in turns for seconds in step[:-1])
    last = median(step[-1] for step in turns)
    return {"ordinary_s": ordinary, "last_s": last, "ddp_s": stock.cpu_s / workers}


def time_next(loop: Loop) -> float:
    """CPU seconds of one turn."""
    before_s = process_time()
    next(loop)
    return process_time() - before_s


def measure_levels(example: str, workers: int, steps: int, rounds: int) -> dict[str, dict[str, float | str]]:
    """Seconds of a mini-batch by device type and level; `base` is a plain loop without any of ours."""
    found: dict[str, dict[str, float | str]] = {}
    for kind, variables in DEVICE_TYPES.items():
        makers: Mapping[str, Callable[[], Loop]] = {
            "base": partial(start_plain, variables, example, workers),
            "D1": partial(start_level, variables, example, workers, "D1"),
            "D1+D2": partial(start_level, variables, example, workers, "D2"),
        }
        seconds: dict[str, list[float]] = {name: [] for name in makers}
        refused: dict[str, str] = {}
        for _ in range(rounds):
            for name, make in makers.items():
                try:
                    if name not in refused:
                        seconds[name].append(time_gang([make], Trial(steps)).cpu_s / workers)
                except SystemExit:
                    refused[name] = "refused"
        found[kind] = {name: refused.get(name) or min(values) for name, values in seconds.items()}
    return found


def start_plain(variables: Mapping[str, str], example: str, workers: int) -> Loop:
    """Gradient accumulation over as many micro-batches on an emulated device type."""
    os.environ.update(variables)
    torch.set_num_threads(1)
    return step_accumulating(load_workload(example), workers)


def start_level(variables: Mapping[str, str], example: str, workers: int, level: str) -> Loop:
    """Our loop at a level on an emulated device type."""
    os.environ.update(variables)
    os.environ["SPRINGTIDE_LEVEL"] = level
    return step_elastic(load_workload(example), workers)


ORDERS: Mapping[str, Callable[..., Any]] = {
    "switching": measure_switching,
    "turns": measure_turns,
    "levels": measure_levels,
}


def main() -> None:
    """Answer one order."""
    order = json.load(sys.stdin)
    torch.set_num_threads(1)
    print(json.dumps(ORDERS[order.pop("what")](**order)), flush=True)


if __name__ == "__main__":
    main()
