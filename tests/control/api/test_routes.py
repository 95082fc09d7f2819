"""The HTTP API of a real server, as its own client and as strangers see it."""

import hashlib
import io
import os
import re
import socket
import stat
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route
from tests.control.http_servers import OPTIONS, connect, run_server, write_project

from springtide.client.client import Client
from springtide.client.job_folders import load_job
from springtide.client.log_streams import LogChoice, LogKind
from springtide.control.api.entrance.guard import WRITING, is_own_origin
from springtide.control.server import Server
from springtide.control.storage.job_logs import read_log
from springtide.control.storage.state_dir import StateDir
from springtide.dashboard.pages import add_pages
from springtide.errors import InputError, ServerError, StateError
from springtide.executors.fake import FakeJob
from springtide.executors.local.jobs.worker_logs import JobLogs, RotatingLog


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server) as client:
        yield client


def body(client: Client, folder: Path, **keys: Any) -> dict[str, Any]:
    project = load_job(write_project(folder))
    return {"job": {"run": "python train.py", **keys}, "archive": client.upload(project.pack())}


def test_a_job_is_probed_promised_run_and_explained(client: Client, tmp_path: Path) -> None:
    answer = client.submit(write_project(tmp_path / "a", deadline="10m", name="one"))
    assert (answer.answer, answer.promised, answer.document["schema"]) == ("admitted", True, 1)
    assert client.why("one").sentence
    ended = client.wait("one")
    assert (ended.state, ended.met, ended.step) == ("succeeded", True, 100)
    assert [event.kind for event in client.events("one")][-1] == "succeeded"
    assert client.why(ended.id).reason == "finished"


def test_a_promise_is_said_with_its_probability(tmp_path: Path) -> None:
    long = FakeJob(total_steps=100_000, speeds={1: 1000.0, 2: 1800.0})
    with run_server(tmp_path / "server", job=long) as server, connect(server) as client:
        assert client.submit(write_project(tmp_path / "a", deadline="1h", name="long")).promised
        told = client.send("GET", "/api/v1/jobs/long/why").json()
        shown = client.send("GET", "/api/v1/jobs/long").json()
        assert told["facts"][0] == "it keeps its promise with a probability of more than 99 %"
        assert told["promise_probability"] > 0.99 and shown["promise_probability"] > 0.99
        client.cancel("long")
        assert client.send("GET", "/api/v1/jobs/long").json()["promise_probability"] is None


def test_an_unknown_job_is_answered_with_202_at_once(client: Client, tmp_path: Path) -> None:
    response = client.send("POST", "/api/v1/jobs", json=body(client, tmp_path, deadline="10m", run="python train.py 7"))
    assert response.status_code == 202
    assert response.json()["state"] == "probing"
    client.cancel(response.json()["id"])


def test_a_plan_stores_nothing(client: Client, tmp_path: Path) -> None:
    job = write_project(tmp_path / "a", deadline="10m")
    before = len(client.jobs(all=True, limit=1000))
    assert client.plan(write_project(tmp_path / "b", run="python train.py unseen")).reason == "unknown_speed"
    client.wait(client.submit(job).id)
    told = client.plan(job)
    assert (told.answer, told.shares[0].share) == ("admitted", 1)
    assert len(client.jobs(all=True, limit=1000)) == before + 1


def test_names_and_unique_beginnings_find_jobs(client: Client, tmp_path: Path) -> None:
    for name in ("alpha-one", "alpha-two"):
        client.submit(write_project(tmp_path / name, name=name))
    assert client.job("alpha-o").name == "alpha-one"
    with pytest.raises(InputError, match="stands for several jobs"):
        client.job("alpha")
    with pytest.raises(InputError, match="there is no job 'omega'"):
        client.job("omega")


def test_of_jobs_with_one_name_the_newest_is_shown_but_none_cancelled_by_it(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine.executor, "usual", FakeJob(speeds={1: 0.01}))
    job = write_project(tmp_path, name="twin")
    first, second = client.submit(job), client.submit(job)
    assert client.job("twin").id == second.id
    with pytest.raises(InputError, match=f"several jobs: twin .{second.id}., twin .{first.id}."):
        client.cancel("twin")
    assert client.cancel(first.id).state == "cancelled"
    assert client.cancel("twin").id == second.id


@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        ({"devices": 50}, "fewer devices"),
        ({"device_types": ["h100"]}, "springtide nodes"),
        ({"elastic": False, "devices": 1, "deadline": "1h"}, "add duration:"),
    ],
)
def test_why_says_what_would_help(client: Client, tmp_path: Path, keys: dict[str, Any], remedy: str) -> None:
    told = client.why(client.submit(write_project(tmp_path, **keys)).id)
    assert told.state == "declined"
    assert remedy in told.remedy


#: What the page on security names.
OPEN = {"/healthz", "/readyz", "/signin", "/signin/{secret}", "/static/{name:path}"}


def list_routes(server: Server) -> set[tuple[str, str]]:
    """Every method and path there is, of the API and of the pages."""
    app = server.app.app
    assert isinstance(app, FastAPI)
    routes = [route for route in app.routes if isinstance(route, Route)]
    described = {(verb.upper(), path) for path, verbs in app.openapi()["paths"].items() for verb in verbs}
    return described | {(method, route.path) for route in routes for method in route.methods or ()}


def test_every_route_but_the_open_ones_needs_a_token(tmp_path: Path) -> None:
    with run_server(tmp_path, add_pages=add_pages) as server, httpx.Client(base_url=server.url) as line:
        routes = list_routes(server)
        assert len(routes) > 60 and {path for _, path in routes} >= OPEN
        for method, path in sorted({*routes, ("GET", "/nowhere")}):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
                reply = line.request(method, re.sub(r"{[^}]*}", "x", path), headers=headers)
                # without a token a change could only be a page's, and this is none
                is_foreign = method in WRITING and "Bearer" not in str(headers)
                is_refused = reply.status_code == 403 if is_foreign else "WWW-Authenticate" in reply.headers
                assert is_refused is (path not in OPEN), (method, path, reply.status_code)
        assert httpx.get(f"{server.url}/healthz").json()["status"] == "ok"
        with Client(server.url, "wrong") as stranger, pytest.raises(ServerError, match="no valid token"):
            stranger.jobs()


def test_the_page_on_security_names_every_open_route() -> None:
    page = (Path(__file__).parents[3] / "docs/concepts/security.md").read_text()
    told = page.partition("**Who comes in.**")[2].partition("need")[0]
    assert {re.sub(r"[{/][^}/]*}", "", path).rstrip("/") for path in OPEN} == set(re.findall(r"`(/[a-z]+)", told))


def test_strange_hosts_origins_and_bodies_are_refused(server: Server, client: Client) -> None:
    def status(method: str, headers: dict[str, str], content: bytes = b"{}") -> int:
        return client.send(method, "/api/v1/jobs", headers=headers, content=content).status_code

    assert status("GET", {"host": "evil.example"}) == 421
    assert status("GET", {"origin": "https://evil.example"}) == 403
    assert status("GET", {"origin": "null"}) == 403
    assert status("GET", {"origin": server.url}) == 200
    assert status("GET", {"origin": "http://127.0.0.1:1"}) == 403
    assert status("GET", {"origin": "ftp://" + server.url.split("//")[1]}) == 403
    assert status("POST", {"content-type": "text/plain"}) == 415
    assert status("POST", {"content-type": "application/x-www-form-urlencoded"}) == 415
    assert status("POST", {"content-type": "application/json"}, b" " * 1_100_000) == 413


def test_pages_of_other_ports_are_foreign_but_a_proxy_is_not() -> None:
    names = frozenset({"127.0.0.1", "localhost", "::1", "train.example"})
    assert is_own_origin("http://localhost:8410", "localhost:8410", names)
    assert not is_own_origin("http://localhost:3000", "localhost:8410", names)
    assert is_own_origin("https://train.example", "127.0.0.1:8410", names)
    assert not is_own_origin("https://evil.example", "127.0.0.1:8410", names)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"deadlin": "5m"}, "unknown key 'deadlin'; did you mean 'deadline'?"),
        ({"deadline": "2001-01-01T00:00:00Z"}, "in the past"),
        ({"run": "python nowhere.py"}, "'nowhere.py' does not exist in workdir"),
        ({"run": "python ../../x.py"}, "outside workdir"),
        ({"name": "../../etc"}, "name '../../etc' must be"),
        ({"priority": "high"}, "priority is 'high'"),
    ],
)
def test_bad_jobs_are_refused_in_the_words_of_the_job_file(
    client: Client, tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    response = client.send("POST", "/api/v1/jobs", json=body(client, tmp_path, **keys))
    assert response.status_code == 422
    assert message in response.json()["error"]["sentence"]


def test_archives_must_be_whole_named_rightly_and_harmless(client: Client) -> None:
    headers = {"Content-Type": "application/x-tar"}
    response = client.send("PUT", f"/api/v1/archives/{'0' * 64}", content=b"not a tar", headers=headers)
    assert response.status_code == 422
    response = client.send("PUT", f"/api/v1/archives/{'0' * 64}", content=b"\0" * 10240, headers=headers)
    assert "has the SHA-256" in response.json()["error"]["sentence"]
    assert client.send("PUT", "/api/v1/archives/..%2f..%2fx", content=b"", headers=headers).status_code in (404, 422)


def test_the_state_directory_is_private(server: Server) -> None:
    home = server.settings.state_dir
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    beside = [home.database.with_name(home.database.name + suffix) for suffix in ("-wal", "-shm")]
    for path in (home.token, home.database, home.address, *beside):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = home.token.read_text().strip()
    assert token.encode() not in home.database.read_bytes()


def test_users_see_and_cancel_their_own_jobs_only(server: Server, client: Client, tmp_path: Path) -> None:
    token = client.put_user("bob", most_active=1).token
    job = write_project(tmp_path / "b", name="bobs-job", run="python train.py 1")
    mine = client.submit(write_project(tmp_path / "a", name="admins-job"))
    with connect(server, token) as bob:
        own = bob.submit(job)
        assert {one.user for one in bob.jobs(all=True)} == {"bob"}
        with pytest.raises(InputError, match="there is no job"):
            bob.cancel(mine.id)
        held = {device.job_name for device in bob.nodes()} | {str(fact) for fact in bob.why(own.id).facts}
        assert "admins-job" not in str(held)
        seen = bob.events()  # its job goes on meanwhile
        assert seen and seen == [event for event in client.events() if event.job == own.id][: len(seen)]
        for act in (bob.users, bob.stop, lambda: bob.put_user("eve")):
            with pytest.raises(ServerError, match="not an admin"):
                act()
        with pytest.raises(InputError, match="active jobs; the limit is 1"):
            bob.submit(job)
    assert client.cancel(own.id).state == "cancelled"
    assert client.why(own.id).sentence == f"it was cancelled by {server.owner.name}"
    with pytest.raises(InputError, match="own admin rights"):
        client.put_user(server.owner.name, admin=False)
    assert client.drop_user("bob").document == {"schema": 1, "removed": "bob"}
    with connect(server, token) as bob, pytest.raises(ServerError):
        bob.jobs()
    with connect(server, client.put_user("bob").token) as another:
        assert (another.jobs(all=True), another.events()) == ([], [])
        with pytest.raises(InputError, match="there is no job"):
            another.job(own.id)
    client.drop_user("bob")


def test_a_quota_counts_what_is_outstanding(server: Server, client: Client, tmp_path: Path) -> None:
    job = write_project(tmp_path / "a", deadline="10m", run="python train.py quota", devices=1)
    client.wait(client.submit(job).id)
    alone_s = client.plan(job).shares[0].alone_s
    token = client.put_user("carl", quota_device_s=1.5 * alone_s).token
    with connect(server, token) as carl:
        answers = [carl.submit(job) for _ in range(3)]
        assert answers[0].answer == "admitted"
        assert (answers[-1].answer, answers[-1].reason) == ("declined", "quota_exceeded")
        assert "are left for user carl" in answers[-1].sentence
        for answer in answers:
            carl.wait(answer.id)
        assert carl.submit(job).answer == "admitted"


def test_secrets_are_in_no_record_and_gone_at_the_end(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2-very-secret")
    answer = client.submit(write_project(tmp_path / "a", secrets=["API_KEY"]))
    home = server.settings.state_dir
    path = home.secrets_file(answer.id)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    client.wait(answer.id)
    assert not path.exists()
    for file in home.root.rglob("*"):
        if file.is_file():
            assert b"hunter2" not in file.read_bytes(), file
    assert "hunter2" not in str(client.job(answer.id).document) + str([event.document for event in client.events()])


@pytest.mark.parametrize("secrets", [{"KEY": 31337}, {"KEY": "31337" * 20_000}, "31337", ["31337"]])
def test_a_refusal_does_not_repeat_a_secret(client: Client, tmp_path: Path, secrets: object) -> None:
    wrong = body(client, tmp_path, secrets=["KEY"]) | {"secrets": secrets}
    response = client.send("POST", "/api/v1/jobs", json=wrong)
    assert response.status_code == 422
    assert "secrets" in response.text and "31337" not in response.text


@pytest.mark.parametrize(
    ("usual", "own", "message"),
    [
        (
            100_000,
            25_000,
            r"the archive holds .* MB in 3 files; .* The largest are: large.bin .*, small.bin .*, train.py",
        ),
        (20_000, 20_000, r"workdir .* holds .* The largest are: large.bin .*, small.bin .*, train.py"),
        (20_000, 200_000, ""),
    ],
)
def test_the_limit_of_a_server_holds_above_and_below_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: int, own: int, message: str
) -> None:
    monkeypatch.setattr("springtide.client.client.LIMIT_BYTES", usual)
    job = write_project(tmp_path / "work")
    for name, size in (("large.bin", 30_000), ("small.bin", 100)):
        (tmp_path / "work" / name).write_bytes(b"x" * size)
    with run_server(tmp_path, replace(OPTIONS, archive_limit_bytes=own)) as server, connect(server) as client:
        if not message:
            assert client.submit(job).answer == "admitted"
            return
        with pytest.raises(InputError, match=message):
            client.submit(job)


def test_all_events_are_told_however_many_there_are(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("springtide.client.client.PAGE_EVENTS", 2)
    job_id = client.wait(client.submit(write_project(tmp_path / "a")).id).id
    events = client.events(job_id)
    assert len(events) > 3
    assert [events[0].kind, events[-1].kind] == ["submitted", "succeeded"]
    assert client.events(job_id, events[-1].seq) == []


def test_too_many_changes_per_second_are_refused(tmp_path: Path) -> None:
    with run_server(tmp_path, replace(OPTIONS, rate_per_s=0.001, burst=3)) as server, connect(server) as client:
        codes = [client.send("POST", "/api/v1/jobs/x/cancel", json={}).status_code for _ in range(5)]
        assert codes == [404, 404, 404, 429, 429]
        assert client.send("GET", "/api/v1/jobs").status_code == 200


def test_metrics_nodes_and_schema_are_served(client: Client) -> None:
    page = client.send("GET", "/metrics").text
    for name in ("springtide_jobs{", "springtide_deadline_met_total", "springtide_devices", "springtide_offers_total"):
        assert name in page
    assert [device.device_type for device in client.nodes()] == ["fake", "fake"]
    assert client.ask("GET", "/api/v1/schema")["required"] == ["run"]
    assert client.server().devices == 2


def test_logs_are_paged_tailed_and_reopened_after_rotation(server: Server, client: Client, tmp_path: Path) -> None:
    job_id = client.wait(client.submit(write_project(tmp_path / "a")).id).id
    folder = server.settings.state_dir.logs(job_id)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "rank-0.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)) + "no end")
    assert "".join(client.logs(job_id)) == log.read_text()
    assert "".join(client.logs(job_id, tail=2)) == "line 99\nno end"
    assert read_log(server.settings.state_dir, job_id, 0, 0).text == log.read_text().removesuffix("no end"), (
        "its line may go on"
    )
    (folder / "rank-1.log").write_text("a line without an end" * 20_000)
    assert "".join(client.logs(job_id, rank=1)) == (folder / "rank-1.log").read_text()
    page = client.ask("GET", f"/api/v1/jobs/{job_id}/logs", params={"offset": 10**6})
    assert page["offset"] == 0
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\nbroken\n{"step": 2, "loss": 1.0}\n')
    assert [entry.step for entry in client.metrics(job_id)] == [1, 2]


def test_a_link_in_the_place_of_a_log_shows_nothing(server: Server, client: Client, tmp_path: Path) -> None:
    job_id = client.wait(client.submit(write_project(tmp_path / "a")).id).id
    home = server.settings.state_dir
    home.logs(job_id).mkdir(parents=True, exist_ok=True)
    (home.logs(job_id) / "rank-0.log").symlink_to(home.token)
    (home.logs(job_id) / "metrics.jsonl").symlink_to(home.token)
    assert ("".join(client.logs(job_id)), client.metrics(job_id)) == ("", [])
    (home.logs(job_id) / "rank-0.log").unlink()
    os.mkfifo(home.logs(job_id) / "rank-0.log")
    assert "".join(client.logs(job_id)) == "", "nobody waits for a pipe"


def test_a_hundred_submissions_at_once_are_all_stored_and_answered(
    client: Client, server: Server, tmp_path: Path
) -> None:
    content = body(client, tmp_path / "a", deadline="50h")
    client.wait(client.submit(tmp_path / "a" / "job.yaml", accept_offer=True).id)
    client.wait(client.submit(write_project(tmp_path / "a", deadline="10m")).id)
    states: list[str] = []

    def submit() -> None:
        with connect(server) as other:
            for _ in range(10):
                states.append(other.ask("POST", "/api/v1/jobs", json=content)["state"])

    threads = [threading.Thread(target=submit) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 100
    assert set(states) <= {"admitted", "running"}
    for job in client.jobs(limit=1000):
        client.cancel(job.id)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("{", "the body is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"job": {"run": "x", "deadline": "9999-12-31T23:59:59Z"}, "archive": "ARCHIVE"}',
            "more than ten years ahead",
        ),
        ('{"job": {"run": "python ../x.py"}, "archive": "ARCHIVE"}', "lies outside workdir"),
        ('{"job": {"run": "x", "name": "../x"}, "archive": "ARCHIVE"}', "name '../x' must be"),
        ('"' + "x" * (1 << 21) + '"', "larger than"),
    ],
)
def test_whatever_a_body_holds_is_answered_in_a_sentence(
    server: Server, client: Client, tmp_path: Path, body: str, sentence: str
) -> None:
    archive = client.upload(load_job(write_project(tmp_path / "work")).pack())
    headers = {"Authorization": f"Bearer {server.settings.state_dir.token.read_text().strip()}"}
    response = httpx.post(
        f"{server.url}/api/v1/jobs",
        content=body.replace("ARCHIVE", archive),
        headers={**headers, "Content-Type": "application/json"},
    )
    assert 400 <= response.status_code < 500
    assert sentence in response.json()["error"]["sentence"]
    assert (
        httpx.get(f"{server.url}/nowhere", headers=headers).json()["error"]["sentence"].startswith("there is nothing")
    )


def test_parallel_uploads_of_the_same_new_code_are_all_taken(server: Server, client: Client, tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "much.bin").write_bytes(os.urandom(3_000_000))
    archive = load_job(tmp_path / "job.yaml").pack()
    codes: list[int] = []

    def upload() -> None:
        with connect(server) as other:
            kind = {"Content-Type": "application/x-tar"}
            path = f"/api/v1/archives/{archive.code_hash}"
            codes.append(other.send("PUT", path, content=archive.data, headers=kind).status_code)

    threads = [threading.Thread(target=upload) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [201] * 12
    code = server.settings.state_dir.code
    assert not [path for path in code.iterdir() if path.name.startswith(".upload-")]
    assert (code / archive.code_hash / "much.bin").stat().st_size == 3_000_000


def test_an_archive_that_is_refused_is_a_clean_4xx(client: Client) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("a", "a/b"):
            tar.addfile(tarfile.TarInfo(name))
    content = buffer.getvalue()
    path = f"/api/v1/archives/{hashlib.sha256(content).hexdigest()}"
    response = client.send("PUT", path, content=content, headers={"Content-Type": "application/x-tar"})
    assert (response.status_code, response.json()["error"]["reason"]) == (422, "archive")
    assert "'a' both as a file and as a folder" in response.json()["error"]["sentence"]


def test_a_failure_of_ours_is_told_as_a_document(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(server.store, "count_jobs", fail)
    told = client.send("GET", "/api/v1/server")
    monkeypatch.setattr(server.store, "users", fail)
    before = client.send("GET", "/api/v1/server")
    for response in (told, before):
        assert (response.status_code, response.json()["error"]["reason"]) == (500, "internal")
        assert "inside" not in response.text
    numbers = [response.json()["error"]["sentence"].rsplit(" ", 1)[1] for response in (told, before)]
    assert all(number in caplog.text for number in numbers)


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z"])
def test_dates_at_the_edge_of_time_are_refused(client: Client, tmp_path: Path, deadline: str) -> None:
    content = body(client, tmp_path / "a") | {"job": {"run": "python train.py", "deadline": deadline}}
    response = client.send("POST", "/api/v1/jobs", json=content)
    assert (response.status_code, "deadline" in response.json()["error"]["sentence"]) == (422, True)


def test_an_empty_token_lets_nobody_in(server: Server) -> None:
    host, port = server.socket.getsockname()
    for value in (b"", b" ", b"Bearer", b"Bearer ", b"Bearer  "):
        with socket.create_connection((host, port)) as line:
            line.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + value + b"\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("content", ["", "\n", "  "])
def test_an_empty_token_file_is_written_anew_and_a_short_one_refused(tmp_path: Path, content: str) -> None:
    home = StateDir(tmp_path / "home").make()
    home.token.write_text(content)
    with run_server(tmp_path) as server:
        assert len(home.token.read_text().strip()) > 40
        with connect(server, "x") as stranger, pytest.raises(ServerError):
            stranger.jobs()
        with connect(server) as client:
            assert client.jobs() == []
    home.token.write_text("secret")
    with pytest.raises(StateError, match="has 6 characters"), run_server(tmp_path):
        pass


def test_output_metrics_and_attempts_are_one_stream_in_the_order_of_time(
    server: Server, client: Client, tmp_path: Path
) -> None:
    job_id = client.wait(client.submit(write_project(tmp_path / "a")).id).id
    logs = JobLogs(server.settings.state_dir.logs(job_id))
    logs.begin("start", ["cpu:0"], 0, 100.0)
    logs.write(0, b"loading\nbuilding\n", 101.0)
    logs.write_metrics(1, {"loss": 2.0}, 102.0)
    logs.write(0, b"one step\n", 102.01)
    logs.write(1, b"rank one\n", 101.5)
    logs.note("end", (), 1, 103.0, "rank 0 was killed")
    logs.begin("start", ["cpu:1"], 1, 104.0)
    logs.write_metrics(2, {"loss": 1.0}, 105.0)
    logs.write(0, b"no end", 106.0)
    logs.close()
    told = [line.text for line in client.read_log(job_id)]
    assert told == [
        *("--- attempt 1 on cpu:0", "loading", "building", "step 1: loss=2", "one step"),
        *("--- attempt 1 ended at step 1: rank 0 was killed", "--- attempt 2 on cpu:1, after step 1"),
        *("step 2: loss=1", "no end"),
    ]
    assert [line.text for line in client.read_log(job_id, LogChoice(tail=3))] == told[-3:]
    both = list(client.read_log(job_id, LogChoice(ranks=(), only=LogKind.OUTPUT)))
    assert [(line.rank, line.text, line.at_s) for line in both][2:4] == [
        (1, "rank one", 101.5),
        (0, "one step", 102.01),
    ]
    assert [line.text for line in client.read_log(job_id, LogChoice(since_s=104.5))] == told[-2:]
    found = client.read_log(job_id, LogChoice(pattern=r"loss=\d|^load", ranks=()))
    assert [line.text for line in found] == ["loading", "step 1: loss=2", "step 2: loss=1"]
    assert [one.kind for one in client.attempts(job_id)] == ["start", "end", "start"]


def test_a_log_that_lost_its_beginning_says_so(server: Server, client: Client, tmp_path: Path) -> None:
    job_id = client.wait(client.submit(write_project(tmp_path / "a")).id).id
    folder = server.settings.state_dir.logs(job_id)
    folder.mkdir(parents=True, exist_ok=True)
    log = RotatingLog(folder / "rank-0.log", files=2, file_bytes=100_000)
    for number in range(50_000):
        log.write(f"line {number:05d}\n".encode(), float(number))
    log.close()
    first, second, *_ = client.read_log(job_id)
    assert first.text == "--- 0.4 MB that rank 0 printed before this are no longer kept"
    assert second.text.startswith("line 3")
    text = client.send("GET", f"/api/v1/jobs/{job_id}/logs/text", headers={"Range": "bytes=0-"})
    assert text.status_code == 206 and text.headers["content-range"].endswith("-549999/550000")
    stranger = connect(server, client.put_user("eve").token)
    for part in ("logs", "logs/text", "logs/times", "attempts", "metrics"):
        assert stranger.send("GET", f"/api/v1/jobs/{job_id}/{part}").status_code == 404
    stranger.close()


def test_a_job_is_followed_until_its_last_line(server: Server, client: Client, tmp_path: Path) -> None:
    job = client.submit(write_project(tmp_path / "a", steps=150))
    logs = JobLogs(server.settings.state_dir.logs(job.id))
    logs.write(0, b"begin\nhalf a l", 1.0)
    seen = []
    for line in client.read_log(job, LogChoice(only=LogKind.OUTPUT), follow=True):
        seen.append(line.text)
        if line.text == "begin":
            logs.write(0, b"ine\nno end", 2.0)
    logs.close()
    assert seen == ["begin", "half a line", "no end"]
