"""A few threads for work that hangs only if a disk does, kept for the next piece; no server waits for their end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

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
        return await asyncio.wrap_future(self.begin(work))

    async def step(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Pieces of something, none of them empty, each found in one of them."""
        while piece := await self.run(partial(next, pieces, b"")):
            yield piece

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Have some work done in one of them."""
        told: Future[T] = Future()
        # a piece that nobody waits for any more has its thread until it has ended
        self.told = [one for one in self.told if not one.done()]
        if self.begun < min(len(self.told) + 1, self.most):
            try:
                threading.Thread(target=self.serve, name=self.name, daemon=True).start()
            except Exception as error:  # no room for another thread
                told.set_exception(error)
                return told
            self.begun += 1
        self.told.append(told)
        self.waiting.put((work, told))
        return told

    def serve(self) -> None:
        """Do one piece after another."""
        while True:
            work, told = self.waiting.get()
            if told.set_running_or_notify_cancel():
                try:
                    told.set_result(work())
                except BaseException as error:
                    told.set_exception(error)
            del work, told  # until the next one comes they would keep what they hold
