"""What other threads hand to the reconciler's thread and wait for: functions, and where their values go.

A waiting thread is told a value, an error that had no effect, or `UnavailableError`: nothing was done, or nobody can
say yet.
"""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from springtide.errors import UnavailableError

T = TypeVar("T")
UNDONE = "nothing was done; try again"
UNKNOWN = "whether it was done is not known; ask again before you send it again"
SAFE_AGAIN = "it can be sent again with the same Idempotency-Key"

#: A function that was handed in, and where its value goes.
Call: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class CallReply:
    """A value, or an error to raise, for the thread that waits."""

    future: "Future[Any]"
    value: Any
    #: Whether it holds whatever becomes of the rest of its step: it was committed by itself, or had no effect.
    is_final: bool = False

    def give(self) -> None:
        """Let the waiting thread have it."""
        if isinstance(self.value, BaseException):
            self.future.set_exception(self.value)
        else:
            self.future.set_result(self.value)


class CallQueue:
    """Functions from any thread, for one thread."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    def put(self, function: Callable[[], T]) -> "Future[T]":
        """Hand in a function; done when it was run and its effects are stored."""
        future: Future[T] = Future()
        self.waiting.put((function, future))
        return future

    def wake(self) -> None:
        """Let the thread that waits for calls go on without one."""
        self.waiting.put(None)

    def wait(self, wait_s: float) -> Call | None:
        """The next call, once there is one; None when the time is up."""
        try:
            return self.waiting.get(timeout=wait_s) if wait_s > 0 else None
        except queue.Empty:
            return None

    def take(self, first: Call | None = None) -> list[Call]:
        """Everything that was handed in by those who still wait, after `first`."""
        calls: list[Call] = []
        item = first
        try:
            while True:
                if item is not None and item[1].set_running_or_notify_cancel():
                    calls.append(item)
                item = self.waiting.get_nowait()
        except queue.Empty:
            return calls

    def turn_away(self, why: str) -> None:
        """Answer everyone that nothing can be done for them now."""
        for _, future in self.take():
            future.set_exception(UnavailableError(f"{why}; {UNDONE}"))


def answer_failure(calls: Sequence[Call], answers: Sequence[CallReply], why: str, is_stored: bool | None) -> None:
    """Tell those who wait that a step has failed: their values if it was stored nevertheless; None: nobody knows."""
    told = {id(one.future): one for one in answers if is_stored or one.is_final}
    sentence = f"{why}; {UNDONE if is_stored is False else UNKNOWN}"
    for _, future in calls:
        error = UnavailableError(sentence, unknown=is_stored is None)
        told.get(id(future), CallReply(future, error)).give()
