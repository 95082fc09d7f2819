"""An executor that never holds its caller up: a thread of its own makes the calls, and is waited for briefly.

An executor may hang (its agent is stopped, a disk does not answer, another agent is being started), and the thread that
decides for everybody must not hang with it. A call that is not answered in time is left to the thread of its own, and
no other is made until it has ended; nothing is lost, because executors may be told and asked the same thing twice.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from springtide.core.durations import show_span
from springtide.errors import ExecutorError
from springtide.executors.protocol import Event, Executor, ExecutorNode, Instruction, Running

logger = logging.getLogger("springtide.control")

T = TypeVar("T")
PATIENCE_S = 0.5  # for one answer; one that answers takes milliseconds


class UnansweredError(ExecutorError):
    """An executor was asked so many seconds ago and has not answered; whether it acts on that is not known."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"it was asked {show_span(waited_s)} ago and has not answered; its jobs go on meanwhile")
        self.waited_s = waited_s


@dataclass(frozen=True, slots=True)
class ExecutorReply:
    """What a call has returned, or what it has raised."""

    value: Any = None
    error: BaseException | None = None


class NonBlockingExecutor:
    """An executor whose every method returns soon: with its answer, or with UnansweredError. For one thread's use."""

    def __init__(self, executor: Executor, patience_s: float = PATIENCE_S) -> None:
        self.executor = executor
        self.patience_s = patience_s
        self.requests: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.replies: queue.SimpleQueue[ExecutorReply] = queue.SimpleQueue()
        self.is_owed = False  # whether a reply is still to come
        self.asked_s = 0.0
        #: Up to which event the executor may forget, and has been told to.
        self.upto = self.forgotten = 0
        # a daemon: a call that hangs does not keep the process from ending
        threading.Thread(target=self.serve, name="executor calls", daemon=True).start()

    def apply(self, instructions: Sequence[Instruction]) -> None:
        """Have instructions taken; after UnansweredError they may be, and are to be sent again."""
        self.ask(partial(self.executor.apply, tuple(instructions)))

    def events(self, after: int) -> Sequence[Event]:
        """The events with numbers greater than `after`."""
        return self.ask(partial(self.look, after))

    def acknowledge(self, upto: int) -> None:
        """Let the executor forget events, with the next look at them: a call of its own would be a hand-over to another
        thread and back, right after each answer.
        """
        self.upto = upto

    def look(self, after: int) -> Sequence[Event]:
        """In the other thread: ask for what came, and have what was worked in forgotten, or else with the next."""
        events = self.executor.events(after)
        if self.upto > self.forgotten:
            self.forgotten = self.upto
            try:
                self.executor.acknowledge(self.forgotten)
            except Exception:
                logger.warning("the executor does not forget events up to %d", self.forgotten, exc_info=True)
        return events

    def running(self) -> Sequence[Running]:
        """The jobs that hold devices, by name."""
        return self.ask(self.executor.running)

    def nodes(self) -> Sequence[ExecutorNode]:
        """The machines and their devices."""
        return self.ask(self.executor.nodes)

    def outage(self) -> str:
        """What the executor cannot do now while jobs go on."""
        return self.ask(self.executor.outage)

    def ask(self, call: Callable[[], T]) -> T:
        """The value of a call, or what it raises; UnansweredError at once while an earlier one is not answered."""
        self.drop_owed()
        self.asked_s, self.is_owed = time.monotonic(), True
        self.requests.put(call)
        reply = self.wait(self.patience_s)
        if reply.error is not None:
            raise reply.error
        value: T = reply.value
        return value

    def drop_owed(self) -> None:
        """Take the reply to a call that was given up, if there was one; UnansweredError if it has not come yet."""
        if self.is_owed:
            self.wait(0.0)

    def wait(self, wait_s: float) -> ExecutorReply:
        """The reply that is owed, once it has come."""
        try:
            reply = self.replies.get(timeout=wait_s) if wait_s > 0 else self.replies.get_nowait()
        except queue.Empty:
            raise UnansweredError(time.monotonic() - self.asked_s) from None
        self.is_owed = False
        return reply

    def serve(self) -> None:
        """Make the calls, one after the other."""
        while (call := self.requests.get()) is not None:
            try:
                self.replies.put(ExecutorReply(call()))
            except BaseException as error:  # raised where the answer is waited for
                self.replies.put(ExecutorReply(error=error))

    def close(self) -> None:
        """End the thread once its present call has ended."""
        self.requests.put(None)
