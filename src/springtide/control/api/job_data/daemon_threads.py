"""A few threads for work that hangs only if a disk does, kept for the next piece; no server waits for their end."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from springtide.control.api.job_data.user_turns import do

T = TypeVar("T")


class DaemonThreads:
    """At most so many, begun when they are needed. The pools of the standard library are waited for at the end."""

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self.name = name
        self.waiting: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        #: How many there are, and what they do or have before them; for the loop's thread alone.
        self.begun = 0
        self.told: list[Future[Any]] = []

    async def run(self, work: Callable[[], T]) -> T:
        """What some work returns, done in one of them."""
        told: Future[T] = Future()
        # a piece that nobody waits for any more has its thread until it has ended
        self.told = [one for one in self.told if not one.done()] + [told]
        if self.begun < min(len(self.told), self.most):
            threading.Thread(target=self.serve, name=self.name, daemon=True).start()
            self.begun += 1
        self.waiting.put((work, told))
        return await asyncio.wrap_future(told)

    def serve(self) -> None:
        """Do one piece after another."""
        while True:
            work, told = self.waiting.get()
            if told.set_running_or_notify_cancel():
                do(work, told)
