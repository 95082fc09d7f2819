"""One server at a time on a PostgreSQL: the lock, the lease, and the epoch that every transaction checks."""

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from springtide.control.storage.database.connections import SHORT_SILENCE
from springtide.control.storage.database.databases import find_address, is_unavailable, open_engine
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.leadership import LEASE_S, POLL_S, RENEW_S, Leadership, LostLeadError
from springtide.control.storage.records import UserRecord
from springtide.control.storage.store import Store
from springtide.errors import InputError, StateError


@pytest.fixture
def leads(database: str) -> Iterator[list[Leadership]]:
    """Two servers that could lead."""
    found = [Leadership(find_address(database), f"http://127.0.0.1:{port}") for port in (1, 2)]
    yield found
    for one in found:
        one.close()


def age_lease(lead: Leadership) -> None:
    """Have the holder of the lead not heard of for longer than a lease, as if it had been stopped."""
    lead.ended.set()
    lead.thread.join()
    assert lead.session is not None
    seconds = LEASE_S + 1
    lead.session.execute(text(f"UPDATE springtide_leader SET renewed = renewed - interval '{seconds} seconds'"))


def test_only_one_leads_and_the_next_one_has_a_higher_epoch(leads: list[Leadership]) -> None:
    first, second = leads
    assert first.try_take() and not second.try_take()
    told = second.look()
    assert told is not None and (told.url, told.epoch) == ("http://127.0.0.1:1", first.epoch)
    first.close()
    assert second.wait(10) and second.epoch == first.epoch + 1


def test_one_that_was_stopped_is_replaced_and_commits_nothing_more(database: str, leads: list[Leadership]) -> None:
    first, second = leads
    heard: list[str] = []
    assert first.wait(10)
    first.tell(heard.append)
    store = Store(database, first)
    store.write(Batch(facts={"x": 1}))
    age_lease(first)
    assert second.wait(10)
    writes = (
        lambda: store.write(Batch(facts={"x": 2})),
        lambda: store.put_user(UserRecord("late", "hash")),
        lambda: store.prune(1e9),
        lambda: store.remember_owner("@1", "late", None),
    )
    for write in writes:
        with pytest.raises(LostLeadError, match="another server has taken over the database") as caught:
            write()
        assert is_unavailable(caught.value)  # the reconciler takes no part of such a step again
    assert (store.fact("x"), store.users(), len(heard)) == (1, [], 1)
    assert not first.is_current and second.is_current
    store.close()


def test_who_takes_over_sees_a_commit_that_was_under_way(database: str, leads: list[Leadership]) -> None:
    first, second = leads
    assert first.wait(10)
    store = Store(database, first)
    store.write(Batch(facts={"n": 1}))
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with store.begin() as connection:
            connection.execute(text("UPDATE facts SET value = '2' WHERE name = 'n'"))
            entered.set()
            go_on.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    age_lease(first)
    first.holder = "nobody"  # so that its sessions are not ended, and the row has to be waited for
    assert first.session is not None
    first.session.execute(text("UPDATE springtide_leader SET holder = 'nobody'"))
    first.hang_up()
    taking = threading.Thread(target=second.wait, args=(30,))
    taking.start()
    taking.join(1.0)
    assert taking.is_alive()
    go_on.set()
    thread.join()
    taking.join()
    after = Store(database, second)
    assert after.fact("n") == 2
    for one in (store, after):
        one.close()


def test_a_session_that_broke_is_renewed_while_nobody_else_has_taken_over(leads: list[Leadership]) -> None:
    first, second = leads
    assert first.wait(10)
    first.ended.set()
    first.thread.join()
    first.hang_up()
    first.renew()
    assert first.is_current and not second.try_take()
    first.hang_up()
    assert second.wait(10)
    first.renew()
    assert first.lost


def test_a_session_that_the_database_does_not_know_to_be_broken_costs_no_lead(leads: list[Leadership]) -> None:
    first, second = leads
    assert first.wait(10)
    first.ended.set()
    first.thread.join()
    broken, first.session, first.has_lock = first.session, None, False  # as where a cable was cut: nobody is told
    assert broken is not None
    until_s = time.monotonic() + 30.0
    while not first.has_lock and not first.lost and time.monotonic() < until_s:
        first.renew()
    assert first.is_current and first.has_lock and not second.try_take()
    broken.invalidate()
    broken.close()


def test_a_session_that_broke_unseen_costs_no_lead_while_another_server_stands_by(leads: list[Leadership]) -> None:
    first, second = leads
    assert first.wait(10)
    first.ended.set()
    first.thread.join()
    broken, first.session, first.has_lock = first.session, None, False
    assert broken is not None
    taken: list[bool] = []
    standing_by = threading.Thread(target=lambda: taken.append(second.wait(4.0)))
    standing_by.start()
    first.ended.clear()
    first.thread = threading.Thread(target=first.keep)
    first.thread.start()
    standing_by.join()
    assert taken == [False] and first.is_current and first.has_lock
    broken.invalidate()
    broken.close()


def test_a_silent_network_is_noticed_unless_the_owner_of_the_address_says_otherwise(database: str) -> None:
    given = find_address(f"{database}{'&' if '?' in database else '?'}tcp_user_timeout=60000&keepalives_idle=60")
    usual = ("10000", "5", "3"), ("2000", "1", "2")
    own = ("60000", "60", "3"), ("60000", "60", "2")
    for address, expected in ((find_address(database), usual), (given, own)):
        lead, engine = Leadership(address, "http://127.0.0.1:1"), open_engine(address)
        with engine.connect() as connection:
            for one, times in zip((connection, lead.connect()), expected, strict=True):
                told = one.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
                assert (told["tcp_user_timeout"], told["keepalives_idle"], told["keepalives_count"]) == times
        engine.dispose()
        lead.close()


def test_a_lease_outlives_the_notice_of_a_silent_network() -> None:
    noticed_s = RENEW_S + SHORT_SILENCE["tcp_user_timeout"] / 1000 + POLL_S
    assert noticed_s < LEASE_S - 1.0, "another session has still to be opened"


def test_a_database_that_is_not_there_is_told() -> None:
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    lead = Leadership(find_address("postgresql://springtide@/postgres?host=/nowhere"), "http://127.0.0.1:1")
    with pytest.raises(StateError, match=r"the database cannot be used .*see --database"):
        lead.wait(1)
    lead.close()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://x@127.0.0.1:1/x", r"pip install 'springtide\[postgres\]'"),
        ("nonsense", "'nonsense' is no address"),
    ],
)
def test_a_database_that_cannot_be_meant_is_told(url: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.control.storage.database.databases.find_spec", lambda _name: None)
    with pytest.raises(InputError, match=told):
        find_address(url)


def test_servers_have_the_time_of_their_database(leads: list[Leadership], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = leads
    assert first.try_take()
    now_s = time.time()
    first.close()
    monkeypatch.setattr(time, "time", lambda: now_s + 3600.0)
    assert second.wait(10)
    taken_s = second.read_wall_s()
    assert abs(taken_s - now_s) < 60.0
    second.renew()
    assert taken_s <= second.read_wall_s() < taken_s + 60.0
