"""Lists of jobs as bytes, written once for all who ask the same at a time.

A request that comes while a page is being written gets the next one, so none is answered with an older state; only the
spans that count from now may be `FRESH_S` old. One page is written at a time: however many people read, the reconciler
shares the interpreter with one of them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from springtide.control.api import documents
from springtide.control.storage.job_snapshot import JobQuery, JobSnapshot
from springtide.control.storage.records import JobRecord

FRESH_S = 0.1
MOST_PAGES = 64


@dataclass(frozen=True, slots=True)
class JobListPage:
    """A page, of which version of the jobs it is, and when it was written."""

    body: bytes
    version: tuple[int, int]
    at_s: float


class JobPages:
    """The pages of one server; used from its event loop."""

    def __init__(self, snapshot: JobSnapshot, now_s: Callable[[], float], tell: Callable[[], str]) -> None:
        self.snapshot = snapshot
        self.now_s = now_s
        self.tell = tell  # what stands still, if anything does
        self.turn = asyncio.Lock()
        self.pages: dict[JobQuery, JobListPage] = {}
        self.coming: dict[JobQuery, asyncio.Task[bytes]] = {}
        self.facts: dict[str, tuple[JobRecord, bytes]] = {}

    async def read(self, query: JobQuery) -> bytes:
        """The page of a query."""
        page = self.pages.get(query)
        age_s = 0.0 if page is None else asyncio.get_running_loop().time() - page.at_s
        if page is not None and page.version == self.snapshot.version and age_s < FRESH_S:
            return page.body
        coming = self.coming.get(query)
        if coming is None:
            coming = self.coming[query] = asyncio.create_task(self.write_next(query))
        return await asyncio.shield(coming)  # who hangs up does not take it from the others

    async def write_next(self, query: JobQuery) -> bytes:
        """Write a page when its turn has come, and keep it for a moment."""
        async with self.turn:
            del self.coming[query]
            version, at_s = self.snapshot.version, asyncio.get_running_loop().time()
            body = await run_in_threadpool(self.write, query)
            if len(self.pages) >= MOST_PAGES:
                self.pages.clear()
            self.pages[query] = JobListPage(body, version, at_s)
            return body

    def write(self, query: JobQuery) -> bytes:
        """A page as it is now."""
        records = self.snapshot.list_jobs(query)
        now_s = self.now_s()
        following = records[-1].seq if len(records) == query.limit else None
        jobs = b",".join([self.write_facts(one) + to_json(documents.write_spans(one, now_s))[1:] for one in records])
        if len(self.facts) > 2 * self.snapshot.most:
            self.facts.clear()
        ending = to_json({"next": following, "standstill": self.tell() or None})[1:]
        return b'{"schema":%d,"jobs":[%b],%b' % (documents.SCHEMA, jobs, ending)

    def write_facts(self, record: JobRecord) -> bytes:
        """What of a job does not change with time, up to where the rest goes on; written once for each record."""
        record_before, written = self.facts.get(record.id, (None, b""))
        if record_before is not record:
            written = to_json(documents.write_facts(record) | {"offers": [], "rent": None})[:-1] + b","
            self.facts[record.id] = record, written
        return written
