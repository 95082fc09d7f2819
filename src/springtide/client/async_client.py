"""`springtide.AsyncClient`: the methods of `Client`, awaited. Each runs in a thread; waiting and streaming hold none.

A method that is cancelled while its request is under way leaves that request to end by itself; `wait`, `logs` and
`read_log` end at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from springtide.client.client import FOLLOW_S, RANK_0, Client
from springtide.client.log_streams import LogChoice, LogLine
from springtide.client.replies import JobInfo
from springtide.client.server_connection import JobRef

if TYPE_CHECKING:
    from springtide.client.board_replies import BoardInfo

P = ParamSpec("P")
R = TypeVar("R")


class InThread(Generic[P, R]):
    """A method of `Client` as one that is awaited; its parameters and what it returns are the same."""

    def __init__(self, method: Callable[Concatenate[Client, P], R]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*words: P.args, **named: P.kwargs) -> R:
            return await asyncio.to_thread(self.method, instance.client, *words, **named)

        update_wrapper(call, self.method)
        return call


class AsyncClient:
    """A connection to one server, for programs with an event loop.

    async with springtide.AsyncClient() as client:
        job = await client.submit("job.yaml")
        async for line in client.read_log(job, follow=True):
            print(line.text)
        print((await client.wait(job)).met)
    """

    def __init__(self, url: str | None = None, token: str | None = None, home: Path | str | None = None) -> None:
        self.client = Client(url, token, home)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.client.close()

    submit = InThread(Client.submit)
    submit_array = InThread(Client.submit_array)
    array = InThread(Client.array)
    cancel_array = InThread(Client.cancel_array)
    hold_array = InThread(Client.hold_array)
    release_array = InThread(Client.release_array)
    resume_array = InThread(Client.resume_array)
    plan = InThread(Client.plan)
    accept = InThread(Client.accept)
    cancel = InThread(Client.cancel)
    resume = InThread(Client.resume)
    hold = InThread(Client.hold)
    release = InThread(Client.release)
    jobs = InThread(Client.jobs)
    job = InThread(Client.job)
    why = InThread(Client.why)
    events = InThread(Client.events)
    metrics = InThread(Client.metrics)
    attempts = InThread(Client.attempts)
    predictions = InThread(Client.predictions)
    checkpoints = InThread(Client.checkpoints)
    files = InThread(Client.files)
    fetch = InThread(Client.fetch)
    fetch_files = InThread(Client.fetch_files)
    receipt = InThread(Client.receipt)
    was_sealed_here = InThread(Client.was_sealed_here)
    note_verification = InThread(Client.note_verification)
    inside = InThread(Client.inside)
    notices = InThread(Client.notices)
    usage = InThread(Client.usage)
    devices = InThread(Client.devices)
    nodes = InThread(Client.nodes)
    server = InThread(Client.server)

    async def board(self, **choice: Any) -> "BoardInfo":
        """All jobs on one axis of time, with the devices."""
        return await asyncio.to_thread(lambda: self.client.board(**choice))

    async def wait(
        self, job: JobRef, until: Callable[[JobInfo], bool] = lambda job: job.ended, poll_s: float = FOLLOW_S
    ) -> JobInfo:
        """The job once a condition holds; by default, once it has ended."""
        while not until(found := await self.job(job)):
            await asyncio.sleep(poll_s)
        return found

    def each_job(self, states: Iterable[str] = (), user: str | None = None) -> AsyncIterator[JobInfo]:
        """All jobs of these states (every one if none are given) and of a user, newest first; asked for by pages."""
        return iterate(lambda: self.client.each_job(states, user))

    def read_log(self, job: JobRef, choice: LogChoice = RANK_0, follow: bool = False) -> AsyncIterator[LogLine]:
        """What a job printed and recorded, line by line in the order of time."""
        return iterate(lambda: self.client.read_log(job, choice, follow))

    def logs(self, job: JobRef, rank: int = 0, follow: bool = False, tail: int | None = None) -> AsyncIterator[str]:
        """Pieces of a rank's log; with `follow`, until the job has ended."""
        return iterate(lambda: self.client.logs(job, rank, follow, tail))


async def iterate(start: Callable[[], Iterator[R]]) -> AsyncIterator[R]:
    """What an iterator gives, each asked for in a thread."""
    iterator = await asyncio.to_thread(start)
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield item  # type: ignore[misc]  # it is not the end
