"""The pages over HTTP, without a browser: who gets in, what they see, what a button does."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load
from tests.dashboard.scenes import Shown, play, play_storm, show, write_receipt

from springtide.client.board_replies import BoardInfo
from springtide.control.api.entrance.tokens import hash_token
from springtide.control.api.reports.offer_prices import price_offers
from springtide.control.api.reports.promise_reports import write_report
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import EventRecord, JobLedgerEntry, UserRecord
from springtide.core.durations import parse_span
from springtide.core.job_states import JobState
from springtide.dashboard.board_view import BoardQuery, find_axis, tell_due
from springtide.dashboard.rendering import tell
from springtide.dashboard.report_view import build_grid
from springtide.dashboard.vendoring import check
from springtide.training.state.checkpoints import Checkpoints, Facts

HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    scene = play(tmp_path_factory.mktemp("scene"))
    with show(scene) as shown:
        yield shown


@pytest.fixture
def browser(shown: Shown) -> Iterator[httpx.Client]:
    with sign_in(shown, shown.token) as client:
        yield client


@contextmanager
def sign_in(shown: Shown, token: str) -> Iterator[httpx.Client]:
    """A client with the cookie of a session."""
    with httpx.Client(base_url=shown.url, headers=HTML | {"origin": shown.url}, timeout=60) as client:
        assert client.post("/signin", data={"token": token, "next": "/"}).headers["location"] == "/"
        yield client


def job_id(shown: Shown, name: str) -> str:
    return shown.scene.store.find_jobs(name)[0].id


def test_who_is_not_signed_in_is_sent_to_sign_in_and_back(shown: Shown) -> None:
    with httpx.Client(base_url=shown.url, headers=HTML) as stranger:
        assert stranger.get("/fleet").headers["location"] == "/signin?next=%2Ffleet"
        assert stranger.get("/signin?next=/fleet").status_code == 200
        wrong = stranger.post("/signin", data={"token": "guess", "next": "/"}, headers={"origin": shown.url})
        assert (wrong.status_code, "no token of this server" in wrong.text) == (401, True)
        assert stranger.get("/api/v1/jobs").status_code == 401


def test_a_part_of_a_page_leads_to_sign_in_where_the_session_has_ended(shown: Shown) -> None:
    asked = {"hx-request": "true", "hx-current-url": f"{shown.url}/ask?job=x", "accept": "*/*", "origin": shown.url}
    with httpx.Client(base_url=shown.url, headers=asked) as stranger:
        for answer in (stranger.get("/"), stranger.post("/ask", data={"job": "x"})):
            assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/signin?next=%2Fask%3Fjob%3Dx")
            assert answer.text == ""


def test_a_form_whose_session_has_ended_leads_back_to_the_page_it_was_on(shown: Shown) -> None:
    with httpx.Client(base_url=shown.url, headers=HTML | {"origin": shown.url}) as stranger:
        for referer, place in (
            (f"{shown.url}/ask?job=x", "%2Fask%3Fjob%3Dx"),
            ("http://evil.example/ask", "%2F"),
            ("http://[broken", "%2F"),
            ("", "%2F"),
        ):
            sent = stranger.post("/ask/submit", data={"base": "x"}, headers={"referer": referer})
            assert sent.headers["location"] == f"/signin?next={place}"
    with sign_in(shown, shown.token) as browser:
        assert browser.get("/ask/submit").headers["location"] == "/ask"


def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(shown: Shown) -> None:
    with httpx.Client(base_url=shown.url, headers={"origin": shown.url}) as client:
        cookie = client.post("/signin", data={"token": shown.token}).headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert f"springtide_{shown.url.rpartition(':')[2]}=" in cookie


def test_a_change_by_cookie_must_come_from_a_page_of_ours(browser: httpx.Client, shown: Shown) -> None:
    place = f"/jobs/{job_id(shown, 'sweep-3')}/cancel"
    assert browser.post(place, headers={"origin": "http://evil.example"}).status_code == 403
    del browser.headers["origin"]
    assert browser.post(place).status_code == 403
    assert browser.post(f"/api/v1{place}", json={}).status_code == 403
    assert shown.scene.store.find_jobs("sweep-3")[0].active


def test_one_must_not_be_sent_elsewhere_after_signing_in(shown: Shown) -> None:
    for place in ("//evil.example", "https://evil.example", "/\\evil.example"):
        with httpx.Client(base_url=shown.url, headers={"origin": shown.url}) as client:
            answer = client.post("/signin", data={"token": shown.token, "next": place})
        assert answer.headers["location"] == "/"


def test_a_link_signs_in_once(shown: Shown) -> None:
    link = shown.sessions.make_link(shown.owner)
    with httpx.Client(base_url=shown.url, headers=HTML) as client:
        assert client.get(link).headers["location"] == "/"
        assert client.get("/").status_code == 200
    again = httpx.get(shown.url + link)
    assert (again.status_code, "was used" in again.text) == (401, True)


def test_a_session_ends_when_one_signs_out(browser: httpx.Client) -> None:
    cookies = dict(browser.cookies)
    browser.post("/signout")
    again = httpx.get(str(browser.base_url), cookies=cookies, headers=HTML)
    assert again.headers["location"].startswith("/signin")


def read_ended(lines: Iterator[str]) -> None:
    """Read a stream up to the line that says that it is over."""
    while next(lines) != "event: ended":
        pass


@pytest.mark.parametrize("end", ["signed out", "time over", "token replaced", "another right"])
def test_an_open_stream_ends_with_its_session(shown: Shown, end: str) -> None:
    name = f"reader of {end}".replace(" ", "-")
    reader = shown.scene.store.put_user(UserRecord(name, hash_token(f"token-of-{name}")))
    with sign_in(shown, f"token-of-{name}") as browser, browser.stream("GET", "/live/fleet") as stream:
        lines = stream.iter_lines()
        while next(lines) != "event: page":
            pass
        if end == "signed out":
            with httpx.Client(base_url=shown.url, cookies=browser.cookies, headers={"origin": shown.url}) as other:
                other.post("/signout")
        elif end == "time over":
            secret = browser.cookies[f"springtide_{shown.url.rpartition(':')[2]}"]
            sessions = dict(shown.sessions.known or {})
            sessions[hash_token(secret)] = [name, shown.sessions.now_s() - 1, reader.token_hash]
            shown.sessions.known = sessions
        elif end == "token replaced":
            shown.scene.store.put_user(replace(reader, token_hash=hash_token("another")))
        else:
            shown.scene.store.put_user(replace(reader, admin=True))
        read_ended(lines)
        assert [line for line in lines if line.startswith("data: ")] == ["data: {}"]  # and nothing after it


def test_sign_in_says_that_a_session_has_ended(browser: httpx.Client, shown: Shown) -> None:
    cookies = dict(browser.cookies)
    assert "has ended" not in browser.get("/signin").text
    browser.post("/signout")
    assert "Your session has ended" in httpx.get(f"{shown.url}/signin", cookies=cookies, headers=HTML).text
    assert "Your session has ended" in httpx.get(f"{shown.url}/signin?ended=yes", headers=HTML).text
    assert "has ended" not in httpx.get(f"{shown.url}/signin", headers=HTML).text


def test_sessions_outlive_the_server_but_not_the_token(shown: Shown) -> None:
    secret = shown.sessions.begin(shown.owner)
    shown.sessions.known = None  # as after a restart: read from the store again
    found = shown.sessions.find(secret)
    assert found is not None and found.name == shown.owner.name
    other = UserRecord("cat", hash_token("first"))
    shown.scene.store.put_user(other)
    secret = shown.sessions.begin(other)
    shown.scene.store.put_user(UserRecord("cat", hash_token("second")))
    assert shown.sessions.find(secret) is None


@pytest.mark.parametrize("place", ["/", "/?group=ended&past=1d", "/?find=bert", "/fleet", "/ask", "/report"])
def test_pages_let_nothing_but_our_files_run(browser: httpx.Client, place: str) -> None:
    page = browser.get(place)
    assert page.status_code == 200, page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "<style" not in page.text and " style=" not in page.text and "onclick" not in page.text
    assert page.text.count("<script") == page.text.count("<script src=")


def test_the_font_has_one_address(browser: httpx.Client) -> None:
    page = browser.get("/").text
    style = browser.get(re.findall(r'"(/static/style.css[^"]+)"', page)[0]).text
    assert re.findall(r'href="([^"]+woff2[^"]+)"', page) == re.findall(r'url\("([^"]+woff2[^"]*)"\)', style)


def test_what_is_read_aloud_and_pointed_at_is_in_words(browser: httpx.Client, shown: Shown) -> None:
    assert (tell_due(60), tell_due(-6180)) == ("due in 1m", "was due 1h43m ago")
    assert "due in -" not in browser.get("/").text
    asked = browser.get(f"/ask?job={job_id(shown, 'bert-finetune')}").text
    assert "<title>flag</title>" not in asked and "<title>deadline" in asked
    assert 'data-low="1" data-high="16"' in asked  # as many as there are


def test_the_page_of_the_api_is_ours_and_loads_nothing_from_elsewhere(browser: httpx.Client) -> None:
    page = browser.get("/docs")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    sources = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page.text)
    assert sources and all(place.startswith("/static/") for place in sources)
    assert not re.search(r"<script>|<style|style=", page.text)
    assert "<code>/api/v1/jobs/{job}/cancel</code>" in page.text and "<code>past_s</code>" in page.text


def test_the_board_shows_every_job_with_its_promise(browser: httpx.Client) -> None:
    text = browser.get("/").text
    for name in ("bert-finetune", "vit-large", "clicks-hurry", "sweep-3", "resnet-a"):
        assert f">{name}</a>" in text
    assert "promises: " in text and "Take the offer for clicks-hurry" in text
    only = browser.get("/?group=offered").text
    assert "clicks-hurry</a>" in only and "vit-large</a>" not in only


def test_a_user_sees_only_their_own_jobs(shown: Shown) -> None:
    with sign_in(shown, "token-of-ann") as ann:
        text = ann.get("/").text
        assert "vit-large" in text and "sweep-3" not in text and "another user&#39;s job" in text
        hidden = ann.get(f"/jobs/{job_id(shown, 'sweep-3')}")
        assert (hidden.status_code, "there is no job" in hidden.text) == (404, True)


def test_a_job_says_why_and_whether_its_prediction_flinched(browser: httpx.Client, shown: Shown) -> None:
    text = browser.get(f"/jobs/{job_id(shown, 'vit-large')}").text
    assert "it runs on" in text and "never crossed the deadline" in text
    assert "Every change of its devices, and why" in text and "run: python train.py vit" in text


def test_unknown_pages_and_jobs_are_told_in_words(browser: httpx.Client) -> None:
    assert "There is no page at /nowhere" in browser.get("/nowhere").text
    missing = browser.get("/jobs/nobody")
    assert (missing.status_code, "there is no job" in missing.text) == (404, True)
    assert browser.get("/api/v1/nowhere").json()["error"]["sentence"]


def test_asking_tells_the_answer_and_who_else_would_change(browser: httpx.Client, shown: Shown) -> None:
    base = {"base": job_id(shown, "bert-finetune"), "file": "run: python train.py bert", "deadline": "100m"}
    count = len(shown.scene.store.list_jobs())
    told = browser.post("/ask", data=base, headers={"hx-request": "true"}).text
    assert "Promised" in told and "What it would change for others" in told and "<html" not in told
    declined = browser.post("/ask", data=base | {"deadline": "20s"}).text
    assert "Declined" in declined and "could be promised" in declined and "<html" in declined
    wrong = browser.post("/ask", data=base | {"deadline": "soon"}).text
    assert "is not a span of time" in wrong
    assert len(shown.scene.store.list_jobs()) == count


def test_what_users_write_is_escaped(browser: httpx.Client, shown: Shown) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    base = {"base": job_id(shown, "bert-finetune"), "file": f"run: python train.py '{nasty}'", "name": nasty}
    for text in (browser.post("/ask", data=base).text, browser.get("/", params={"find": nasty}).text):
        assert nasty not in text and "&lt;img src=x" in text


def test_the_report_counts_what_was_promised_and_kept(browser: httpx.Client, shown: Shown) -> None:
    report = browser.get("/api/v1/report").json()
    assert report["total"]["kept"] == 4 and report["total"]["missed"] == 0
    assert sum(one["jobs"] for one in report["users"]) == report["total"]["jobs"] == 6
    with sign_in(shown, "token-of-ann") as ann:
        assert [one["name"] for one in ann.get("/api/v1/report").json()["users"]] == ["ann"]


def test_costs_are_on_every_page_that_has_a_price(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "vit-large")
    told = browser.get(f"/api/v1/jobs/{job}").json()
    hourly = len(told["devices"]) * 1.5
    left_h = told["predicted_finish_in_s"] / 3600
    assert told["cost_usd"] > 0
    assert told["expected_cost_usd"] == pytest.approx(told["cost_usd"] + hourly * left_h, abs=1e-3)
    assert (
        f"${told['cost_usd']:.2f} so far, ${told['expected_cost_usd']:.2f} by its expected end"
        in browser.get(f"/jobs/{job}").text
    )
    assert browser.get("/api/v1/board").json()["devices"]["usd_per_h"] == 16 * 1.5
    assert "16 of 16 devices held, $24.00 of $24.00 an hour" in browser.get("/fleet").text
    report = browser.get("/api/v1/report").json()
    ended = [one for one in shown.scene.store.list_jobs() if one.finished_s is not None]
    assert report["total"]["usd"] == pytest.approx(sum(one.cost_usd for one in ended), abs=1e-3)
    assert sum(one["usd"] for one in report["users_by_week"]) == pytest.approx(report["total"]["usd"], abs=1e-3)
    assert f"${report['total']['usd']:.2f}" in browser.get("/report").text


def test_offers_have_a_price_where_devices_have_one(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "clicks-hurry")
    offers = browser.get(f"/api/v1/jobs/{job}").json()["offers"]
    whole = next(one for one in offers if one["kind"] == "deadline")
    record, store = shown.scene.store.find_jobs(job)[0], shown.scene.store
    part = replace(store.offers(record.id)[0], id="part", kind="work", steps=100_000)
    prices = price_offers(record, [part], store.speeds(record.speed_key), shown.scene.reconciler.inventory)
    assert 0 < prices["part"] < whole["cost_usd"]
    rows = {one["id"]: one for one in browser.get("/api/v1/board?limit=1000").json()["jobs"]}
    assert [one["cost_usd"] for one in rows[job]["offers"]] == [one["cost_usd"] for one in offers]
    price = f"for at least ${whole['cost_usd']:.2f}"
    assert price in browser.get(f"/jobs/{job}").text and price in browser.get("/").text
    spec = browser.get(f"/api/v1/jobs/{job}").json()["spec"]
    body = {"job": spec, "archive": browser.get(f"/api/v1/jobs/{job}").json()["code_hash"]}
    told = browser.post("/api/v1/plan", json=body).json()
    assert told["answer"] == "declined"
    assert {one["kind"]: one["cost_usd"] for one in told["offers"]}["deadline"] == pytest.approx(whole["cost_usd"])
    assert "could be promised, for at least $" in browser.get(f"/ask?job={job}").text


def test_predicted_speeds_stand_beside_measured_ones(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "vit-large")
    history = browser.get(f"/api/v1/jobs/{job}/history").json()
    measured = {one["share"]: one["steps_per_s"] for one in history["speeds"]}
    predicted = {one["share"]: one for one in history["predicted_speeds"]}
    assert set(measured) < set(predicted) and {1, 2, 4, 8, 16} <= set(predicted)
    for share, rate in measured.items():
        assert predicted[share]["steps_per_s"] == pytest.approx(rate, rel=0.1)  # the form goes through what it saw
    assert all(one["planned_steps_per_s"] < 1.1 * one["steps_per_s"] for one in predicted.values())
    text = browser.get(f"/jobs/{job}").text
    held = len(browser.get(f"/api/v1/jobs/{job}").json()["devices"])
    assert "Speed, predicted and measured" in text and re.search(rf'{held} × \w+ <span class="dim">now<', text)


def test_every_end_of_a_job_is_named_where_it_is_drawn(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "vit-large")
    told = browser.get(f"/api/v1/jobs/{job}").json()
    assert told["predicted_finish"] <= told["planned_finish"] <= told["deadline"]
    text = browser.get(f"/jobs/{job}").text
    signs = re.findall(r"<b>(expected end|slow end|end of its plan|deadline)</b>", text)
    assert signs == ["expected end", "slow end", "end of its plan", "deadline"]
    board = browser.get("/").text
    for words in (
        "ring: expected to end in",
        "light bar: devices that its plan keeps",
        "flag: its deadline, promised, in",
    ):
        assert f"<title>{words}" in board
    assert board.index("How to read this") < board.index('class="timeline"')  # seen before any number of rows


def test_an_ended_job_has_ended_and_its_facts_are_in_order(browser: httpx.Client, shown: Shown) -> None:
    ended = browser.get(f"/jobs/{job_id(shown, 'resnet-a')}").text
    assert '<th scope="row">Ended</th>' in ended and "Expected end</th>" not in ended
    facts = browser.get(f"/api/v1/jobs/{job_id(shown, 'vit-large')}/why").json()["facts"]
    ages = [parse_span(one.partition(" ago: ")[0], "age") for one in facts if " ago: " in one]
    assert len(ages) > 2 and ages == sorted(ages, reverse=True)


def test_a_report_has_a_column_for_each_of_the_last_weeks() -> None:
    ends_s = [1_800_000_000.0 + 7 * 86400.0 * week for week in range(10)]
    jobs = [
        JobLedgerEntry(user, JobState.SUCCEEDED, True, "", 3600.0, 0, end_s, None, None, cost_usd)
        for end_s in ends_s
        for user, cost_usd in (("ann", 1.0), ("bo", 2.0))
        if user == "ann" or end_s == ends_s[-1]
    ]
    grid = build_grid(write_report(jobs, None, True))
    assert (len(grid.weeks), grid.weeks[-1]) == (8, "2027-W11")
    assert grid.users == [("ann", [1.0] * 8), ("bo", [None] * 7 + [2.0])]  # who pays most first
    unpriced = [replace(job, cost_usd=0.0) for job in jobs]
    report = write_report(unpriced, None, False)
    assert report["total"]["usd"] is None and build_grid(report).users[0] == ("ann", [1.0] * 8)


def test_a_result_has_a_receipt_to_save_or_the_reason_why_not(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "clicks-daily")
    assert "left no chain of digests" in browser.get(f"/jobs/{job}").text
    write_receipt(shown.scene, job)
    text = browser.get(f"/jobs/{job}").text
    assert "10 digests of its state in one chain" in text and f'href="/api/v1/jobs/{job}/receipt"' in text
    receipt = browser.get(f"/api/v1/jobs/{job}/receipt").json()
    assert receipt["final"]["step"] == 200_000
    assert "Nobody has verified it" in text
    found = {"holds": True, "digests": 3, "first_step": 1, "last_step": 7, "on": "2 processes, cpu"}
    line = f"/api/v1/jobs/{job}/verifications"
    assert browser.post(line, json={"receipt": receipt, **found}).status_code == 200
    changed = {**receipt, "final": {"step": 9}}
    assert browser.post(line, json={"receipt": changed, **found}).status_code == 409
    assert browser.post(line, json={"receipt": receipt, **found, "digests": 0}).status_code == 422
    for free in ("", "cpu; sealed by\nthe server", "<b>cpu", "\u202egpu", "c" * 201):
        assert browser.post(line, json={"receipt": receipt, **found, "on": free}).status_code == 422
    text = browser.get(f"/jobs/{job}").text
    assert "its receipt holds: trained again on 2 processes, cpu, 3 digests from step 1 to 7 are the same" in text
    assert text.count('<span class="pill safe">verified</span>') == 1


def test_a_job_in_danger_has_what_would_help_as_buttons(tmp_path: Path) -> None:
    with show(play_storm(tmp_path / "storm")) as shown, sign_in(shown, shown.token) as browser:
        board = browser.get("/").text
        assert "5 promises: 4 safe, 1 at risk: vit-second ends" in board and "late unless node-1 returns" in board
        info = BoardInfo.read(browser.get("/api/v1/board").json())
        unpromised = next(one for one in info.jobs if one.group == "best_effort")
        far = replace(unpromised, predicted_s=info.now_s + 30 * 86_400.0)
        jobs = tuple(far if one is unpromised else one for one in info.jobs)
        axis = find_axis(replace(info, jobs=jobs), BoardQuery())
        assert axis == find_axis(info, BoardQuery()) and axis.is_beyond(
            far.predicted_s or 0.0
        )  # no promise is squeezed
        job = job_id(shown, "vit-second")
        assert "Let node-1 take work again" in browser.get(f"/jobs/{job}").text
        answer = browser.post("/nodes/node-1/undrain", data={"next": f"/jobs/{job}"})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job}")
        assert "Let node-1 take work again" not in browser.get("/").text


def test_changes_that_are_left_out_are_counted(browser: httpx.Client, shown: Shown) -> None:
    id, now_s = job_id(shown, "night-sweep"), shown.scene.source.wall_s()
    events = [EventRecord(now_s, "moves", f"moves for the {k}th time", id) for k in range(1050)]
    shown.scene.store.write(Batch(events=events))
    page = browser.get(f"/jobs/{id}").text
    assert "Every change" not in page and "The last 40 changes of its devices" in page
    assert "moves for the 1049th time" in page  # the newest, beyond what the API gives at once
    assert re.search(r"10\d\d earlier changes left out", page)


def test_instants_in_sentences_are_for_the_readers_own_zone() -> None:
    told = tell("by 2027-01-15T12:11:00Z, not <b>2027-99-15T12:11:00Z")
    moment = '<time datetime="2027-01-15T12:11:00Z" data-at="1800015060.0">2027-01-15 12:11:00 UTC</time>'
    assert told == f"by {moment}, not &lt;b&gt;2027-99-15T12:11:00Z"


def test_vendored_files_have_their_digests() -> None:
    assert list(check()) == []


def test_scripts_stay_small(browser: httpx.Client) -> None:
    import re

    names = re.findall(r'<script src="([^"]+)"', browser.get("/").text)
    names += re.findall(
        r'<script src="([^"]+uPlot[^"]+)"', Path("src/springtide/dashboard/templates/job.html").read_text()
    )
    sizes = []
    for name in [one for one in names if one.startswith("/static")]:
        with browser.stream("GET", name, headers={"accept-encoding": "gzip"}) as answer:
            sizes.append(sum(len(part) for part in answer.iter_raw()))
    assert len(sizes) >= 4 and sum(sizes) < 100_000


def test_checkpoints_are_downloaded_with_the_session_of_the_page(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "resnet-a")
    assert "None was saved." in browser.get(f"/jobs/{job}").text
    saved = Checkpoints(shown.scene.state_dir.checkpoints(job), keep=1)
    saved.save({"model": {"weight": torch.ones(3)}}, 5, Facts(4, 0, 96, 4, 1, True, True, "D1", 1, "code"))
    saved.wait()
    link = re.search(r'href="(/api/v1/jobs/[^"]*/checkpoints/5/model.safetensors)"', browser.get(f"/jobs/{job}").text)
    assert link is not None
    assert load(browser.get(link[1]).content)["weight"].tolist() == [1.0, 1.0, 1.0]


def test_outputs_are_downloaded_from_the_page_of_their_job(browser: httpx.Client, shown: Shown) -> None:
    job = job_id(shown, "sweep-2")
    assert "outputs-title" not in browser.get(f"/jobs/{job}").text
    folder = shown.scene.state_dir.output(job) / "plots"
    folder.mkdir(parents=True)
    (folder / "a <b> #1.png").write_bytes(b"picture")
    text = browser.get(f"/jobs/{job}").text
    assert "plots/a &lt;b&gt; #1.png, 7 Bytes" in text
    link = re.search(r'href="(/api/v1/jobs/[^"]*/files/output/[^"]*)" download', text)
    assert link is not None and browser.get(link[1]).content == b"picture"
    for number in range(45):
        (folder / f"{number}.txt").touch()
    assert "6 are not shown; all of them: <code>springtide ls sweep-2</code>" in browser.get(f"/jobs/{job}").text
