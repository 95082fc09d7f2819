"""The pages in a real browser against a real server: what people do there, and what they see when it goes wrong."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.control.http_servers import connect, run_server, write_project
from tests.dashboard.browsers import CHROMIUM, open_browser

from springtide.control.api.guard import hash_token
from springtide.control.server import Server
from springtide.control.storage.records import UserRecord
from springtide.core.job_states import JobState
from springtide.dashboard.pages import add_pages
from springtide.executors.fake import FakeJob, RealTimeFake

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need: pip install playwright")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="the browser tests need a browser: apt-get install chromium")
expect = playwright.expect
expect.set_options(timeout=60_000)  # for a condition, however loaded the machine
# Two hours on all devices: longer than any load makes a test take, so that no job ends while it is looked at.
SLOW = FakeJob(total_steps=400_000, speeds={1: 20.0, 2: 36.0, 4: 60.0}, logical_workers=4, startup_s=0.2, pause_s=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@contextmanager
def serve_pages(folder: Path, port: int = 0) -> Iterator[Server]:
    """A server with its pages, on which jobs take minutes."""
    with run_server(folder, devices=4, add_pages=add_pages, port=port) as server:
        assert isinstance(server.engine.executor, RealTimeFake)
        server.engine.executor.usual = SLOW
        yield server


@contextmanager
def open_page(folder: Path, server: Server) -> Iterator[Any]:
    """A page that is signed in, and that had nothing to complain of at the end."""
    complaints: list[str] = []
    with open_browser(folder) as context:
        page = context.pages[0]
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        page.get_by_label("Your token").fill(server.settings.state_dir.token.read_text().strip())
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{server.url}/")
        yield page
    gone = ("net::ERR_", "Failed to load resource", "htmx:")  # what is said of a server that is stopped on purpose
    assert [one for one in complaints if not any(word in one for word in gone)] == []


def test_a_day_at_the_board(folder: Path) -> None:
    with serve_pages(folder / "day") as server, open_page(folder / "one", server) as page, connect(server) as client:
        first = client.submit(write_project(folder / "work", name="first", deadline="10h"))
        row = page.locator(f"#row-{first.id}")
        expect(row).to_contain_text("running · 4 devices")  # by itself: nobody reloads

        page.goto(f"{server.url}/ask?job={first.id}")
        answer = page.locator("#answer")
        expect(answer).to_contain_text("Promised")
        page.locator("#deadline").fill("20s")
        expect(answer).to_contain_text("Declined")
        slider = page.get_by_label("Deadline, dragged")
        for _ in range(6):
            slider.press("PageUp")
        expect(answer).to_contain_text("Promised")
        expect(page.locator("#deadline")).not_to_have_value("20s")
        page.get_by_label("Budget, dragged").press("PageUp")
        expect(answer).to_contain_text(re.compile("budget", re.IGNORECASE))
        page.locator("#budget").fill("")
        page.locator("#deadline").fill("24m")
        page.locator("#steps").fill("30000")  # on two devices from now on: on one, or after the first, it would be late
        page.locator("#job-file").fill("run: python train.py\nname: second")
        expect(answer).to_contain_text("first")  # it would change
        page.get_by_role("button", name="Submit this job").click()
        page.wait_for_url(re.compile("/jobs/"))
        expect(page.get_by_role("heading", level=1)).to_have_text("second")
        expect(page.locator(".pill").first).to_have_text("running")

        page.goto(f"{server.url}/jobs/{first.id}")
        expect(page.locator("#job")).to_contain_text("shrinks from 4 devices")
        server.engine.executor.kill(first.id)  # type: ignore[attr-defined]
        expect(page.locator("#topic-faults")).to_contain_text("fault (")
        expect(page.locator("#job .mark.fault").first).to_be_attached()
        client.cancel("second")
        expect(page.locator("#job")).to_contain_text("grows from")

        late = client.submit(write_project(folder / "late", name="late", deadline="15s"))
        assert late.state is JobState.OFFERED
        page.goto(server.url)
        page.get_by_role("button", name=re.compile("Take the offer for late")).click()
        page.wait_for_url(re.compile(f"/jobs/{late.id}"))
        expect(page.locator(".pill").first).to_have_text(re.compile("admitted|running"))
        client.cancel(first)
        client.cancel(late)


def test_what_others_wrote_cannot_act_and_their_jobs_are_not_seen(folder: Path) -> None:
    nasty = "<img src=x onerror=document.title='broken-in'>"
    with serve_pages(folder / "others") as server, open_page(folder / "owner", server) as page:
        server.store.put_user(UserRecord("bo", hash_token("token-of-bo")))
        with connect(server, "token-of-bo") as bo:
            held = bo.submit(
                write_project(folder / "held", name="held", devices=4, deadline="10h", env={"NOTE": nasty})
            )
        with connect(server) as client:
            waits = client.submit(
                write_project(folder / "waits", name="waits", devices=4, run=f"python train.py '{nasty}'")
            )
        page.goto(f"{server.url}/jobs/{waits.id}")
        expect(page.locator("#job .why")).to_contain_text("every device serves a promise or an earlier job now")
        for place in (f"/jobs/{held.id}", f"/ask?job={held.id}", f"/?find={quote(nasty)}"):
            page.goto(server.url + place)
            assert page.locator("img[src=x]").count() == 0
            expect(page).not_to_have_title("broken-in")
        page.get_by_role("button", name="sign out").click()
        page.get_by_label("Your token").fill("token-of-bo")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{server.url}/")
        expect(page.locator(f"#row-{held.id}")).to_be_visible()
        expect(page.locator(f"#row-{waits.id}")).to_have_count(0)
        page.goto(f"{server.url}/jobs/{waits.id}")
        expect(page.locator("main")).to_contain_text("there is no job")


def test_a_server_that_is_stopped_is_told_and_found_again(folder: Path) -> None:
    with serve_pages(folder / "back") as server:
        port = server.socket.getsockname()[1]
        with open_page(folder / "two", server) as page:
            expect(page.locator("#live")).to_have_attribute("data-state", "live")
            server.http.should_exit = True
            expect(page.locator("#banner")).to_contain_text("The server does not answer")
            server.thread.join()
            with serve_pages(folder / "back", port):
                expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=15_000)
                expect(page.locator("#banner")).to_be_hidden()


def test_a_form_that_is_sent_to_a_stopped_server_says_so_and_keeps_what_was_filled_in(folder: Path) -> None:
    with serve_pages(folder / "away") as server:
        port = server.socket.getsockname()[1]
        with connect(server) as client:
            job = client.submit(write_project(folder / "asked", name="asked", deadline="10h"))
        with open_page(folder / "four", server) as page:
            page.goto(f"{server.url}/ask?job={job.id}")
            expect(page.locator("#answer")).to_contain_text("Promised")
            server.http.should_exit = True
            server.thread.join()
            page.locator("#deadline").fill("5h")
            expect(page.locator("#banner")).to_contain_text("The server does not answer")
            with serve_pages(folder / "away", port):
                expect(page.locator("#banner")).to_be_hidden(timeout=15_000)
                expect(page.locator("#deadline")).to_have_value("5h")


def test_who_has_signed_out_elsewhere_is_sent_to_sign_in(folder: Path) -> None:
    with serve_pages(folder / "out") as server, open_page(folder / "five", server) as page:
        with connect(server) as client:
            job = client.submit(write_project(folder / "left", name="left", deadline="10h"))
        page.goto(f"{server.url}/ask?job={job.id}")
        expect(page.locator("#answer")).to_contain_text("Promised")
        page.context.clear_cookies()
        page.locator("#deadline").fill("5h")
        page.wait_for_url(re.compile(r"/signin\?next=%2Fask"))


def test_without_scripts_the_pages_still_show_the_state(folder: Path) -> None:
    with serve_pages(folder / "plain") as server, connect(server) as client:
        job = client.submit(write_project(folder / "still", name="still", deadline="10h"))
        with open_browser(folder / "three", scripts=False) as context:
            page = context.pages[0]
            page.goto(client.make_link())
            expect(page.locator(f"#row-{job.id}")).to_contain_text("still")
            page.locator(f"#name-{job.id}").click()
            page.get_by_text("Cancel…").click()
            page.get_by_role("button", name="Yes, cancel still").click()
            expect(page.locator(".pill").first).to_have_text("cancelled")
