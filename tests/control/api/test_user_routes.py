"""Users and projects that two admins change at the same moment: what one has set, the other does not take back."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.http_servers import connect, run_server

from springtide.client.client import Client
from springtide.control.api.entrance.sessions import Sessions
from springtide.control.api.platform import user_routes
from springtide.control.server import Server
from springtide.errors import InputError, SpringtideError

MEANWHILE_S = 0.5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with run_server(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server) as client:
        yield client


def interrupt(monkeypatch: pytest.MonkeyPatch, store: Any, name: str, act: Callable[[], object]) -> threading.Thread:
    """Have somebody act, as far as they can, between what the next change reads and what it writes by a method."""
    write, other = getattr(store, name), threading.Thread(target=act)

    def write_late(record: Any) -> Any:
        if other.ident is None:
            other.start()
            other.join(MEANWHILE_S)
        return write(record)

    monkeypatch.setattr(store, name, write_late)
    return other


def test_two_admins_change_one_user_and_both_changes_stay(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_user("ann")
    other = interrupt(monkeypatch, server.store, "put_user", lambda: client.put_user("ann", most_active=3))
    client.put_user("ann", quota_device_s=100.0)
    other.join()
    (ann,) = (user for user in client.users() if user.name == "ann")
    assert (ann.document["quota_device_s"], ann.document["most_active"]) == (100.0, 3)


def test_two_admins_who_take_each_others_rights_leave_one(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {name: client.put_user(name, admin=True).token for name in ("ann", "bob")}
    both = threading.Barrier(2, timeout=60)
    monkeypatch.setattr(user_routes, "check_run_as", lambda name: both.wait())  # both were admins when they asked
    refused: list[Exception] = []

    def take(asker: str, other: str) -> None:
        try:
            with connect(server, tokens[asker]) as own:
                own.put_user(other, admin=False)
        except SpringtideError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=names) for names in (("ann", "bob"), ("bob", "ann"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1 and "admin" in str(refused[0])
    assert [user.document["admin"] for user in client.users() if user.name in tokens].count(True) == 1


def test_a_user_that_two_admins_add_has_one_token(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str | None] = []
    other = interrupt(monkeypatch, server.store, "put_user", lambda: tokens.append(client.put_user("bob").token))
    tokens.append(client.put_user("bob").token)
    other.join()
    (told,) = (token for token in tokens if token is not None)
    with connect(server, told) as bob:
        assert bob.jobs() == []


def test_two_admins_change_one_project_and_both_changes_stay(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_project("vision")
    other = interrupt(monkeypatch, server.store, "put_project", lambda: client.put_project("vision", most_active=3))
    client.put_project("vision", quota_device_s=100.0)
    other.join()
    (vision,) = client.projects()
    assert (vision.document["quota_device_s"], vision.document["most_active"]) == (100.0, 3)


def test_nobody_is_left_in_a_project_that_is_removed(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_project("vision")
    refused: list[InputError] = []

    def join() -> None:
        try:
            client.put_user("ann", project="vision")
        except InputError as error:
            refused.append(error)

    other = interrupt(monkeypatch, server.store, "drop_project", join)
    client.drop_project("vision")
    other.join()
    assert "there is no project 'vision'" in str(refused[0])


def test_a_link_of_a_removed_user_signs_in_nobody_who_has_their_name_next(server: Server, client: Client) -> None:
    client.put_user("ann")
    sessions, ann = Sessions(server.store, lambda: 0.0), server.store.find_user("ann")
    assert ann is not None
    first, second = (sessions.make_link(ann).removeprefix("/signin/") for _ in range(2))
    assert sessions.find_linked(first) == ann
    client.drop_user("ann")
    client.put_user("ann")
    assert sessions.find_linked(second) is None
