"""The same store on PostgreSQL, where its server and driver are installed (`make test-postgres`)."""

from dataclasses import replace
from pathlib import Path

from tests.control.hand_clock import HandClockServer

from springtide.control.storage.database.database_migrations import VERSION, read_version
from springtide.control.storage.records import UserRecord
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob


def test_a_platform_lives_and_restarts_on_postgresql(database: str, tmp_path: Path) -> None:
    scripts = {"short": FakeJob(speeds={1: 10.0, 2: 18.0})}
    hand_server = HandClockServer(tmp_path, scripts=scripts, database=database)
    first = hand_server.submit(run="python train.py short", deadline="5m")
    hand_server.pass_s(5)
    hand_server.restart()
    hand_server.pass_s(60)
    assert (hand_server.job(first.id).state, hand_server.job(first.id).missed) == (JobState.SUCCEEDED, "")
    assert [event.seq for event in hand_server.store.events()] == sorted(
        event.seq for event in hand_server.store.events()
    )
    declined = hand_server.submit(run="python train.py short", deadline="1s")
    assert hand_server.store.offers(declined.id, "open")[0].reserved
    assert [record.id for record in hand_server.store.find_jobs(first.id[:5])] == [first.id]
    assert hand_server.store.list_jobs()[0].id == declined.id
    assert hand_server.store.prune(hand_server.source.wall + 1e6)[0] == [first.id]
    hand_server.store.close()


def test_users_and_the_version_are_kept(database: str) -> None:
    store = Store(database)
    store.put_user(UserRecord("ann", "hash"))
    store.put_user(UserRecord("ann", "other", admin=True))
    store.close()
    again = Store(database)
    assert [replace(user, id="") for user in again.users()] == [UserRecord("ann", "other", admin=True)]
    assert again.drop_user("ann")
    with again.engine.connect() as connection:
        assert read_version(connection) == VERSION
    again.close()
