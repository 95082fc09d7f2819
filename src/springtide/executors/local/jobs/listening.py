"""What a job's processes say, and what its runner does about it.

Of how far the job is only rank 0's word counts; where each process is, and what it is busy with, it says itself.
"""

import time
from typing import TYPE_CHECKING

from springtide.executors.local.jobs.attempt import Attempt
from springtide.executors.local.jobs.worker_messages import (
    BusyMessage,
    FailingMessage,
    LagMessage,
    LoopMessage,
    MetricsMessage,
    PlanMessage,
    ResizedMessage,
    ResumeMessage,
    StepMessage,
    StoreMessage,
    WarningMessage,
    WorkerMessage,
)
from springtide.executors.local.processes.worker_processes import STORE, WorkerProcess
from springtide.executors.protocol import CheckpointFailing, Lagging

if TYPE_CHECKING:
    from springtide.executors.local.jobs.runner import JobRunner


def interpret(runner: "JobRunner", attempt: Attempt, process: WorkerProcess, message: WorkerMessage) -> None:
    """Act on a message; of how far the job is, only rank 0's word counts."""
    match message:
        case StoreMessage() if process.name == STORE and not attempt.store:
            attempt.meet(message.address, runner.wanted, runner.workers)
            if not runner.spec.elastic:
                runner.begin(0)
            for lost in [process for process in attempt.ranked if not process.is_alive]:
                runner.handle_exit(lost)  # its host was lost while the store was started
        case StoreMessage():
            raise ValueError("`store`, which only the store says, and once")
        case LoopMessage():
            process.outside = message.event == "outside"
        case BusyMessage():
            process.busy = message.doing
        case _ if attempt.speaks_for_all(process):
            listen_to_first(runner, attempt, process, message)
        case MetricsMessage() if process.name in attempt.past_firsts:  # its last words, read after its successor's
            runner.keep_metrics(message)


def listen_to_first(runner: "JobRunner", attempt: Attempt, process: WorkerProcess, message: WorkerMessage) -> None:
    """Act on a message of rank 0."""
    if attempt.is_takeover(process) and isinstance(message, PlanMessage | StepMessage):
        since_s = runner.progress.stepped_s or attempt.began_s
        runner.complete_change(runner.progress.step, time.monotonic() - since_s)
    runner.progress.update(message, time.monotonic())
    act_on(runner, attempt, message)


def act_on(runner: "JobRunner", attempt: Attempt, message: WorkerMessage) -> None:
    """Do what a message of rank 0 calls for."""
    step = runner.progress.step
    match message:
        case PlanMessage():
            runner.handle_plan()
        case StepMessage():
            runner.handle_step()
        case ResizedMessage() if attempt.change is not None:
            runner.complete_change(step, message.pause_s)
        case FailingMessage():
            runner.reports.report(CheckpointFailing(**runner.common, step=step, reason=message.reason))
        case WarningMessage():
            runner.reports.warn(message.text)
        case LagMessage() if not message.laggard or message.laggard in attempt.held:
            device = attempt.held.get(message.laggard, "")
            runner.reports.report_lagging(Lagging(**runner.common, device=device, factor=message.factor))
        case ResumeMessage():
            for problem in message.passed_over:
                runner.reports.warn(f"checkpoint passed over: {problem}; goes on from step {message.step}")
        case MetricsMessage():
            runner.keep_metrics(message)
