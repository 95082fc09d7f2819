"""The thread that tells people: takes what is due from the store, a few of each owner, and notes what came of each.

What is to be told was stored with what happened, so a server that is killed tells it after its next start; a notice
whose delivery was under way then may arrive twice. Nothing that one notice does ends the thread or waits for others.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from springtide.control.daemon_threads import DaemonThreads
from springtide.control.notices.notice_decisions import OF_EACH, choose_next, is_news, note_try
from springtide.control.notices.notice_deliveries import MailServer, deliver
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.storage.database.databases import is_unavailable
from springtide.control.storage.records import JobRecord, NoticeRecord
from springtide.control.storage.store import Store
from springtide.core.durations import show_span

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("springtide.notices")

LOOK_S = 2.0  # between looks for what is due again
REST_S = 0.05  # after a look: what was stored or has ended meanwhile is seen by the next one
STILL_S = 60.0  # without a look: something has stopped
#: Names of hosts are looked up in threads that cannot be broken off; one that nobody answers for takes half a minute.
MOST_LOOKUPS = 64


class LookupThreads(ThreadPoolExecutor):
    """Daemon threads behind the only kind of executor that a loop takes: nobody waits for a lookup at the end."""

    def __init__(self) -> None:
        super().__init__(1)  # whose one thread is never begun
        self.threads = DaemonThreads(MOST_LOOKUPS, "notice-lookup")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin a lookup."""
        return self.threads.begin(partial(fn, *args, **kwargs))


class Notifier:
    """Tells until it is closed. Nothing here is waited for by the reconciler."""

    def __init__(
        self,
        store: Store,
        now_s: Callable[[], float],
        mail: MailServer | None,
        note_failure: Callable[[NoticeRecord], object],
    ) -> None:
        self.store, self.now_s, self.mail = store, now_s, mail
        #: Hears of notices that do not arrive: at the first try, and when they are given up.
        self.note_failure = note_failure
        self.ended = False
        self.looked_s = time.monotonic()
        self.failing = ""  # why the last look failed; empty after a good one
        #: The owners of the notices that are under way, by their numbers.
        self.under_way: dict[int, str] = {}
        #: When each owner last had a turn, as a number that grows.
        self.turns: dict[str, int] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.news = asyncio.Event()
        self.thread = threading.Thread(target=self.run, name="notifier", daemon=True)

    def start(self) -> None:
        """Begin, with what an earlier server has left."""
        self.store.listeners.append(self.hear)
        self.thread.start()

    def hear(self, jobs: Mapping[str, JobRecord]) -> None:
        """Something was stored."""
        if any(record.spec.notify for record in jobs.values()):
            self.wake()

    def wake(self) -> None:
        """Have the thread look at once."""
        if self.loop is not None:
            with suppress(RuntimeError):  # it has just ended
                self.loop.call_soon_threadsafe(self.news.set)

    def close(self) -> None:
        """End; what is under way is broken off, and told by the next server."""
        self.store.listeners.remove(self.hear)
        self.ended = True
        while self.thread.is_alive():
            self.wake()
            self.thread.join(0.2)

    def check(self) -> dict[str, Any]:
        """What is wrong with telling, in the form of a check of readiness; no server is unready for it.

        A standby has no notifier: whoever sends requests elsewhere would lose the whole API over its mail.
        """
        age_s = time.monotonic() - self.looked_s
        sentence = ""
        if not self.thread.is_alive():
            sentence = "the thread that sends notices has ended; start the server again"
        elif age_s > STILL_S:
            sentence = f"nobody has looked for notices to send for {show_span(age_s)}; start the server again"
        elif self.failing:
            sentence = f"notices cannot be read, and are looked for again: {self.failing}"
        return {"ok": True, "age_s": round(age_s, 3), "sentence": sentence}

    def run(self) -> None:
        """Look for what is due, now and then and whenever something was stored."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(LookupThreads())
        try:
            self.loop.run_until_complete(self.tell_due())
        finally:
            self.loop.close()  # which waits for no lookup

    async def tell_due(self) -> None:
        """Begin what is due until this is closed, then break off what is under way."""
        while not self.ended:
            self.news.clear()
            try:
                self.begin_due()
                self.failing = ""
            except Exception as error:
                logger.exception("notices could not be read; they are looked for again")
                self.failing = show_safely(error)
            self.looked_s = time.monotonic()
            await asyncio.sleep(REST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.news.wait()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def begin_due(self) -> None:
        """Begin to tell what is due, as much as may be under way at once."""
        waiting = self.store.list_due_notices(self.now_s(), OF_EACH, self.under_way)
        for seq, owner in choose_next(waiting, list(self.under_way.values()), self.turns):
            self.turns[owner] = max(self.turns.values(), default=0) + 1
            notice = self.read(seq)
            if notice is not None:
                self.under_way[seq] = owner
                task = asyncio.create_task(self.send(notice, owner))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    def read(self, seq: int) -> NoticeRecord | None:
        """The notice of a number; None if it is gone, or given up because its row cannot be read."""
        try:
            return self.store.find_notice(seq)
        except Exception as error:
            if is_unavailable(error):  # all of them
                raise
            logger.exception("notice %d was given up: its row cannot be read", seq)
            self.store.give_up_notice(seq, f"its row in the database cannot be read: {show_safely(error)}")
            return None

    async def send(self, notice: NoticeRecord, owner: str) -> None:
        """Try one, and note what came of it; what cannot be noted now is noted later, and not sent again before."""
        try:
            problem = await deliver(notice, self.mail, partial(self.store.find_run_as, owner), self.now_s())
            after = note_try(notice, problem, self.now_s())
            while not self.note(after):
                await asyncio.sleep(LOOK_S)
        finally:
            del self.under_way[notice.seq]
            self.news.set()

    def note(self, notice: NoticeRecord) -> bool:
        """Store what came of a notice, and tell whom it concerns; returns whether it could be stored."""
        try:
            self.store.put_notice(notice)
        except Exception:
            logger.exception("what came of notice %d could not be stored; it is tried again", notice.seq)
            return False
        if is_news(notice):
            self.note_failure(notice)
        if notice.state == "given_up":
            logger.warning("notice %d of job %s was given up: %s", notice.seq, notice.job, notice.said)
        return True
