"""The pages in a real browser against a real server: what people do there, and what they see when it goes wrong."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.control.http_servers import connect, run_server, write_project
from tests.dashboard.browsers import CHROMIUM, open_browser

from springtide.control.api.entrance.tokens import hash_token
from springtide.control.server import Server
from springtide.control.storage.records import UserRecord
from springtide.core.job_states import JobState
from springtide.dashboard.live import MOST_STREAMS
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
def serve_pages(folder: Path, port: int = 0, nodes: int = 1) -> Iterator[Server]:
    """A server with its pages, on which jobs take minutes."""
    with run_server(folder, devices=4, add_pages=add_pages, port=port, nodes=nodes) as server:
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
        expect(page.locator("#job .why")).to_contain_text(
            "every device serves a promise or a job that goes before it now"
        )
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


def test_a_page_that_is_only_looked_at_ends_with_its_session(folder: Path) -> None:
    with serve_pages(folder / "ends") as server, open_page(folder / "six", server) as page:
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        other = page.context.new_page()
        other.goto(f"{server.url}/fleet")
        other.get_by_role("button", name="sign out").click()
        other.wait_for_url(re.compile("/signin"))  # a page that is closed while it goes elsewhere may never be
        other.close()
        page.wait_for_url(re.compile(r"/signin\?next=%2F&ended=yes"))  # by itself: nobody touches it
        expect(page.locator("main")).to_contain_text("Your session has ended")
        assert page.locator("#banner").is_hidden()


def test_a_page_that_cannot_be_kept_live_says_so_and_is_when_others_are_closed(folder: Path) -> None:
    with serve_pages(folder / "many") as server, ExitStack() as others:
        token = server.settings.state_dir.token.read_text().strip()
        client = others.enter_context(httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60))
        for _ in range(MOST_STREAMS):
            stream = others.enter_context(client.stream("GET", f"{server.url}/live/fleet"))
            assert stream.status_code == 200
        with open_page(folder / "many-one", server) as page:
            expect(page.locator("#live")).to_contain_text("close other pages")
            expect(page.locator("main")).to_contain_text("No jobs yet")
            others.close()
            expect(page.locator("#live")).to_have_attribute("data-state", "live")


@pytest.mark.parametrize(("status", "reason"), [(503, "busy"), (429, "rate_limited")])
def test_a_page_whose_stream_is_refused_for_another_reason_says_that_it_is_tried_again(
    folder: Path, status: int, reason: str
) -> None:
    def refuse(route: Any) -> None:
        document = {"schema": 1, "error": {"reason": reason, "sentence": "not now"}}
        route.fulfill(status=status, json=document)

    with serve_pages(folder / reason) as server, open_page(folder / f"{reason}-one", server) as page:
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        page.route("**/live/**", refuse)
        page.reload()
        expect(page.locator("#live")).to_contain_text("not live; trying again")
        page.unroute("**/live/**")
        expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_back_after_a_search_shows_what_the_address_asks_for(folder: Path) -> None:
    with (
        serve_pages(folder / "sought") as server,
        open_page(folder / "sought-one", server) as page,
        connect(server) as client,
    ):
        client.submit(write_project(folder / "bert", name="bert", deadline="10h"))
        client.submit(write_project(folder / "clicks", name="clicks"))
        rows = page.locator("li.line.job")
        expect(rows).to_have_count(2)
        page.locator("#find").fill("bert")
        page.wait_for_url(re.compile("find=bert"))
        expect(rows).to_have_count(1)
        page.go_back()
        expect(page.locator("#find")).to_have_value("")
        expect(rows).to_have_count(2)
        client.submit(write_project(folder / "fresh", name="fresh"))
        expect(rows).to_have_count(3)  # by itself, and of all jobs: the stream is that of the address
        expect(page.locator("#theme")).to_be_visible()


def test_who_has_signed_out_elsewhere_is_sent_to_sign_in(folder: Path) -> None:
    with serve_pages(folder / "out") as server, open_page(folder / "five", server) as page:
        with connect(server) as client:
            job = client.submit(write_project(folder / "left", name="left", deadline="10h"))
        page.goto(f"{server.url}/ask?job={job.id}")
        expect(page.locator("#answer")).to_contain_text("Promised")
        page.context.clear_cookies()
        page.locator("#deadline").fill("5h")
        page.wait_for_url(re.compile(r"/signin\?next=%2Fask"))


def sign_in_again(page: Any, server: Server) -> None:
    """Sign in on the page to which an ended session has led."""
    page.wait_for_url(re.compile("/signin"))
    page.get_by_label("Your token").fill(server.settings.state_dir.token.read_text().strip())
    page.get_by_role("button", name="Sign in").click()


def test_what_was_typed_is_there_again_after_signing_in(folder: Path) -> None:
    with serve_pages(folder / "typed") as server, open_page(folder / "typed-one", server) as page:
        with connect(server) as client:
            job = client.submit(write_project(folder / "code", name="code", deadline="10h"))
        page.goto(f"{server.url}/ask?job={job.id}")
        expect(page.locator("#answer")).to_contain_text("Promised")
        # Each change is answered, so that no question is on its way when the session ends.
        with page.expect_response(f"{server.url}/ask"):
            page.locator("#job-file").fill("run: python train.py\nname: precious")
        with page.expect_response(f"{server.url}/ask"):
            page.locator("#deadline").fill("9h")
        expect(page.locator("#answer")).to_contain_text("Promised")
        page.context.clear_cookies()
        page.get_by_role("button", name="Submit this job").click()
        sign_in_again(page, server)
        page.wait_for_url(f"{server.url}/ask?job={job.id}")
        expect(page.locator("#job-file")).to_have_value("run: python train.py\nname: precious")
        expect(page.locator("#deadline")).to_have_value("9h")
        page.get_by_role("button", name="Submit this job").click()
        page.wait_for_url(re.compile("/jobs/"))
        expect(page.get_by_role("heading", level=1)).to_have_text("precious")
        page.goto(f"{server.url}/ask?job={job.id}")
        expect(page.locator("#job-file")).not_to_have_value(re.compile("precious"))  # it was taken

        page.goto(f"{server.url}/simulate")
        page.get_by_text("A trace instead").click()
        page.locator("#trace").fill("job_id,submit_s")
        page.get_by_label("fifo", exact=True).check()
        page.context.clear_cookies()
        page.get_by_role("button", name="Simulate").click()
        sign_in_again(page, server)
        page.wait_for_url(f"{server.url}/simulate")
        expect(page.locator("#trace")).to_have_value("job_id,submit_s")
        expect(page.locator("#trace")).to_be_visible()
        expect(page.get_by_label("fifo", exact=True)).to_be_checked()


def test_curves_and_logs_of_each_rank_are_shown_as_they_are_written(folder: Path) -> None:
    with serve_pages(folder / "logged") as server, open_page(folder / "seven", server) as page:
        with connect(server) as client:
            job = client.submit(write_project(folder / "logs", name="logs", deadline="10h"))
        expect(page.locator(f"#row-{job.id}")).to_contain_text("running")
        logs = server.settings.state_dir.logs(job.id)
        logs.mkdir(parents=True, exist_ok=True)
        rows = [{"step": step, "metrics": {"loss": 1 / step, "accuracy": 0.5}} for step in range(1, 9)]
        (logs / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for rank in range(2):
            (logs / f"rank-{rank}.log").write_text(f"rank {rank} says <b>hello</b>\n")
        page.goto(f"{server.url}/jobs/{job.id}")
        expect(page.locator("#curves .uplot canvas")).to_have_count(2)
        assert page.locator("#curves .u-title").all_inner_texts() == ["accuracy", "loss"]
        expect(page.locator("#curves .u-legend").last).to_contain_text("0.125")  # the last value
        log = page.locator("#log")
        expect(log).to_have_text("rank 0 says <b>hello</b>")
        page.locator("#rank").select_option("1")
        expect(log).to_have_text("rank 1 says <b>hello</b>")
        with (logs / "rank-1.log").open("a") as file:
            file.write("and more\n")
        with (logs / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 9, "metrics": {"loss": 0.0625, "accuracy": 0.5}}) + "\n")
        expect(log).to_contain_text("and more")  # by itself
        expect(page.locator("#curves .u-legend").last).to_contain_text("0.0625")


def test_the_log_of_a_rank_is_its_own_and_ranks_that_come_later_are_offered(folder: Path) -> None:
    held: list[Any] = []
    with serve_pages(folder / "ranks") as server, open_page(folder / "ranks-one", server) as page:
        with connect(server) as client:
            job = client.submit(write_project(folder / "ranked", name="ranked", deadline="10h"))
        logs = server.settings.state_dir.logs(job.id)
        logs.mkdir(parents=True, exist_ok=True)
        for rank in range(2):
            (logs / f"rank-{rank}.log").write_text(f"rank {rank}\n")
        page.route(re.compile("rank=0&offset"), lambda route: held.append(route))  # a poll whose answer is late
        page.goto(f"{server.url}/jobs/{job.id}")
        log = page.locator("#log")
        expect(log).to_have_text("rank 0")
        with page.expect_request(re.compile("rank=0&offset")):
            pass
        page.locator("#rank").select_option("1")
        expect(log).to_have_text("rank 1")
        with (logs / "rank-0.log").open("a") as file:
            file.write("more of rank 0\n")
        with page.expect_response(re.compile("rank=0&offset")):
            held[0].continue_()
        (logs / "rank-9.log").write_text("rank 9\n")
        expect(page.locator("#rank option").last).to_have_text("9")
        expect(log).to_have_text("rank 1")
        with (logs / "rank-1.log").open("a") as file:
            file.write(("x" * 99 + "\n") * 6000)
        expect(page.locator("#log-cut")).to_be_visible()
        assert len(log.inner_text()) < 500_000


def test_what_is_about_to_be_confirmed_stays_and_the_page_around_it_goes_on(folder: Path) -> None:
    with serve_pages(folder / "open", nodes=2) as server, open_page(folder / "open-one", server) as page:
        page.goto(f"{server.url}/fleet")
        node = page.locator("#node-1")
        node.get_by_text("Drain…").click()
        node.get_by_label("within").fill("5m")
        page.locator("h1").click()  # the field is no longer the one that is typed in
        with connect(server) as client:
            client.submit(write_project(folder / "meanwhile", name="meanwhile", deadline="10h"))
        expect(node.locator(".holders")).to_contain_text("meanwhile")
        expect(node.get_by_label("within")).to_be_visible()
        expect(node.get_by_label("within")).to_have_value("5m")


def test_a_job_that_is_gone_while_it_is_looked_at_is_told(folder: Path) -> None:
    with serve_pages(folder / "gone") as server, open_page(folder / "eight", server) as page:
        with connect(server) as client:
            job = client.submit(write_project(folder / "brief", name="brief"))
            page.goto(f"{server.url}/jobs/{job.id}")
            expect(page.get_by_role("heading", level=1)).to_have_text("brief")
            client.cancel(job)
            expect(page.locator(".pill").first).to_have_text("cancelled")
        gone, _ = server.store.prune(server.reconciler.context.clock.now_s() + 1)  # as after its time is over
        assert gone == [job.id]
        expect(page.get_by_role("heading", level=1)).to_have_text("No longer here")
        expect(page.locator("#job")).to_contain_text("there is no job")
        page.get_by_role("link", name="To the board", exact=True).click()
        page.wait_for_url(f"{server.url}/")


def test_a_node_is_drained_and_let_back_with_buttons(folder: Path) -> None:
    with (
        serve_pages(folder / "fleet", nodes=2) as server,
        open_page(folder / "nine", server) as page,
        connect(server) as client,
    ):
        job = client.submit(write_project(folder / "held-there", name="held-there"))
        expect(page.locator(f"#row-{job.id}")).to_contain_text("running · 4 devices")
        page.goto(f"{server.url}/fleet")
        node = page.locator("#node-1")
        expect(node.locator(".holders")).to_contain_text("held-there")
        node.get_by_text("Drain…").click()
        node.get_by_label("within").fill("1s")
        node.get_by_role("button", name="Drain node-1").click()
        expect(node.locator(".pill")).to_have_text("drained")
        expect(node.locator(".holders")).to_have_count(0)
        page.get_by_text("Drain…").click()  # of the other, which is the last
        page.get_by_role("button", name="Drain node-0").click()
        expect(page.locator("main")).to_contain_text("node-0 is the last one that takes work")
        page.goto(server.url)
        expect(page.locator(f"#row-{job.id}")).to_contain_text("running · 2 devices")
        page.get_by_role("button", name="Let node-1 take work again").click()
        expect(page.locator(f"#row-{job.id}")).to_contain_text("running · 4 devices")


def test_the_command_opens_the_board_signed_in(folder: Path) -> None:
    with serve_pages(folder / "command") as server, open_browser(folder / "ten") as context:
        home = {"SPRINGTIDE_HOME": str(server.settings.state_dir.root)}
        command = [sys.executable, "-m", "springtide", "ui", "--no-browser"]
        link = subprocess.run(command, env=os.environ | home, capture_output=True, text=True, check=True).stdout.strip()
        page = context.pages[0]
        page.goto(link)
        page.wait_for_url(f"{server.url}/")
        expect(page.locator(".sentence")).to_contain_text("No open promises")
        expect(page.get_by_role("button", name="sign out")).to_be_visible()
        context.clear_cookies()
        page.goto(link)  # it has signed in, and does not do so again
        expect(page.locator("main")).to_contain_text("That link was used")


def test_a_trace_with_bad_rows_is_told_by_row_and_simulated_without_them(folder: Path) -> None:
    head = "job_id,submit_s,model,batch_size,gpus,duration_s,deadline_s"
    trace = f"{head}\na,0,resnet50,256,1,600,5000\nb,x,resnet50,256,1,600,5000\n"
    with serve_pages(folder / "traces") as server, open_page(folder / "eleven", server) as page:
        page.goto(f"{server.url}/simulate")
        page.get_by_text("A trace instead").click()
        page.locator("#trace").fill(trace)
        page.get_by_role("button", name="Simulate").click()
        expect(page.locator("#study .verdict")).to_have_text("Cannot be simulated")
        expect(page.locator("#study")).to_contain_text("the trace, line 3: ")
        expect(page.locator("#trace")).to_have_value(trace)  # nothing is lost
        page.get_by_label("leave out rows that cannot be read").check()
        page.get_by_role("button", name="Simulate").click()
        expect(page.locator("#study .verdict")).to_contain_text("deadlines")
        expect(page.locator("#study")).to_contain_text("1 row left out")


def test_a_refusal_of_the_guard_stands_above_the_page_which_stays(folder: Path) -> None:
    with serve_pages(folder / "refused") as server, open_page(folder / "refused-one", server) as page:
        page.goto(f"{server.url}/simulate")
        page.get_by_text("A trace instead").click()
        limiter = server.app.changes
        limiter.rate_per_s, limiter.burst, limiter.buckets = 0.001, 0, {}
        page.get_by_role("button", name="Simulate").click()
        expect(page.locator("#refusal")).to_contain_text("More than 0.001 changes per second")
        expect(page.locator("#study")).to_contain_text("Choose jobs, a cluster and policies")  # as it was
        limiter.rate_per_s, limiter.burst, limiter.buckets = 100.0, 100, {}
        page.locator("#trace").evaluate("(field) => { field.value = 'job_id,submit_s\\n'.repeat(140000); }")
        page.get_by_role("button", name="Simulate").click()
        expect(page.locator("#study")).to_contain_text("the trace is longer than 2 MiB")
        expect(page.locator("#refusal")).to_be_hidden()


def test_a_point_of_the_front_shows_its_plan_and_saves_its_task(folder: Path) -> None:
    with serve_pages(folder / "rented") as server, open_page(folder / "twelve", server) as page:
        page.goto(f"{server.url}/cloud")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#study .verdict")).to_be_visible()
        dots = page.locator(".front a")
        assert dots.count() > 2
        place = str(dots.first.get_attribute("href"))
        plan = page.locator(place)
        expect(plan).to_be_hidden()
        dots.first.focus()
        page.keyboard.press("Enter")
        expect(plan).to_be_visible()
        choice = page.locator("details.choice", has=plan)
        with page.expect_download() as saving:
            choice.get_by_role("link", name="Save as SkyPilot task").click()
        assert saving.value.suggested_filename == "task.yaml"
        saved = folder / "task.yaml"
        saving.value.save_as(saved)
        assert saved.read_text().strip() == choice.locator("pre").inner_text().strip()


def test_without_scripts_every_page_shows_the_state_and_its_forms_work(folder: Path) -> None:
    with serve_pages(folder / "bare") as server, connect(server) as client:
        job = client.submit(write_project(folder / "seen", name="seen", deadline="10h"))
        with open_browser(folder / "thirteen", scripts=False) as context:
            page = context.pages[0]
            page.goto(client.make_link())
            expect(page.locator(".sentence")).to_contain_text("1 promise")
            told = {f"/jobs/{job.id}": "seen", "/fleet": "seen", "/report": "Promises kept", "/ask": "Promised"}
            for place, words in told.items():
                page.goto(server.url + place)
                expect(page.locator("main")).to_contain_text(words)
            expect(page.get_by_text("times are UTC")).to_be_visible()
            expect(page.get_by_text("times are shown in your zone")).to_be_hidden()
            page.locator("#deadline").fill("20s")
            page.get_by_role("button", name="Ask", exact=True).click()
            expect(page.locator("#answer")).to_contain_text("Declined")
            page.goto(f"{server.url}/simulate")
            page.locator("#synthetic").fill("jobs=5,gap=600,seed=0")
            page.get_by_role("button", name="Simulate").click()
            expect(page.locator("#study .verdict")).to_contain_text("deadlines")
            page.goto(f"{server.url}/cloud")
            page.get_by_role("button", name="Search").click()
            expect(page.locator("#study .front")).to_be_visible()
            page.goto(f"{server.url}/?find=nothing-like-it")
            expect(page.locator("main")).to_contain_text("No job is like that")


def test_without_scripts_the_pages_still_show_the_state(folder: Path) -> None:
    with serve_pages(folder / "plain") as server, connect(server) as client:
        job = client.submit(write_project(folder / "still", name="still", deadline="10h"))
        with open_browser(folder / "three", scripts=False) as context:
            page = context.pages[0]
            page.goto(client.make_link())
            expect(page.locator(f"#row-{job.id}")).to_contain_text("still")
            page.locator(f"#name-{job.id}").click()
            expect(page.get_by_text("Nothing yet")).to_be_hidden()  # that is not known without scripts
            expect(page.get_by_text("Curves need scripts")).to_be_visible()
            page.get_by_text("Cancel…").click()
            page.get_by_role("button", name="Yes, cancel still").click()
            expect(page.locator(".pill").first).to_have_text("cancelled")
