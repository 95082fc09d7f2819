"""A function of the user's that can be left where it asks for an optimizer's step, and gone on with later.

In manual optimization `training_step` calls `optimizer.step()` in its middle. Every logical worker must come to that
line before the step is taken, once, and only then may any go on. So each worker's call runs in a thread of its own;
never more than one of them, or the one that waits for them, runs at a time.
"""

import threading
from collections.abc import Callable
from typing import Any


class TurnThread:
    """One logical worker's call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.may_run, self.has_paused = threading.Semaphore(0), threading.Semaphore(0)
        #: What it waits for, and what it was given; its result or error once it has ended.
        self.asked: Any = None
        self.answer: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """In the thread: make the call when it is let."""
        self.may_run.acquire()
        try:
            self.result = self.call()
        except BaseException as error:  # it belongs to whoever waits
            self.error = error
        self.has_ended = True
        self.has_paused.release()

    def ask(self, question: Any) -> Any:
        """In the thread: wait for an answer."""
        self.asked = question
        self.has_paused.release()
        self.may_run.acquire()
        return self.answer

    def go_on(self) -> None:
        """Let the call run until it asks or ends."""
        self.asked = None
        self.may_run.release()
        self.has_paused.acquire()
        if self.error is not None:
            raise self.error
