"""Telling people: decided purely, kept with what happened, sent to real servers here, bounded and retried."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.http_servers import OPTIONS, connect, run_server, write_project
from tests.control.notices.hooks import serve_web, wait_for

from springtide.control.notices import notice_deliveries, notifier
from springtide.control.notices.notice_decisions import ENDINGS, MOST_TRIES, decide_notices, note_try, tell_failure
from springtide.control.storage.records import EventRecord, JobRecord, NoticeRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import JobError

KINDS = ["admitted", "started", "at_risk", "missed", "paused", "succeeded", "failed", "cancelled", "declined"]


def make_record(notify: list[dict[str, Any]]) -> JobRecord:
    spec = check_job({"run": "python train.py", "notify": notify}, "test")
    return JobRecord("1234", "digits", "ann", JobState.RUNNING, spec, 0.0)


@given(
    st.lists(st.lists(st.sampled_from([*KINDS, "ended"]), min_size=1, max_size=4), max_size=3),
    st.lists(st.sampled_from(KINDS)),
)
def test_each_entry_hears_of_what_it_asked_for_once(asked: list[list[str]], happened: list[str]) -> None:
    record = make_record([{"webhook": f"http://host/{number}", "on": on} for number, on in enumerate(asked)])
    events = [EventRecord(float(at_s), kind, "sentence", "1234") for at_s, kind in enumerate(happened)]
    told = [(one.way["webhook"], one.at_s) for one in decide_notices(events, {"1234": record})]
    wanted = [
        (f"http://host/{number}", event.at_s)
        for event in events
        for number, on in enumerate(asked)
        if event.kind in on or ("ended" in on and event.kind in ENDINGS)
    ]
    assert told == wanted
    assert decide_notices([replace(event, job=None) for event in events], {"1234": record}) == []


def test_a_notice_is_tried_later_and_later_and_then_given_up() -> None:
    notice, dues = NoticeRecord("1234", 0.0, {}, {}), []
    while notice.state == "open":
        notice = note_try(notice, "no answer", 100.0)
        dues.append(notice.due_s)
    assert (notice.state, notice.tries, notice.said) == ("given_up", MOST_TRIES, "no answer")
    assert dues[:-1] == sorted(set(dues[:-1]))
    assert tell_failure(notice).endswith("has not arrived after 6 tries: no answer; it was given up")
    assert note_try(NoticeRecord("1234", 0.0, {}, {}), "", 1.0).state == "sent"


@contextmanager
def serve_mail() -> Iterator[tuple[int, list[str]]]:
    """An SMTP server, and the mails it took."""
    mails: list[str] = []

    class Mailbox(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline().decode():
                if line.upper().startswith("DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
                    mails.append("".join(lines))
                    self.wfile.write(b"250 taken\r\n")
                elif line.upper().startswith("QUIT"):
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"250 fine\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], mails
        server.shutdown()


def test_a_finished_job_is_told_by_webhook_mail_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.control.notices.notice_decisions.PAUSES_S", (0.1,) * 5)
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    said = tmp_path / "said.json"
    with serve_web([500]) as (hook, heard), serve_mail() as (port, mails):
        options = replace(OPTIONS, smtp={"host": "127.0.0.1", "port": port, "sender": "platform@example.org"})
        ways: list[dict[str, object]] = [
            {"webhook": hook},
            {"email": "ann@example.org"},
            {"command": ["tee", str(said)]},
        ]
        path = write_project(
            tmp_path / "work", name="digits", labels={"team": "a"}, notify=[{**way, "on": ["ended"]} for way in ways]
        )
        with run_server(tmp_path, options) as server, connect(server) as client:
            job = client.wait(client.submit(path))
            wait_for(lambda: [one.state for one in client.notices(job)] == ["sent"] * 3)
            tries = {next(key for key in one.way if key != "on"): one.tries for one in client.notices(job)}
    assert len(heard) == 2 and tries["webhook"] == 2, "it was tried again after a failure"
    assert heard[1]["job"] == job.id and heard[1]["event"] == "succeeded" and heard[1]["labels"] == {"team": "a"}
    assert "Subject: [springtide] digits: succeeded" in mails[0] and "To: ann@example.org" in mails[0]
    assert json.loads(said.read_text())["sentence"].startswith("finished after step")


def test_who_was_never_told_is_an_event_and_a_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.control.notices.notice_decisions.PAUSES_S", (0.1,) * 5)
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    path = write_project(tmp_path / "work", notify=[{"command": ["false"], "on": ["ended"]}])
    with run_server(tmp_path) as server, connect(server) as client:
        job = client.wait(client.submit(path))
        wait_for(lambda: [one.state for one in client.notices(job)] == ["given_up"])
        wait_for(lambda: [one.kind for one in client.events(job)].count("notice_failed") == 2)
        told = [one.sentence for one in client.events(job) if one.kind == "notice_failed"]
        facts = client.why(job).facts
    assert told[0].startswith("its notice of succeeded by command has not arrived after 1 try: false ended with code 1")
    assert told[1].endswith("it was given up") and told[1] in facts


def test_a_webhook_that_hangs_keeps_nothing_up_and_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_deliveries, "DELIVERY_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        path = write_project(tmp_path / "work", notify=[{"webhook": hook, "on": ["admitted", "started", "ended"]}])
        with run_server(tmp_path) as server, connect(server) as client:
            jobs = [client.submit(path) for _ in range(3)]
            assert [client.wait(job).state for job in jobs] == [JobState.SUCCEEDED] * 3
            wait_for(lambda: any(one.tries for one in client.notices(jobs[0])))
            first = next(one for one in client.notices(jobs[0]) if one.tries)
    assert first.state == "open" and first.problem == "no answer within 1 s"


def test_a_server_stops_while_a_webhook_hangs_and_the_next_one_tells(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        path = write_project(tmp_path / "work", notify=[{"webhook": f"http://127.0.0.1:{port}/hook", "on": ["ended"]}])
        with run_server(tmp_path) as server, connect(server) as client:
            job = client.wait(client.submit(path))
            wait_for(lambda: server.notifier.under_way)
    with serve_web([], port) as (_, heard), run_server(tmp_path) as server, connect(server) as client:
        wait_for(lambda: [one.state for one in client.notices(job)] == ["sent"])
    assert [one["event"] for one in heard] == ["succeeded"]


def test_mail_is_refused_where_no_server_sends_it(tmp_path: Path) -> None:
    path = write_project(tmp_path / "work", notify=[{"email": "ann@example.org"}])
    with run_server(tmp_path) as server, connect(server) as client, pytest.raises(JobError, match="set smtp"):
        client.submit(path)
