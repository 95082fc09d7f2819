"""Pages of jobs: the same document as before, shared by those who ask at a time, and never from before they asked."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.control.api import documents, job_pages
from springtide.control.api.job_pages import JobPages
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.job_snapshot import JobQuery, JobSnapshot
from springtide.control.storage.records import JobRecord, PlanRecord
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState

JOB = JobRecord("id1", "x", "ann", JobState.RUNNING, JobFile(run="x"), 1.0, seq=1, deadline_s=90.0, devices=("a",))
PLANNED = replace(JOB, id="id2", seq=2, plan=PlanRecord(((1.0, 2),), 4.0, 5.0))


class CountedPages(JobPages):
    """Counts how often a page is written."""

    written = 0

    def write(self, query: JobQuery) -> bytes:
        self.written += 1
        return super().write(query)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    store.write(Batch(jobs={JOB.id: JOB, PLANNED.id: PLANNED}))
    return store


def make_pages(store: Store) -> CountedPages:
    return CountedPages(JobSnapshot(store), lambda: 50.0, lambda: "")


def test_a_page_is_the_documents_of_its_jobs(store: Store) -> None:
    async def read() -> bytes:
        return await make_pages(store).read(JobQuery(limit=2))

    told = json.loads(asyncio.run(read()))
    expected = [documents.write_job(one, 50.0) for one in (PLANNED, JOB)]
    assert told == {"schema": 1, "jobs": expected, "next": 1, "standstill": None}


def test_many_who_ask_at_once_share_two_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_pages, "FRESH_S", 0.0)

    async def read() -> int:
        pages = make_pages(store)
        first = asyncio.create_task(pages.read(JobQuery()))
        while pages.coming or not pages.turn.locked():
            await asyncio.sleep(0)  # until the first page is being written
        await asyncio.gather(first, *(pages.read(JobQuery()) for _ in range(100)))
        return pages.written

    assert asyncio.run(read()) == 2


def test_a_kept_page_is_not_shown_after_a_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_pages, "FRESH_S", 1e9)

    async def read() -> tuple[list[int], int]:
        pages = make_pages(store)
        steps = []
        for step in (0, 0, 7):
            if step:
                store.write(Batch(jobs={JOB.id: replace(JOB, step=step)}))
            steps.append(json.loads(await pages.read(JobQuery()))["jobs"][1]["step"])
        return steps, pages.written

    assert asyncio.run(read()) == ([0, 0, 7], 2)


def test_who_hangs_up_does_not_take_the_page_from_others(store: Store) -> None:
    async def read() -> bytes:
        pages = make_pages(store)
        gone = asyncio.create_task(pages.read(JobQuery()))
        stays = asyncio.create_task(pages.read(JobQuery()))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert len(json.loads(asyncio.run(read()))["jobs"]) == 2
