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
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist

from experiments.loops import Loop
from springtide.training.run import forget_run

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


class Gang:
    """Processes forked from here, one per loop, that meet as torchrun's ranks would and step when they are told to."""

    def __init__(self, makers: Sequence[Made], trial: Trial) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.ranks: list[tuple[int, socket.socket]] = []
        for rank, make in enumerate(makers):
            here, there = socket.socketpair()
            child = os.fork()
            if child == 0:
                here.close()  # else a rank would not see that this process has ended
                self.listener.close()
                forget_run()  # one of this process's own would take the number of ranks back when it is forgotten later
                set_ranks(rank, len(makers), self.port)
                become_rank(make, trial, there)
            there.close()
            self.ranks.append((child, here))

    def open(self) -> None:
        """Let the ranks meet, when all gangs are forked.

        A child forked while the store's thread held a lock of the C library would wait for it for ever.
        """
        descriptor = self.listener.detach()
        self.store = dist.TCPStore(
            "127.0.0.1", self.port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
        )

    def measure(self) -> Cost:
        """Let all take their steps; what a step has cost."""
        for _, line in self.ranks:
            line.send(b"\n")
        rows = [read_row(line) for _, line in self.ranks]
        cpu_s, within_s = (sum(row[key] for row in rows) for key in ("cpu_s", "within_s"))
        return Cost(cpu_s, max(row["wall_s"] for row in rows), within_s)

    def close(self) -> None:
        """End all, at once: a rank that left before the others would break the connections they still read."""
        for _, line in self.ranks:
            line.shutdown(socket.SHUT_WR)
        for child, line in self.ranks:
            os.waitpid(child, 0)
            line.close()


def time_gang(makers: Sequence[Made], trial: Trial) -> Cost:
    """Cost per step of a gang made for this."""
    with contextlib.closing(Gang(makers, trial)) as gang:
        gang.open()
        return gang.measure()


def time_in_turns(kinds: Mapping[str, tuple[Sequence[Made], Trial]], rounds: int) -> dict[str, list[Cost]]:
    """Costs of gangs that live at once and step one after the other, round by round.

    The speed of a shared machine changes within seconds; what is compared must lie closer together than that.
    """
    with contextlib.ExitStack() as living:
        gangs = {name: Gang(*kind) for name, kind in kinds.items()}
        for gang in gangs.values():
            living.callback(gang.close)
        for gang in gangs.values():
            gang.open()
        costs: dict[str, list[Cost]] = {name: [] for name in kinds}
        for gang in gangs.values():
            gang.measure()  # warms up, one gang at a time
        for _ in range(rounds):
            for name, gang in gangs.items():
                costs[name].append(gang.measure())
    return costs


def become_rank(make: Made, trial: Trial, line: socket.socket) -> None:
    """In the child: take steps and report whenever told to, until the line ends."""
    code = 1
    try:
        if trial.cores is not None:
            take_cores(trial.cores)
        loop = make()
        waits = line.makefile("rb")
        warm = trial.warm
        while waits.readline():
            line.sendall(json.dumps(time_rank(loop, replace(trial, warm=warm))).encode() + b"\n")
            warm = 0
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


def read_row(line: socket.socket) -> dict[str, float]:
    """What a rank reports."""
    text = line.makefile("rb").readline()
    if not text:
        raise SystemExit("a measured process failed; its error is above")
    return {key: float(value) for key, value in json.loads(text).items()}
