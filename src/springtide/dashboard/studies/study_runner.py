"""Runs studies in processes of their own, one at a time and one of each user, and keeps the last few results."""

import asyncio
import json
import os
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from springtide.control.api.job_data.user_turns import UserTurns
from springtide.control.storage.records import UserRecord
from springtide.core.shared_types import Document
from springtide.errors import InputError, LimitError, StateError

WALL_S = 120.0
WAITING = 4  # that may wait for their turn
MOST_OF_EACH = 32  # of one user that run or wait: each holds a connection, for minutes
KEPT = 16


@dataclass(slots=True)
class StudyRunner:
    """The studies of one server. What was computed once is not computed again while it is remembered."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: A user who asks for several waits for their own: the places for those who wait are everybody's.
    turns: UserTurns = field(default_factory=lambda: UserTurns(1, "study", (WAITING + 1) * WALL_S))
    waiting: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    results: OrderedDict[str, Document] = field(default_factory=OrderedDict)

    async def run(self, user: UserRecord, kind: str, body: Document) -> Document:
        """The result of a study; raises InputError where it cannot be had, StateError where it may be had later."""
        request = json.dumps({"kind": kind, "body": body}, sort_keys=True).encode()
        key = sha256(request).hexdigest()
        if key not in self.results:
            with self.count(user):
                async with self.turns.take(user):
                    # what was asked for twice is there by now
                    self.results[key] = self.results.get(key) or await self.wait_and_compute(request)
        self.results.move_to_end(key)
        while len(self.results) > KEPT:
            self.results.popitem(last=False)
        return self.results[key]

    @contextmanager
    def count(self, user: UserRecord) -> Iterator[None]:
        """Count a study of a user; raises LimitError if they have asked for too many."""
        if self.asked[user.id] >= MOST_OF_EACH:
            raise LimitError(
                f"{MOST_OF_EACH} studies of user {user.name} run or wait already; ask again when one has ended"
            )
        self.asked[user.id] += 1
        try:
            yield
        finally:
            self.asked[user.id] -= 1

    async def wait_and_compute(self, request: bytes) -> Document:
        """Compute when those who came before have been served."""
        if self.waiting >= WAITING:
            raise StateError(f"{WAITING} studies wait already, and one runs; ask again in a minute")
        self.waiting += 1
        try:
            await self.turn.acquire()
        finally:
            self.waiting -= 1
        try:
            return await compute(request)
        finally:
            self.turn.release()


async def compute(request: bytes) -> Document:
    """Compute in a process that ends with its reader, and in any case in time."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "springtide.dashboard.studies.study_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=dict(os.environ),
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(request), WALL_S)
    except TimeoutError:
        raise InputError(f"it takes more than {WALL_S:.0f} s; make it smaller, or run it yourself") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return read_answer(process.returncode or 0, output, errors)


def read_answer(code: int, output: bytes, errors: bytes) -> Document:
    """What a process found."""
    if code < 0:
        raise InputError("it takes more time than a server spends on a page; make it smaller, or run it yourself")
    if code:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise StateError(f"the process of the study ended with {code}: {last[:300]}")
    answer: Document = json.loads(output)
    if "refusal" in answer:
        raise InputError(answer["refusal"])
    result: Document = answer["result"]
    return result
