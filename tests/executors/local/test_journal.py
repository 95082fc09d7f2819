"""The agent's memory survives any cut, and its logs never grow without bound."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.control.storage.job_logs import pick_entries
from springtide.executors.delivery import Freshness
from springtide.executors.local import journal as journals
from springtide.executors.local.jobs.worker_logs import KEPT_STEPS, JobLogs, MetricSeries, Pipe, RotatingLog, read_tail
from springtide.executors.local.journal import Journal
from springtide.executors.protocol import (
    CheckpointPolicy,
    Event,
    Faulted,
    Finished,
    Instruction,
    JobSpec,
    Progressed,
    Resize,
    ScriptInfo,
    Start,
    Stop,
)

SPEC = JobSpec(("python", "t.py"), "/code", CheckpointPolicy("/c"), "/o", "/l")


def make(kind: str, job: str, number: int) -> Instruction | Event:
    common: dict[str, Any] = {"job": job, "generation": number}
    key = f"{job}-{number}"
    makers: dict[str, Any] = {
        "start": lambda: Start(**common, key=key, spec=SPEC, devices=("cpu:0",)),
        "resize": lambda: Resize(**common, key=key, devices=("cpu:0", "cpu:1")),
        "stop": lambda: Stop(**common, key=key),
        "crash": lambda: Faulted(**common, cause="crashed", reason="", step=number, user_fault=True),
        "info": lambda: ScriptInfo(
            **common,
            logical_workers=max(1, number),
            total_steps=9,
            steps_per_epoch=3,
            device_type="cpu",
            torch_version="2",
            startup_s=1.0,
        ),
        "progress": lambda: Progressed(
            **common, step=number, total_steps=9, epoch=0, steps_per_s=1.0, outside_s=0.0, share=1
        ),
        "finish": lambda: Finished(**common, step=9),
    }
    made: Instruction | Event = makers[kind]()
    return made


KINDS = ["start", "resize", "stop", "crash", "info", "progress", "finish", "acknowledge", "rewrite"]
doings = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"), st.integers(0, 9)), max_size=30)


def do(journal: Journal, kind: str, job: str, number: int) -> None:
    if kind == "acknowledge":
        journal.acknowledge(number)
    elif kind == "rewrite":
        journal.rewrite()
    elif kind in ("start", "resize", "stop"):
        journal.accept(make(kind, job, number))  # type: ignore[arg-type]
    else:
        journal.add_event(make(kind, job, number), 1.5)  # type: ignore[arg-type]


def remember(journal: Journal) -> tuple[Any, ...]:
    return journal.jobs, journal.outbox.waiting, journal.outbox.last, journal.generations.seen


@settings(max_examples=60, deadline=None)
@given(doings, st.integers(0, 30))
def test_a_killed_agent_remembers_everything(tmp_path_factory: Any, asked: list[Any], cut: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    journal = Journal(path)
    for kind, job, number in asked:
        do(journal, kind, job, number)
    assert journal.sync()
    with path.open("ab") as file:
        file.write(b'{"event": {"kind": "finished", "job": "a", "gener'[:cut])
    again = Journal(path)
    third = Journal(path)
    assert remember(again) == remember(journal) == remember(third)
    for opened in (journal, again, third):
        opened.close()


def test_an_instruction_is_new_once_even_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    assert journal.path.stat().st_mode & 0o077 == 0
    start = make("start", "a", 3)
    assert isinstance(start, Start)
    assert journal.accept(start) is Freshness.NEW
    journal.close()
    journal = Journal(tmp_path / "j")
    assert journal.accept(start) is Freshness.REPEATED
    stale = make("stop", "a", 2)
    assert isinstance(stale, Stop)
    assert journal.accept(stale) is Freshness.STALE
    assert journal.jobs["a"].ending is None
    journal.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.add_event(make("finish", "a", 1), 0.0)  # type: ignore[arg-type]
    real = journal.file
    with Path("/dev/full").open("ab", buffering=0) as journal.file:
        assert not journal.sync()
    assert "No space left" in journal.failure
    journal.file = real
    assert journal.sync() and not journal.failure
    again = Journal(tmp_path / "j")
    assert [event.kind for event in again.outbox.waiting] == ["finished"]
    journal.close()
    again.close()


def test_what_the_disk_refused_once_is_not_believed_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel says once that pages were lost, and calls the file clean from then on."""
    journal, refused = Journal(tmp_path / "j"), [OSError(errno.EIO, "Input/output error")]
    real, synced = os.fsync, list[int]()

    def sync(handle: int) -> None:
        if refused:
            raise refused.pop()
        synced.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    lost = journal.path.stat().st_ino
    journal.add_event(make("finish", "a", 1), 0.0)  # type: ignore[arg-type]
    assert not journal.sync() and "Input/output error" in journal.failure
    assert journal.sync() and not journal.failure
    assert journal.path.stat().st_ino in synced and journal.path.stat().st_ino != lost
    again = Journal(tmp_path / "j")
    assert [event.kind for event in again.outbox.waiting] == ["finished"]
    journal.close()
    again.close()


def test_a_job_that_goes_on_is_not_forgotten_for_those_that_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent twice would count as new, and take the job back to devices that it has left."""
    monkeypatch.setattr(journals, "GENERATIONS_LIMIT", 3)
    journal = Journal(tmp_path / "j")
    journal.accept(make("start", "long", 1))  # type: ignore[arg-type]
    for number in range(5):
        journal.accept(make("start", f"short-{number}", 1))  # type: ignore[arg-type]
        resize = make("resize", "long", number + 2)
        journal.accept(resize)  # type: ignore[arg-type]
    journal.close()
    Journal(tmp_path / "j").close()  # it is written anew, without what is too much
    again = Journal(tmp_path / "j")
    assert again.accept(resize) is Freshness.REPEATED  # type: ignore[arg-type]
    again.close()


def test_history_is_dropped_but_numbers_go_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    for number in range(6000):
        journal.add_event(make("progress", "a", number), 0.0)  # type: ignore[arg-type]
        journal.acknowledge(journal.outbox.last)
    journal.close()
    assert len((tmp_path / "j").read_bytes().splitlines()) < 6000
    again = Journal(tmp_path / "j")
    assert again.outbox.last == 6000 and again.outbox.waiting == []
    again.close()


def test_a_log_keeps_the_newest_and_never_more_than_its_files(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "rank-0.log", files=3, file_bytes=100)
    for number in range(100):
        log.write(f"line {number:03d}\n".encode(), float(number))
    log.close()
    files = sorted(tmp_path.glob("*.log*"))
    assert [file.name for file in files] == ["rank-0.log", "rank-0.log.1", "rank-0.log.2"]
    assert all(file.stat().st_size <= 100 for file in files)
    assert read_tail(tmp_path / "rank-0.log", lines=2) == ["line 099"]
    again = RotatingLog(tmp_path / "rank-0.log", files=3, file_bytes=100)
    assert again.size == files[0].stat().st_size
    again.close()


def test_a_pipe_brings_what_was_printed_and_ends(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path / "out")
    pipe.start()
    with pipe.path.open("w") as writer:
        writer.write("hello\n")
    assert pipe.read(limit=3) == b"hello\n"
    assert pipe.read() == b"" and not pipe.open
    pipe.close()


def test_metrics_are_one_series_across_restarts(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        series.write(step, {"loss": 1.0 / step}, 0.0)
    series.write(3, {"accuracy": 0.5}, 0.0)
    series = MetricSeries(tmp_path / "metrics.jsonl")
    for step in (2, 3, 4):
        series.write(step, {"loss": 1.0 / step}, 0.0)
    series.write(3, {"accuracy": 0.5}, 0.0)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], sorted(row["metrics"])) for row in rows] == [
        (1, ["loss"]),
        (2, ["loss"]),
        (3, ["loss"]),
        (3, ["accuracy"]),
        (4, ["loss"]),
    ]


def test_the_last_words_of_an_old_rank_0_are_kept_though_its_successor_was_read_first(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "metrics.jsonl")
    for step in (4, 5, 7, 6, 8, 6, 7):
        series.write(step, {"loss": 1.0 / step}, 0.0)
    with (tmp_path / "metrics.jsonl").open("rb") as lines:
        assert [entry["step"] for entry in pick_entries(lines, 0, 0).entries] == [4, 5, 6, 7, 8]


def test_a_step_trained_again_long_after_is_not_written_again(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "metrics.jsonl")
    steps = range(1, 4 * KEPT_STEPS)
    for step in steps:
        series.write(step, {"loss": 1.0 / step}, 0.0)
    for later in (series, MetricSeries(tmp_path / "metrics.jsonl")):
        for step in steps:
            later.write(step, {"loss": 1.0 / step}, 0.0)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == len(steps)


def test_a_log_book_has_one_file_per_rank(tmp_path: Path) -> None:
    book = JobLogs(tmp_path / "logs")
    book.write(0, b"zero\n", 0.0)
    book.write(1, b"one\n", 0.0)
    book.close()
    assert [read_tail(book.path_of(rank)) for rank in (0, 1, 2)] == [["zero"], ["one"], []]


def begin_attempt(book: JobLogs) -> None:
    book.begin("start", ["cpu:0"], 0, 0.0)


def test_what_an_earlier_attempt_said_is_not_the_cause_of_a_later_end(tmp_path: Path) -> None:
    book = JobLogs(tmp_path / "logs")
    begin_attempt(book)
    book.write(0, b"Traceback (most recent call last):\nValueError: first attempt\n", 0.0)
    assert "first attempt" in book.sum_up(0)
    begin_attempt(book)
    assert book.sum_up(0) == ""
    book.write(0, b"second\n", 1.0)
    assert book.sum_up(0) == "second"
    book.close()
    again = JobLogs(tmp_path / "logs")  # of an agent that was started anew
    begin_attempt(again)
    assert again.sum_up(0) == ""
    again.write(0, b"third\n", 2.0)
    assert again.sum_up(0) == "third"
    again.close()


def test_an_attempt_whose_log_was_rotated_is_quoted_from_the_new_file(tmp_path: Path) -> None:
    book = JobLogs(tmp_path / "logs")
    begin_attempt(book)
    book.write(0, b"first\n", 0.0)
    begin_attempt(book)
    book.logs[0].rotate()
    book.write(0, b"second\n", 1.0)
    assert book.sum_up(0) == "second"
    book.close()


def test_one_flipped_byte_costs_its_line_and_is_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    for job in "abc":
        journal.accept(make("start", job, 1))  # type: ignore[arg-type]
        journal.add_event(make("progress", job, 1), 1.0)  # type: ignore[arg-type]
    journal.close()
    lines = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    damaged = lines[-2].replace(b'"cpu:0"', b'"cpu:1"')  # still JSON, and still an instruction
    assert damaged != lines[-2]
    (tmp_path / "j").write_bytes(b"".join([*lines[:-2], damaged, lines[-1]]))
    again = Journal(tmp_path / "j")
    assert set(again.jobs) == {"a", "b"} and len(again.outbox.waiting) == 3
    assert again.bad_path.read_bytes() == damaged and again.set_aside
    again.renumber(50)  # what the server has seen, of which the line was lost
    assert [event.seq for event in again.outbox.waiting] == [51, 52, 53]
    again.close()
