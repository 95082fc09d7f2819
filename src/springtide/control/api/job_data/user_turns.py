"""What may take long, or hang: so much at a time for each user, and in threads of its own.

Whoever waits for it waits for themselves: for a body that trickles in, for storage that does not answer, for a folder
on a disk that is gone. A thread whose work nobody waits for any more counts until it has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from springtide.control.api.entrance.refusals import Refused
from springtide.control.daemon_threads import DaemonThreads
from springtide.control.storage.records import UserRecord

T = TypeVar("T")
TURN_S = 30.0  # that a user with as many as allowed waits for one to end
AGAIN_S = 5.0


class NotBegunError(TimeoutError):
    """All threads are taken by what hangs for others: nobody has begun."""


class UserTurns:
    """At most so many at a time of each user; more wait for their turn, and are refused if it does not come."""

    def __init__(self, most: int, what: str, patience_s: float | None = None) -> None:
        self.most = most
        self.what = what
        #: How long a user waits for one of their own to end; None: as long as for most things.
        self.patience_s = patience_s
        self.turns: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def take(self, user: UserRecord) -> AsyncIterator[None]:
        """Have a turn, when it comes."""
        turn = await self.wait(user)
        try:
            yield
        finally:
            turn.release()

    async def wait(self, user: UserRecord) -> asyncio.Semaphore:
        """Wait for a turn; it is given back with `release`."""
        turn = self.turns.setdefault(user.id, asyncio.Semaphore(self.most))
        patience_s = TURN_S if self.patience_s is None else self.patience_s
        try:
            async with asyncio.timeout(patience_s):
                await turn.acquire()
        except TimeoutError:
            sentence = (
                f"user {user.name} has {self.most} {self.what} under way, as many as may be at a time, "
                f"and none has ended within {patience_s:g} s; nothing was done; try again when one has"
            )
            raise Refused(429, "limit", sentence, wait_s=AGAIN_S) from None
        return turn


class UserThreads:
    """Threads for one kind of work; at most so many at a time work for each user.

    One that hangs for ever keeps neither the server from ending nor the next one from starting.
    """

    def __init__(self, what: str, most: int, most_of_each: int) -> None:
        self.free = asyncio.Semaphore(most)
        self.turns = UserTurns(most_of_each, what)
        self.threads = DaemonThreads(most, what)

    async def run(self, user: UserRecord, work: Callable[[], T], within_s: float) -> T:
        """What some work for a user returns; TimeoutError if it takes longer, NotBegunError if it is not begun."""
        turn, is_begun = await self.turns.wait(user), False
        try:
            async with asyncio.timeout(within_s):
                await self.free.acquire()
                done, is_begun = self.begin(work, turn), True
                return await asyncio.shield(done)
        except TimeoutError:
            if not is_begun:
                raise NotBegunError(f"too many {self.turns.what} are under way") from None
            raise
        finally:
            if not is_begun:
                turn.release()

    def begin(self, work: Callable[[], T], turn: asyncio.Semaphore) -> "asyncio.Future[T]":
        """Begin some work in a thread, which is free again when it has ended."""
        done = asyncio.wrap_future(self.threads.begin(work))

        def end(ended: "asyncio.Future[T]") -> None:
            turn.release()
            self.free.release()
            if not ended.cancelled():
                ended.exception()  # seen: nobody may wait for it any more

        done.add_done_callback(end)
        return done
