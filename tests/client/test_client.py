"""The client as the README uses it, against a server in this process; its routes are tested with the API."""

import json
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path

import pytest
from tests.control.http_servers import connect, run_server, write_project

from springtide.client.client import Client
from springtide.client.http_line import HttpResponse
from springtide.client.server_line import find_error
from springtide.core.job_states import JobState
from springtide.errors import ArchiveError, InputError, JobError, ServerError, SpringtideError


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
    assert {device.device_type for device in client.nodes()} == {"fake"}
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
        (404, "missing", InputError),
        (422, "springtide", InputError),
        (401, "unauthorised", ServerError),
        (500, "internal", SpringtideError),
    ],
)
def test_an_error_document_is_the_exception_it_was(status: int, reason: str, expected: type[Exception]) -> None:
    told = json.dumps({"error": {"reason": reason, "sentence": "so it is"}})
    error = find_error(HttpResponse(status, HTTPMessage(), [told.encode()]))
    assert (type(error), str(error)) == (expected, "so it is")


def test_something_else_at_the_address_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "send", lambda *_, **__: HttpResponse(200, HTTPMessage(), [b"<html>hello"]))
    with pytest.raises(ServerError, match="no springtide server: <html>hello"):
        client.server()
