"""What cannot be stored or decided costs itself only: it is put aside with its job, and everyone else goes on."""

import errno
import logging
import os
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.database.store_batches import Batch
from springtide.core.decisions import Decision, Snapshot
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import InputError, UnavailableError
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Event, Failed, Finished, Progressed, Resized, ScriptInfo, Started, Warned

SCRIPTS = {"long": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0})}
RUN = "python train.py long"
HUGE = sys.maxsize + 1


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, scripts=SCRIPTS)


def run_two(server: HandClockServer) -> tuple[str, str]:
    """Two running jobs: of one somebody will report nonsense."""
    bad, good = server.submit(run=RUN, devices="1..2"), server.submit(run=RUN, devices="1..2", user="bob")
    server.pass_s(4.0)
    assert {server.job(bad.id).state, server.job(good.id).state} == {JobState.RUNNING}
    return bad.id, good.id


def info(job: str, **changed: Any) -> ScriptInfo:
    told: dict[str, Any] = {
        "logical_workers": 8,
        "total_steps": 100,
        "steps_per_epoch": 10,
        "device_type": "cpu",
        "torch_version": "2",
        "startup_s": 1.0,
    }
    return ScriptInfo(job=job, generation=9, **told | changed)


def progress(job: str, **changed: Any) -> Progressed:
    told: dict[str, Any] = {
        "step": 50,
        "total_steps": 100,
        "epoch": 1,
        "steps_per_s": 1.0,
        "outside_s": 0.0,
        "share": 1,
    }
    return Progressed(job=job, generation=9, **told | changed)


POISON: dict[str, Callable[[str], Event]] = {
    "epochs without end": lambda job: info(job, total_steps=HUGE * 10),
    "a step beyond 64 bits": lambda job: progress(job, step=HUGE),
    "a step that is text": lambda job: progress(job, step="many"),
    "a start of no length": lambda job: info(job, startup_s=float("nan")),
    "workers that are a list": lambda job: info(job, logical_workers=[8]),
    "text that is not UTF-8": lambda job: Warned(job=job, generation=9, reason="lone \ud800"),
    "a pause that is text": lambda job: Resized(job=job, generation=99, devices=("cpu:0",), step=3, pause_s="long"),  # type: ignore[arg-type]
    "devices that are a number": lambda job: Started(job=job, generation=99, devices=7, step=0),  # type: ignore[arg-type]
    "an exit code beyond 64 bits": lambda job: Failed(
        job=job, generation=9, step=1, exit_code=HUGE, reason="", user_fault=True
    ),
}


@pytest.mark.parametrize("name", POISON)
def test_what_cannot_be_stored_is_put_aside_with_its_job(server: HandClockServer, name: str) -> None:
    bad, good = run_two(server)
    server.executor.emit(POISON[name](bad))
    before = server.job(good).step
    server.pass_s(3.0)
    held = server.job(bad)
    assert (held.state, held.reason, held.devices) == (JobState.PAUSED, "quarantined", ())
    assert "springtide doctor" in held.sentence and "paused" in server.event_kinds(bad)
    (kept,) = server.store.list_quarantine()
    assert (kept.job, kept.kind.partition(":")[0]) == (bad, "event") and kept.error
    assert server.job(good).step > before, "others go on"
    assert server.submit(run=RUN).state in (JobState.ADMITTED, JobState.RUNNING)
    assert server.executor.outbox.waiting == [], "it is acknowledged"
    server.restart()
    server.pass_s(1.0)
    assert server.store.count_quarantine() == 1, "it does not come again"


def test_a_job_that_has_finished_stays_finished_whatever_it_said(server: HandClockServer) -> None:
    bad, good = run_two(server)
    server.executor.runs.pop(bad)
    server.executor.emit(Finished(job=bad, generation=9, step=100, reason="bytes \udcff"))
    server.pass_s(1.0)
    assert (server.job(bad).state, server.job(good).state) == (JobState.SUCCEEDED, JobState.RUNNING)
    assert server.store.count_quarantine() == 1


def test_a_held_job_can_be_resumed(server: HandClockServer) -> None:
    bad, _ = run_two(server)
    server.executor.emit(POISON["epochs without end"](bad))
    server.pass_s(1.0)
    server.reconciler.call(lambda: server.operations.resume(bad, server.find_step(bad)))
    server.pass_s(4.0)
    assert server.job(bad).state is JobState.RUNNING


def test_poison_among_good_events_costs_only_itself(server: HandClockServer) -> None:
    bad, good = run_two(server)
    poison = [make(bad) for make in POISON.values()]
    for event in poison:
        server.executor.emit(event)
        server.executor.emit(Warned(job=good, generation=1, reason="all is well"))
    server.pass_s(0.5)
    assert server.event_kinds(good).count("warned") == len(poison)
    assert server.job(bad).state is JobState.PAUSED


def test_a_request_that_raises_leaves_nothing_behind(server: HandClockServer) -> None:
    staging, world = server.reconciler.context.staging, server.reconciler.context.world
    jobs, views = dict(staging.jobs), dict(world.jobs)

    def submit_and_fail() -> str:
        job = check_job({"run": RUN}, "test")
        server.operations.submit(Submission(job, server.code(), "ann"))
        raise InputError("after all not")

    future = server.reconciler.call(submit_and_fail)
    fine = server.reconciler.call(lambda: "fine")
    server.reconciler.step()
    assert isinstance(future.exception(timeout=0), InputError) and fine.result(timeout=0) == "fine"
    assert (staging.jobs, dict(world.jobs)) == (jobs, views)
    assert server.store.list_jobs() == []


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT, errno.EACCES])
def test_a_name_that_the_disk_refuses_costs_only_who_gave_it(server: HandClockServer, number: int) -> None:
    def look_for_file() -> str:
        raise OSError(number, os.strerror(number), "a name of a user's")

    failed, fine = server.reconciler.call(look_for_file), server.reconciler.call(lambda: "fine")
    server.reconciler.step()
    assert isinstance(failed.exception(timeout=0), OSError) and fine.result(timeout=0) == "fine"


def test_what_was_stored_alone_is_told_so_although_its_step_fails_later(server: HandClockServer) -> None:
    bad, good = run_two(server)
    runs: list[str] = []

    def submit() -> str:
        return server.operations.submit(Submission(check_job({"run": RUN}, "test"), server.code(), "ann"))

    def find_lock() -> None:  # not yet in the step that is taken whole, which the poison ends
        runs.append("again")
        if len(runs) == 2:
            raise OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))

    stored, failed = server.reconciler.call(submit), server.reconciler.call(find_lock)
    server.executor.emit(POISON["epochs without end"](bad))
    with pytest.raises(OperationalError):
        server.reconciler.step()
    assert {record.id for record in server.store.list_jobs()} == {bad, good, stored.result(timeout=0)}
    assert isinstance(failed.exception(timeout=0), UnavailableError)


def test_a_request_that_cannot_be_stored_fails_alone(server: HandClockServer) -> None:
    def submit(name: str) -> str:
        job = check_job({"run": RUN}, "test").model_copy(update={"name": name})
        return server.operations.submit(Submission(job, server.code(), "ann"))

    bad, good = server.reconciler.call(lambda: submit("lone-\ud800")), server.reconciler.call(lambda: submit("good"))
    server.reconciler.step()
    assert bad.exception(timeout=0) is not None
    assert server.job(good.result(timeout=0)).state is JobState.ADMITTED
    assert [record.name for record in server.store.list_jobs()] == ["good"]


@pytest.mark.parametrize("stored", [False, True], ids=["refused", "stored but not told"])
def test_an_error_of_the_database_is_answered_truly(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    real = server.store.write

    def fail(batch: Batch) -> None:
        if stored:
            real(batch)
        raise OperationalError("COMMIT", {}, Exception("database or disk is full"))

    job = check_job({"run": RUN}, "test")
    future = server.reconciler.call(lambda: server.operations.submit(Submission(job, server.code(), "ann")))
    monkeypatch.setattr(server.store, "write", fail)
    with pytest.raises(OperationalError):
        server.reconciler.step()
    monkeypatch.undo()
    server.reconciler.rebuild()
    server.pass_s(4.0)
    if stored:
        assert server.job(future.result(timeout=0)).state is JobState.RUNNING
    else:
        error = future.exception(timeout=0)
        assert isinstance(error, UnavailableError) and "nothing was done" in str(error) and not error.unknown
        assert server.store.list_jobs() == [] and server.executor.runs == {}


def test_where_nobody_knows_the_answer_says_so(server: HandClockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

    job = check_job({"run": RUN}, "test")
    future = server.reconciler.call(lambda: server.operations.submit(Submission(job, server.code(), "ann")))
    monkeypatch.setattr(server.store, "write", fail)
    monkeypatch.setattr(server.store, "fact", fail)
    with pytest.raises(OperationalError):
        server.reconciler.step()
    error = future.exception(timeout=0)
    assert isinstance(error, UnavailableError) and error.unknown and "ask again" in str(error)


def test_a_decision_whose_effects_cannot_be_stored_costs_itself_only(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = run_two(server)
    held = {job: server.job(job).devices for job in (bad, good)}
    real = server.reconciler.decide

    def poison(now_s: float, snapshot: Snapshot) -> Decision:
        decision = real(now_s, snapshot)
        answers = {job: replace(one, sentence="lone \ud800") for job, one in decision.answers.items()}
        return replace(decision, answers=answers)

    monkeypatch.setattr(server.reconciler, "decide", poison)
    with caplog.at_level(logging.CRITICAL):
        waiting = server.submit(run=RUN, devices=1)
    assert (waiting.state, waiting.reason) == (JobState.WAITLISTED, "policy_failed")
    assert {job: server.job(job).devices for job in (bad, good)} == held
    monkeypatch.undo()
    server.pass_s(3.0)
    assert server.job(waiting.id).state in (JobState.ADMITTED, JobState.RUNNING)


def test_an_unstorable_event_of_no_job_is_only_kept(server: HandClockServer) -> None:
    server.executor.emit(Warned(job="nobody \ud800", generation=1, reason="?"))
    poison: Event = Progressed(
        job=["?"],  # type: ignore[arg-type]
        generation=1,
        step=1,
        total_steps=None,
        epoch=0,
        steps_per_s=None,
        outside_s=0.0,
        share=1,
    )
    server.executor.emit(poison)
    server.pass_s(1.0)
    assert server.store.count_quarantine() == 1 and server.reconciler.cursor == 2


def test_a_drained_node_of_a_rigid_promised_job_on_two_types_stops_nobody(tmp_path: Path) -> None:
    server = HandClockServer(tmp_path, devices=2, types=("a", "b"), scripts=SCRIPTS)
    rigid = server.submit(elastic=False, duration="60s", deadline="10m", devices=2)
    server.pass_s(3.0)
    inventory, held = server.reconciler.inventory, server.job(rigid.id).devices
    node = next(one for one in inventory.nodes if set(inventory.names_of(one)) & set(held))
    drained = server.reconciler.call(lambda: server.operations.drain(node, 5.0))
    server.pass_s(20.0)
    assert drained.exception(timeout=0) is None
    assert server.submit(run=RUN).state in (JobState.ADMITTED, JobState.RUNNING)
    cancelled = server.reconciler.call(lambda: server.operations.cancel(rigid.id, "ann"))
    server.pass_s(1.0)
    assert cancelled.exception(timeout=0) is None and server.job(rigid.id).state is JobState.CANCELLED
    assert not server.store.fact("policy_failures") and server.store.count_quarantine() == 0
