"""Time of training loops: interleaved blocks within a process, and gangs of forked processes.

CPU time unless said; medians over blocks, because the machines are shared. What is timed is in `loops`.
"""

import contextlib
import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from experiments.loops import Loop

Made = Callable[[], Loop]
#: Functions by the class that has them and their name.
Methods = tuple[tuple[type, str], ...]
HIGHEST_PRIORITY = -20
#: Steps before those that count: DDP rebuilds its buckets in the second, an elastic run looks at all it has in the
#: first five (`turn_memory`, `loader_iterators`), and what both cost comes once in a run.
WARM = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds per global step: CPU summed over processes, also that within some functions, and wall of the slowest."""

    cpu_s: float
    wall_s: float
    within_s: float = 0.0


def time_interleaved(loops: Mapping[str, Loop], blocks: int, steps: int) -> dict[str, list[float]]:
    """CPU seconds per step of each loop, block by block, blocks of one following blocks of the other."""
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for loop in loops.values():
        advance(loop, steps)
    for _ in range(blocks):
        for name, loop in loops.items():
            before = time.process_time()
            advance(loop, steps)
            seconds[name].append((time.process_time() - before) / steps)
    return seconds


def advance(loop: Loop, steps: int) -> None:
    """Take this many global steps."""
    for _ in range(steps):
        next(loop)


@contextlib.contextmanager
def timing(methods: Methods) -> Iterator[list[int]]:
    """CPU nanoseconds spent in these functions, as the one item of a list, timed where they stand."""
    spent_ns = [0]
    originals = [getattr(owner, name) for owner, name in methods]
    for (owner, name), original in zip(methods, originals, strict=True):
        setattr(owner, name, timed(original, spent_ns))
    try:
        yield spent_ns
    finally:
        for (owner, name), original in zip(methods, originals, strict=True):
            setattr(owner, name, original)


def timed(function: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
    """The function, adding its CPU time to a sum."""

    def call(*args: Any) -> Any:
        before = time.thread_time_ns()
        result = function(*args)
        spent_ns[0] += time.thread_time_ns() - before
        return result

    return call


@dataclass(frozen=True, slots=True)
class Trial:
    """How a gang is measured: steps after some to warm up, on some cores if not on all, and functions within them."""

    steps: int
    warm: int = WARM
    cores: frozenset[int] | None = None
    within: Methods = ()


def time_gang(makers: Sequence[Made], trial: Trial) -> Cost:
    """Cost per step of processes forked from here, one per loop, that meet as torchrun's ranks would."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    held, release = os.pipe()
    ranks = []
    for rank, make in enumerate(makers):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            listener.close()
            os.close(release)
            set_ranks(rank, len(makers), port)
            become_rank(make, trial, writing, held)
        os.close(writing)
        ranks.append((child, reading))
    # Only now: a child forked while the store's thread held a lock of the C library would wait for it for ever.
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    rows = [read_row(reading) for _, reading in ranks]
    for pipe in (held, release):
        os.close(pipe)
    for child, _ in ranks:
        os.waitpid(child, 0)
    del store
    cpu_s, within_s = (sum(row[key] for row in rows) for key in ("cpu_s", "within_s"))
    return Cost(cpu_s, max(row["wall_s"] for row in rows), within_s)


def become_rank(make: Made, trial: Trial, writing: int, held: int) -> None:
    """In the child: measure, report, and leave only when all have reported, for peers still read our connections."""
    code = 1
    try:
        if trial.cores is not None:
            take_cores(trial.cores)
        os.write(writing, json.dumps(time_rank(make(), trial)).encode())
        os.close(writing)
        os.read(held, 1)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def take_cores(cores: frozenset[int]) -> None:
    """Stay on these cores, before anything else that wants them where the system lets us.

    Against one other program at the same priority, one process gets half of a core and four get four fifths of it.
    """
    os.sched_setaffinity(0, cores)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)


def set_ranks(rank: int, ranks: int, port: int, always: bool = False) -> None:
    """The environment that torchrun, which holds the store, gives a rank; none for a process alone, unless `always`."""
    if ranks > 1 or always:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}


def time_rank(loop: Loop, trial: Trial) -> dict[str, float]:
    """CPU and wall seconds per step in this process, after some steps to warm up."""
    advance(loop, trial.warm)
    wall, cpu = time.perf_counter(), time.process_time()
    with timing(trial.within) as spent_ns:
        advance(loop, trial.steps)
    seconds = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "within_s": spent_ns[0] / 1e9}
    return {name: each / trial.steps for name, each in seconds.items()}


def read_row(pipe: int) -> dict[str, float]:
    """What a rank reports."""
    with os.fdopen(pipe) as file:
        text = file.read()
    if not text:
        raise SystemExit("a measured process failed; its error is above")
    return {key: float(value) for key, value in json.loads(text).items()}
