"""The thread that tells people: takes what is due from the store, a few at a time, and notes what came of each.

What is to be told was stored with what happened, so a server that is killed tells it after its next start; a notice
whose delivery was under way then may arrive twice.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from springtide.control.notices.notice_decisions import is_news, note_try
from springtide.control.notices.notice_deliveries import MailServer, deliver
from springtide.control.storage.records import JobRecord, NoticeRecord
from springtide.control.storage.store import Store

logger = logging.getLogger("springtide.notices")

AT_ONCE = 16
LOOK_S = 2.0  # between looks for what is due again


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
        self.news = threading.Event()
        self.ended = False
        self.sending: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self.thread = threading.Thread(target=self.run, name="notifier", daemon=True)

    def start(self) -> None:
        """Begin, with what an earlier server has left."""
        self.store.listeners.append(self.hear)
        self.news.set()
        self.thread.start()

    def hear(self, jobs: Mapping[str, JobRecord]) -> None:
        """Something was stored."""
        if any(record.spec.notify for record in jobs.values()):
            self.news.set()

    def close(self) -> None:
        """End; what is under way is broken off, and told by the next server."""
        self.store.listeners.remove(self.hear)
        self.ended = True
        self.news.set()
        while self.thread.is_alive():
            sending = self.sending
            if sending is not None:
                with suppress(RuntimeError):  # it has just ended by itself
                    sending[0].call_soon_threadsafe(sending[1].cancel)
            self.thread.join(0.2)

    def run(self) -> None:
        """Look for what is due, now and then and whenever something was stored."""
        while not self.ended:
            self.news.wait(LOOK_S)
            self.news.clear()
            try:
                while (due := self.store.due_notices(self.now_s(), AT_ONCE)) and not self.ended:
                    asyncio.run(self.send(due))
            except asyncio.CancelledError:
                continue
            except (SQLAlchemyError, OSError):
                logger.exception("notices could not be read or noted; they are tried again")

    async def send(self, due: list[NoticeRecord]) -> None:
        """Try several at once, each noted as soon as it is known."""
        task = asyncio.current_task()
        assert task is not None
        self.sending = asyncio.get_running_loop(), task
        try:
            await asyncio.gather(*(self.send_one(notice) for notice in due))
        finally:
            self.sending = None

    async def send_one(self, notice: NoticeRecord) -> None:
        """Try one, and note what came of it."""
        record = self.store.job(notice.job)
        owner = "" if record is None else record.owner  # of a job that was forgotten nobody knows
        problem = await deliver(notice, self.mail, partial(self.store.find_run_as, owner), self.now_s())
        after = note_try(notice, problem, self.now_s())
        self.store.put_notice(after)
        if is_news(after):
            self.note_failure(after)
        if after.state == "given_up":
            logger.warning("notice %d of job %s was given up: %s", notice.seq, notice.job, problem)
