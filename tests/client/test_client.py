"""The client as the README uses it, against a server in this process; its routes are tested with the API."""

import json
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path

import pytest
from tests.control.http_servers import connect, run_server, write_project

from springtide.cli.app import main
from springtide.client.client import Client
from springtide.client.http_connections import HttpResponse
from springtide.client.server_connection import ServerConnection, find_error
from springtide.core.job_states import JobState
from springtide.errors import (
    ArchiveError,
    ConflictError,
    ForbiddenError,
    InputError,
    JobError,
    LimitError,
    MissingError,
    RemovedUserError,
    ServerError,
    SpringtideError,
    UnavailableError,
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with run_server(tmp_path) as server, connect(server) as client:
        yield client


def test_a_job_is_followed_by_what_the_client_said_of_it(client: Client, tmp_path: Path) -> None:
    job = client.submit(write_project(tmp_path / "a", deadline="10m"))
    assert job.answer == "admitted" and job.promised
    ended = client.wait(job)
    assert ended.met and ended.ended and ended.finished_at is not None
    assert ended.deadline is not None and ended.finished_at < ended.deadline
    assert client.why(job).state is JobState.SUCCEEDED
    assert [event.kind for event in client.events(job)][-1] == "succeeded"
    assert {device.device_type for device in client.devices()} == {"fake"} and client.nodes() == client.devices()
    assert client.plan(write_project(tmp_path / "a", deadline="20m")).answer == "admitted"


def test_the_probe_of_unknown_code_is_told(client: Client, tmp_path: Path) -> None:
    seen: list[JobState] = []
    client.submit(write_project(tmp_path / "a", deadline="10m"), on_probe=lambda job: seen.append(job.state))
    assert seen == [JobState.PROBING]


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (422, "job", JobError),
        (422, "archive", ArchiveError),
        (404, "missing", MissingError),
        (404, "http", MissingError),
        (409, "conflict", ConflictError),
        (409, "unknownowner", ConflictError),
        (429, "limit", LimitError),
        (429, "rate_limited", LimitError),
        (422, "springtide", InputError),
        (422, "server", InputError),
        (401, "unauthorised", ServerError),
        (401, "removeduser", RemovedUserError),
        (403, "forbidden", ForbiddenError),
        (403, "foreign_origin", ServerError),
        (500, "internal", SpringtideError),
        (503, "unavailable", UnavailableError),
        (503, "standby", UnavailableError),
    ],
)
def test_an_error_document_is_the_exception_it_was(status: int, reason: str, expected: type[Exception]) -> None:
    told = json.dumps({"error": {"reason": reason, "sentence": "so it is"}})
    error = find_error(HttpResponse(status, HTTPMessage(), [told.encode()]))
    assert (type(error), str(error)) == (expected, "so it is")


def test_what_nobody_can_say_and_the_job_it_may_have_been_done_to_arrive() -> None:
    told = {"error": {"reason": "unavailable", "sentence": "so it is"}, "job": "j-1", "array": None, "unknown": True}
    error = find_error(HttpResponse(503, HTTPMessage(), [json.dumps(told).encode()]))
    assert isinstance(error, UnavailableError) and error.exit_code == 1
    assert error.facts == {"job": "j-1", "array": None, "unknown": True}
    assert find_error(HttpResponse(503, HTTPMessage(), [b"<html>"])).facts["unknown"], "it is not from our server"


@pytest.mark.parametrize(
    ("status", "reason", "code"), [(404, "missing", 2), (409, "conflict", 2), (403, "forbidden", 4), (503, "", 1)]
)
def test_a_command_tells_programs_which_kind_of_error_it_was(
    status: int, reason: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"error": {"reason": reason, "sentence": "so it is"}, "job": "j-1", "unknown": True}
    reply = HttpResponse(status, HTTPMessage(), [json.dumps(told).encode()])
    monkeypatch.setattr(ServerConnection, "send", lambda *_, **__: reply)
    monkeypatch.setenv("SPRINGTIDE_URL", "http://localhost:1")
    monkeypatch.setenv("SPRINGTIDE_TOKEN", "secret")
    with pytest.raises(SystemExit) as ended:
        main(["hold", "some-job", "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == document["error"]["exit_code"] == code
    assert document["error"]["reason"] == (reason or "unavailable")
    assert [document.get(name) for name in ("job", "unknown")] == (["j-1", True] if status == 503 else [None, None])


def test_something_else_at_the_address_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "send", lambda *_, **__: HttpResponse(200, HTTPMessage(), [b"<html>hello"]))
    with pytest.raises(ServerError, match="not a springtide server: <html>hello"):
        client.server()
