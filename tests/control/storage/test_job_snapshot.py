from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.job_snapshot import JobQuery, JobSnapshot
from springtide.control.storage.records import JobRecord
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import ACTIVE, JobState

RUNNING, DONE = JobState.RUNNING, JobState.SUCCEEDED


def make_job(number: int, state: JobState = DONE, owner: str = "@a") -> JobRecord:
    return JobRecord(
        f"id{number}", "x", "ann", state, JobFile(run="x"), 1.0, seq=number, owner=owner, finished_s=float(number)
    )


def write(store: Store, *jobs: JobRecord) -> None:
    store.write(Batch(jobs={job.id: job for job in jobs}))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'x.db'}")


def ask(store: Store, query: JobQuery) -> list[JobRecord]:
    return store.list_jobs(query.states, query.owner, query.limit, query.before, query.user)


QUERIES = [
    JobQuery(states, owner, limit, before)
    for states in (frozenset[JobState](), ACTIVE, frozenset({DONE}), frozenset({DONE, RUNNING}))
    for owner in (None, "@a", "@b")
    for limit in (2, 5, 100)
    for before in (None, 4, 9)
]


@settings(max_examples=30)
@given(
    changes=st.lists(st.tuples(st.integers(1, 14), st.booleans(), st.booleans()), max_size=25), most=st.integers(2, 6)
)
def test_it_answers_as_the_store_does_whatever_is_written(changes: list[tuple[int, bool, bool]], most: int) -> None:
    store = Store("sqlite://")
    write(store, *(make_job(number) for number in (2, 3, 5)))
    snapshot = JobSnapshot(store, most)
    for number, is_running, is_anns in changes:
        write(store, make_job(number, RUNNING if is_running else DONE, "@a" if is_anns else "@b"))
    for query in QUERIES:
        assert snapshot.list_jobs(query) == ask(store, query), query
    store.close()


def test_what_was_stored_is_read_at_once_and_what_was_forgotten_no_more(store: Store) -> None:
    snapshot = JobSnapshot(store)
    before = snapshot.version
    write(store, make_job(1), make_job(2, RUNNING))
    assert snapshot.version != before
    assert [job.id for job in snapshot.list_jobs(JobQuery())] == ["id2", "id1"]
    assert [job.id for job in snapshot.find_jobs("id1", "@a")] == ["id1"]
    assert snapshot.find_jobs("id1", "@b") == []
    before = snapshot.version
    store.prune(100.0)
    assert snapshot.version != before
    assert snapshot.find_jobs("id1") == []
    assert [job.id for job in snapshot.list_jobs(JobQuery())] == ["id2"]


def test_reading_what_is_in_memory_asks_no_database(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, *(make_job(number) for number in range(1, 20)))
    snapshot = JobSnapshot(store, 10)
    write(store, replace(make_job(19), step=7))
    monkeypatch.setattr(store, "engine", None)
    assert [job.step for job in snapshot.list_jobs(JobQuery(limit=5))] == [7, 0, 0, 0, 0]
    assert snapshot.list_jobs(JobQuery(ACTIVE)) == []
    assert [job.id for job in snapshot.find_jobs("id15")] == ["id15"]
