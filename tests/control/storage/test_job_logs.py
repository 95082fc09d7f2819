"""A log as one text over the files it lies in: its lines counted, its places kept, its times, and what was dropped."""

import json
from pathlib import Path

import pytest

from springtide.control.storage import job_logs
from springtide.control.storage.state_dir import StateDir
from springtide.executors.local.jobs.worker_logs import JobLogs, RotatingLog
from springtide.executors.log_files import read_stamps


@pytest.fixture
def home(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "home").make()


def write_lines(home: StateDir, count: int, files: int = 4, file_bytes: int = 1000) -> RotatingLog:
    """A log of lines of ten bytes, one a second."""
    home.logs("a").mkdir(parents=True)
    log = RotatingLog(home.logs("a") / "rank-0.log", files, file_bytes)
    for number in range(count):
        log.write(f"line {number:04d}\n".encode(), 1000.0 + number)
    log.close()
    return log


def test_the_last_lines_are_counted_over_all_files(home: StateDir) -> None:
    write_lines(home, 350)
    for count in (1, 100, 249, 300):
        page = job_logs.read_log(home, "a", 0, 0, tail=count, active=False)
        assert page.text.count("\n") == count and page.text.endswith("line 0349\n")
    assert job_logs.read_log(home, "a", 0, 0, tail=1000, active=False).offset == 0


def test_the_last_lines_reach_further_than_a_page(home: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_logs, "PAGE_BYTES", 64)
    write_lines(home, 350)
    page = job_logs.read_log(home, "a", 0, 0, tail=100, active=False)
    assert page.offset == 2500 and page.text.startswith("line 0250\n")


def test_a_place_stays_good_when_files_rotate_and_what_was_dropped_is_known(home: StateDir) -> None:
    write_lines(home, 350)
    assert job_logs.read_log(home, "a", 0, 2000).text.startswith("line 0200\n")
    log = RotatingLog(home.logs("a") / "rank-0.log", 4, 1000)
    assert log.end == 3500, "an agent that starts again goes on counting"
    for number in range(350, 450):
        log.write(f"line {number:04d}\n".encode(), 1000.0 + number)
    log.close()
    page = job_logs.read_log(home, "a", 0, 2000)
    assert page.text.startswith("line 0200\n")
    assert (page.first_offset, page.end_offset) == (1000, 4500)
    assert job_logs.read_log(home, "a", 0, 10).offset == 1000, "the first of what is kept"


def test_every_line_has_its_time(home: StateDir) -> None:
    write_lines(home, 350)
    with job_logs.open_log(home, "a", 0) as log:
        stamps = [pair for data in log.stamps(2495) for pair in read_stamps(data)]
    assert stamps[0] == (2490, 1249.0) and stamps[-1] == (3490, 1349.0)


def test_a_log_of_an_earlier_version_has_no_times_and_is_read(home: StateDir) -> None:
    home.logs("a").mkdir(parents=True)
    (home.logs("a") / "rank-0.log.1").write_text("one\n")
    (home.logs("a") / "rank-0.log").write_text("two\n")
    assert job_logs.read_log(home, "a", 0, 0).text == "one\ntwo\n"
    log = RotatingLog(home.logs("a") / "rank-0.log")
    log.write(b"three\n", 5.0)
    log.close()
    assert job_logs.read_log(home, "a", 0, 0).text == "one\ntwo\nthree\n"
    with job_logs.open_log(home, "a", 0) as opened:
        assert b"".join(opened.stamps(0)) != b""


def test_output_is_stamped_after_a_pause_a_mark_or_much_of_it(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "rank-0.log")
    log.write(b"a\n", 10.0)
    log.write(b"b\n", 10.05)
    log.write(b"c\n", 10.5)
    log.mark()
    log.write(b"d\n", 10.51)
    log.write(b"e\n", 11.6)
    log.write(b"f" * 100 + b"\n", 11.61)
    log.write(b"g\n", 11.8)
    log.write(b"h\n", 3.0)
    log.close()
    assert list(read_stamps((tmp_path / "rank-0.times").read_bytes())) == [
        (0, 10.0),
        (6, 10.51),
        (8, 11.6),
        (111, 11.8),
    ]


def test_attempts_are_noted_and_counted_across_agents(home: StateDir) -> None:
    logs = JobLogs(home.logs("a"))
    logs.begin("probe", ["cpu:0"], 0, 1.0)
    logs.begin("start", ["cpu:0"], 0, 2.0)
    logs.close()
    again = JobLogs(home.logs("a"))
    again.note("end", (), 7, 3.0, "rank 0 was killed")
    again.begin("start", ["cpu:1"], 7, 4.0)
    notes = job_logs.read_notes(home, "a")
    assert [(note.kind, note.attempt) for note in notes] == [("probe", 1), ("start", 2), ("end", 2), ("start", 3)]
    assert notes[2].reason == "rank 0 was killed" and notes[3].devices == ("cpu:1",)


def test_metrics_are_paged_and_say_that_they_were_cut(home: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_logs, "MOST_METRICS", 10)
    home.logs("a").mkdir(parents=True)
    rows = "".join(json.dumps({"step": step, "metrics": {"loss": 1.0}}) + "\n" for step in range(1, 26))
    (home.logs("a") / "metrics.jsonl").write_text(rows + '{"step": 26')
    first = job_logs.read_metrics(home, "a", 0)
    assert first.more and [entry["step"] for entry in first.entries] == list(range(1, 11))
    second = job_logs.read_metrics(home, "a", 0, first.next_offset)
    third = job_logs.read_metrics(home, "a", 0, second.next_offset)
    assert [entry["step"] for entry in third.entries] == list(range(21, 26)) and not third.more
    assert [entry["step"] for entry in job_logs.read_metrics(home, "a", 0, tail=3).entries][-1] == 25


def test_files_that_a_job_has_written_over_are_read_up_to_a_limit(
    home: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "MOST_TIMES_BYTES", 160)
    monkeypatch.setattr(job_logs, "MOST_LINE_BYTES", 1000)
    write_lines(home, 350)
    with job_logs.open_log(home, "a", 0) as log:
        assert {len(piece.stamps) for piece in log.pieces} == {160}
    note = b'{"kind": "start", "attempt": 1, "at_s": 0, "step": 0, "devices": [], "reason": "%s"}\n'
    (home.logs("a") / "attempts.jsonl").write_bytes(note % (b"x" * 5000) + note % b"")
    assert [one.reason for one in job_logs.read_notes(home, "a")] == [""]
    long = b'{"step": 2, "loss": "' + b"x" * 5000 + b'"}\n'
    (home.logs("a") / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + long + b'{"step": 3}\n{"step": 4')
    page = job_logs.read_metrics(home, "a", 0)
    assert [entry["step"] for entry in page.entries] == [1, 3] and not page.more
    monkeypatch.setattr(job_logs, "MOST_READ_BYTES", 2000)
    first = job_logs.read_metrics(home, "a", 0)
    assert [entry["step"] for entry in first.entries] == [1] and first.more
