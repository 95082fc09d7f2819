"""Time of training loops: interleaved blocks within a process, and gangs of forked processes.

CPU time unless said; medians over blocks, because the machines are shared. What is timed is in `training_workloads`.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

import torch.distributed as dist

from benchmarks.training_workloads import Loop

Made = Callable[[], Loop]


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds per global step: CPU summed over processes, and wall of the slowest."""

    cpu_s: float
    wall_s: float


def time_interleaved(loops: Mapping[str, Loop], blocks: int, steps: int) -> dict[str, float]:
    """Median CPU seconds per step of each loop, blocks of one following blocks of the other."""
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for loop in loops.values():
        advance(loop, steps)
    for _ in range(blocks):
        for name, loop in loops.items():
            before = time.process_time()
            advance(loop, steps)
            seconds[name].append((time.process_time() - before) / steps)
    return {name: median(values) for name, values in seconds.items()}


def advance(loop: Loop, steps: int) -> None:
    """Take this many global steps."""
    for _ in islice(loop, steps):
        pass


def time_gang(make: Sequence[Made], steps: int, warm: int = 3, cores: set[int] | None = None) -> Cost:
    """Cost per step of processes forked from here, one per loop, that meet as torchrun's ranks would."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = [fork_rank(rank, made, store.port, len(make), steps, warm, cores) for rank, made in enumerate(make)]
    rows = [read_row(child, pipe) for child, pipe in pipes]
    return Cost(sum(row["cpu_s"] for row in rows), max(row["wall_s"] for row in rows))


def fork_rank(
    rank: int, make: Made, port: int, ranks: int, steps: int, warm: int, cores: set[int] | None
) -> tuple[int, int]:
    """Fork one rank; its process id and the pipe on which it will report."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            set_ranks(rank, ranks, port)
            if cores is not None:
                os.sched_setaffinity(0, cores)
            os.write(writing, json.dumps(time_rank(make(), steps, warm)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    return child, reading


def set_ranks(rank: int, ranks: int, port: int) -> None:
    """The environment that torchrun, which holds the store, gives a rank; none for a process alone."""
    if ranks > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}


def time_rank(loop: Loop, steps: int, warm: int) -> dict[str, float]:
    """CPU and wall seconds per step in this process, after some steps to warm up."""
    advance(loop, warm)
    wall, cpu = time.perf_counter(), time.process_time()
    advance(loop, steps)
    return {"cpu_s": (time.process_time() - cpu) / steps, "wall_s": (time.perf_counter() - wall) / steps}


def read_row(child: int, pipe: int) -> dict[str, float]:
    """What a rank reported, once it has ended."""
    with os.fdopen(pipe) as file:
        text = file.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit("a measured process failed; its error is above")
    return {key: float(value) for key, value in json.loads(text).items()}
