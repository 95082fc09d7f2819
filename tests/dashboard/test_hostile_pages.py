"""What one user of the pages can do to others: nothing, however many sign-ins, streams and odd requests they send."""

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from tests.dashboard.scenes import Shown, play, show

from springtide.control.api.entrance.guard import Limiter
from springtide.control.api.entrance.sessions import MOST_SESSIONS, Pulse
from springtide.control.api.entrance.tokens import hash_token
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import UserRecord
from springtide.dashboard.live import MOST_STREAMS, Hub
from springtide.dashboard.posted_forms import MOST_FIELDS
from springtide.dashboard.screens import SCREENS


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    scene = play(tmp_path_factory.mktemp("scene"))
    with show(scene) as shown:
        yield shown


def add_user(shown: Shown, name: str) -> str:
    """A user; returns their token."""
    shown.scene.store.put_user(UserRecord(name, hash_token(f"token-of-{name}")))
    return f"token-of-{name}"


def post_sign_in(shown: Shown, token: str) -> httpx.Response:
    with httpx.Client(headers={"origin": shown.url}, timeout=60) as client:
        return client.post(f"{shown.url}/signin", data={"token": token})


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Nobody else writes to a database."""
    line = sqlite3.connect(path)
    line.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        line.rollback()
        line.close()


def test_a_sign_in_that_cannot_be_stored_holds_nobody_up(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown.sessions, "changes", None)  # who is too quick is told at once, and waits for nothing
    assert shown.scene.store.path is not None
    answers: list[int] = []
    senders = [
        threading.Thread(target=lambda: answers.append(post_sign_in(shown, shown.token).status_code)) for _ in range(60)
    ]
    with lock(shown.scene.store.path):
        for sender in senders:
            sender.start()
        for path in ("/healthz", "/static/style.css", "/api/v1/jobs", "/signin"):
            headers = {"authorization": f"Bearer {shown.token}"}
            assert httpx.get(shown.url + path, headers=headers, timeout=60).status_code == 200
        assert not answers, "the pages were answered while the sign-ins waited"
    for sender in senders:
        sender.join()
    assert set(answers) <= {303, 429}


def wait_for_write(shown: Shown) -> None:
    """Until a session is being written."""
    for _ in range(600):
        if shown.sessions.lock.locked():
            return
        time.sleep(0.05)
    raise AssertionError("no session is written")


def test_a_link_stops_nobody_while_sessions_cannot_be_stored(shown: Shown) -> None:
    path = shown.link
    assert shown.scene.store.path is not None
    sender = threading.Thread(target=lambda: post_sign_in(shown, shown.token))
    opener = threading.Thread(target=lambda: httpx.get(path, timeout=60))
    with lock(shown.scene.store.path):
        sender.start()
        wait_for_write(shown)
        opener.start()
        time.sleep(0.3)  # for the link to arrive
        began_s = time.monotonic()
        assert httpx.get(f"{shown.url}/healthz", timeout=60).status_code == 200
        assert shown.sessions.make_link(shown.owner), "nor does a new link wait for a write"
        assert time.monotonic() - began_s < 5, "a write waits ten"
    sender.join()
    opener.join()


def fail_locked(_batch: Batch) -> None:
    raise OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))


@pytest.mark.parametrize("why", ["too many", "no thread", "locked", "late"])
def test_a_link_that_was_refused_is_good_again_and_the_page_says_what_is_true(shown: Shown, why: str) -> None:
    link = shown.link
    with ExitStack() as refusing:
        patch = refusing.enter_context(pytest.MonkeyPatch.context())
        if why == "too many":
            patch.setattr(shown.sessions, "changes", Limiter(0.001, 0))
        elif why == "no thread":
            patch.setattr("springtide.control.api.entrance.sessions.WRITE_S", 0.2)
            patch.setattr(shown.sessions.threads, "free", asyncio.Semaphore(0))
        elif why == "locked":
            patch.setattr(shown.scene.store, "write", fail_locked)
        else:
            assert shown.scene.store.path is not None
            refusing.enter_context(lock(shown.scene.store.path))
            patch.setattr("springtide.control.api.entrance.sessions.WRITE_S", 0.2)
        answer = httpx.get(link, timeout=60)
        assert answer.status_code == (429 if why == "too many" else 503)
        assert answer.headers["content-type"].startswith("text/html") and int(answer.headers["retry-after"]) > 0
        told = {"no thread": "too many sign-ins are under way", "late": "is not known", "locked": "is locked"}
        assert told.get(why, "changes per second") in answer.text.replace("Too", "too")
        assert ("nothing was done" in answer.text) == (why in ("no thread", "locked"))
    if why == "late":  # its thread goes on
        while shown.sessions.lock.locked():
            time.sleep(0.05)
        assert httpx.get(link).status_code == 401, "it was stored after all"
    else:
        assert [httpx.get(link).status_code for _ in range(2)] == [303, 401]


def test_a_link_that_two_browsers_open_at_once_signs_in_one(shown: Shown) -> None:
    link, answers = shown.link, list[int]()
    openers = [threading.Thread(target=lambda: answers.append(httpx.get(link, timeout=60).status_code)) for _ in "ab"]
    assert shown.scene.store.path is not None
    with lock(shown.scene.store.path):
        for opener in openers:
            opener.start()
        wait_for_write(shown)
        time.sleep(0.3)  # for the other one to arrive
    for opener in openers:
        opener.join()
    assert sorted(answers) == [303, 401]


def test_a_sign_out_that_is_not_stored_is_a_page_that_says_what_is_true(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown.scene.store.path is not None
    with httpx.Client(base_url=shown.url, headers={"origin": shown.url}, timeout=60) as client:
        client.post("/signin", data={"token": shown.token})
        with lock(shown.scene.store.path):
            monkeypatch.setattr("springtide.control.api.entrance.sessions.WRITE_S", 0.2)
            answer = client.post("/signout")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "sign out again" in answer.text and "nothing was done" not in answer.text


def test_sign_ins_count_as_changes(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown.sessions, "changes", Limiter(0.001, 3))
    token, other = add_user(shown, "hasty"), add_user(shown, "patient")
    answers = [post_sign_in(shown, token) for _ in range(4)]
    assert [one.status_code for one in answers] == [303, 303, 303, 429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert post_sign_in(shown, other).status_code == 303


def test_the_sessions_of_one_user_make_way_for_no_other(shown: Shown) -> None:
    eve, ann = (UserRecord(name, hash_token(f"token-{name}")) for name in ("eve", "ann"))
    eve, ann = shown.scene.store.put_user(eve), shown.scene.store.put_user(ann)
    first, mine = shown.sessions.begin(eve), shown.sessions.begin(ann)
    latest = [shown.sessions.begin(eve) for _ in range(MOST_SESSIONS)]
    assert shown.sessions.find(mine) == ann
    assert shown.sessions.find(first) is None
    assert all(shown.sessions.find(secret) == eve for secret in latest)


def test_streams_of_one_user_leave_lines_to_others(shown: Shown) -> None:
    token, other = add_user(shown, "watcher"), add_user(shown, "reader")
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=shown.url, timeout=60))

        def open_stream(token: str) -> httpx.Response:
            headers = {"authorization": f"Bearer {token}"}
            return stack.enter_context(client.stream("GET", "/live/fleet", headers=headers))

        codes = [open_stream(token).status_code for _ in range(MOST_STREAMS + 1)]
        refused = open_stream(token)
        assert codes == [200] * MOST_STREAMS + [429]
        assert "close one" in refused.read().decode() and int(refused.headers["retry-after"]) > 0
        assert open_stream(other).status_code == 200
    with httpx.stream("GET", f"{shown.url}/live/fleet", headers={"authorization": f"Bearer {token}"}) as again:
        assert again.status_code == 200, "a stream that was left counts no longer"


def test_all_streams_together_leave_lines_to_who_asks(shown: Shown) -> None:
    hub = Hub(Pulse(shown.scene.store, most_readers=3))
    users = [UserRecord(name, "", id=f"@{name}") for name in "abcd"]
    for user in users[:3]:
        hub.admit(user)
    with pytest.raises(Exception, match="3 pages are kept up to date"):
        hub.admit(users[3])
    hub.leave(users[0])
    hub.admit(users[3])


def test_who_has_many_pages_open_is_drawn_for_in_a_fifth_of_the_time(shown: Shown) -> None:
    hub = Hub(Pulse(shown.scene.store))
    shown.scene.store.happened += 1

    async def find_rest(count: int) -> float:
        began = asyncio.get_running_loop().time()
        await hub.rest((-1, -1), 0.05, count)
        return asyncio.get_running_loop().time() - began

    few, many = asyncio.run(find_rest(1)), asyncio.run(find_rest(16))
    assert few < many and many >= 4 * 16 * 0.05


def test_a_drawing_is_shared_whatever_else_stands_in_the_address() -> None:
    board, job, fleet = SCREENS
    assert board.identify({"x": "1"}) == board.identify({"y": "2", "page": "-1"}) != board.identify({"page": "1"})
    assert job.identify({"x": "1"}) == fleet.identify({"y": "2"}) == ""


@pytest.mark.parametrize("place", ["http://[", "http://[::1", "//[", "\x7f", "javascript:x"])
def test_a_part_of_a_page_of_no_address_leads_to_sign_in(shown: Shown, place: str) -> None:
    answer = httpx.get(shown.url, headers={"hx-request": "1", "hx-current-url": place})
    assert answer.status_code == 401 and answer.headers["hx-redirect"].startswith("/signin?next=")


@pytest.mark.parametrize(
    "path", ["/signin", "/ask", "/ask/submit", "/jobs/x/accept", "/nodes/x/drain", "/nodes/x/undrain", "/simulate"]
)
def test_a_form_of_too_many_fields_is_refused_in_a_sentence(shown: Shown, path: str) -> None:
    with httpx.Client(base_url=shown.url, headers={"origin": shown.url}, timeout=60) as client:
        client.post("/signin", data={"token": shown.token})
        body = "&".join(f"a{number}=" for number in range(MOST_FIELDS + 1))
        answer = client.post(path, content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 422 and f"more than {MOST_FIELDS} fields" in answer.text


def test_a_form_that_is_sent_twice_makes_one_job(shown: Shown) -> None:
    base = shown.scene.store.find_jobs("bert-finetune")[0].id
    with httpx.Client(base_url=shown.url, headers={"origin": shown.url}, timeout=60) as client:
        client.post("/signin", data={"token": shown.token})
        found = re.search(r'name="attempt" value="([^"]+)"', client.get("/ask", params={"job": base}).text)
        assert found is not None
        form = {"base": base, "file": "run: python train.py bert", "attempt": found[1], "hold": ""}
        places = [client.post("/ask/submit", data=form | more).headers["location"] for more in ({}, {}, {"steps": "7"})]
        again = re.search(r'name="attempt" value="([^"]+)"', client.get("/ask", params={"job": base}).text)
        refused = client.post("/ask/submit", data=form | {"deadline": "soon"}).text
    assert places[0] == places[1] != places[2]
    assert found[1] in refused, "sent again, it is still the same"
    assert again is not None and again[1] != found[1]


def test_a_seal_that_is_no_text_of_ours_is_none(shown: Shown) -> None:
    digest = sha256(b"{}").hexdigest()
    headers = {"authorization": f"Bearer {shown.token}", "content-type": "application/json"}
    body = f'{{"receipt": {{"digest": "{digest}", "seal": {{"mac": "\\ud800"}}}}}}'
    answer = httpx.post(f"{shown.url}/api/v1/receipts/check", content=body, headers=headers)
    assert (answer.status_code, answer.json()["sealed_here"]) == (200, False)
