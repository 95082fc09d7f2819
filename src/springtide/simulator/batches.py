"""Runs many (trace, policy) pairs, one after the other or in several processes, always reported in the same order."""

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from time import perf_counter

from springtide.core.devices import Cluster
from springtide.core.jobs import Job
from springtide.errors import PolicyError
from springtide.policies import Policy, PolicyEntry, find_policy
from springtide.simulator.engine import Observer
from springtide.simulator.front import simulate
from springtide.simulator.recordings import Recording
from springtide.simulator.reports import SimulationReport
from springtide.simulator.traces import Trace

REFRESH_S = 0.25

TellShare = Callable[[str, float], None]  # (what is running, share of all runs that is done)


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """One run to do; `record` keeps what is needed to draw it. To run apart, a policy must be a name or picklable."""

    trace: Trace
    policy: str | Policy | PolicyEntry
    cluster: Cluster
    record: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A run's report, and its recording if one was asked for."""

    report: SimulationReport
    recording: Recording | None


def run_task(task: SimulationTask, watchers: Sequence[Observer] = ()) -> TaskResult:
    """Do one run."""
    recording = Recording() if task.record else None
    observers = (*watchers, recording) if recording else tuple(watchers)
    return TaskResult(simulate(task.trace, task.policy, task.cluster, observers), recording)


def run_tasks(
    tasks: Sequence[SimulationTask], processes: int = 1, tell: TellShare | None = None
) -> Iterator[TaskResult]:
    """Outcomes in the order of the tasks; `tell` hears of progress."""
    if processes <= 1 or len(tasks) <= 1:
        yield from _run_here(tasks, tell)
    else:
        yield from _run_apart(tasks, processes, tell)


def _run_here(tasks: Sequence[SimulationTask], tell: TellShare | None) -> Iterator[TaskResult]:
    for number, task in enumerate(tasks):
        watchers = (_Ticker(tell, _name(task), number, len(tasks), len(task.trace.jobs)),) if tell else ()
        yield run_task(task, watchers)


def _run_apart(tasks: Sequence[SimulationTask], processes: int, tell: TellShare | None) -> Iterator[TaskResult]:
    for policy in {id(task.policy): task.policy for task in tasks}.values():
        _check_picklable(policy)
    with _open_pool(min(processes, len(tasks))) as pool:
        futures = [pool.submit(run_task, task) for task in tasks]
        for number, (task, future) in enumerate(zip(tasks, futures, strict=True)):
            if tell:
                tell(_name(task), number / len(tasks))
            yield future.result()


def _check_picklable(policy: str | Policy | PolicyEntry) -> None:
    try:
        pickle.dumps(policy)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PolicyError(
            f"policy {find_policy(policy).name} cannot be sent to another process: {error}; define it at the top level "
            "of a module, or run in one process"
        ) from None


@contextmanager
def _open_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that are dropped with their queue when the run is broken off."""
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_on_interrupt)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _end_on_interrupt() -> None:
    """Let Ctrl-C end a worker at once and without a traceback of its own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _name(task: SimulationTask) -> str:
    return f"{task.trace.name} {find_policy(task.policy).name}"


@dataclass(slots=True)
class _Ticker(Observer):
    """An Observer that says how many of a run's jobs have been submitted, a few times a second."""

    tell: TellShare
    name: str
    run: int
    runs: int
    jobs: int
    seen: int = 0
    next_s: float = field(default_factory=perf_counter)

    def arrived(self, job: Job, now_s: float) -> None:
        self.seen += 1
        if self.seen % 32 == 0 and perf_counter() >= self.next_s:
            self.tell(self.name, (self.run + self.seen / self.jobs) / self.runs)
            self.next_s = perf_counter() + REFRESH_S


@contextmanager
def mute_solvers() -> Iterator[None]:
    """Drop what compiled code of this process, and of processes it starts, writes to stdout meanwhile.

    HiGHS 1.12, as scipy calls it with its display off, was seen to print a line of its own.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # the C library's own buffer, filled while muted
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
