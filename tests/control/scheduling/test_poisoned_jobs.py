"""A job over which time, an audit or a drain fails costs itself only: it is put aside, and everybody else goes on."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.control.hand_clock import HandClockServer
from tests.control.scheduling.test_quarantine import RUN, SCRIPTS, run_two

from springtide.control.scheduling import transitions
from springtide.control.scheduling.loop import timers
from springtide.control.scheduling.machines import node_drains
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.database.store_batches import Batch
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import InputError
from springtide.executors.protocol import Instruction


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, scripts=SCRIPTS)


def poison(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, is_bad: Callable[..., bool]) -> None:
    """Let a function raise for one job."""
    real = getattr(module, name)

    def fail(*args: Any, **keys: Any) -> Any:
        if is_bad(*args):
            raise KeyError("poison")
        return real(*args, **keys)

    monkeypatch.setattr(module, name, fail)


def is_held(server: HandClockServer, job_id: str, kind: str) -> bool:
    """Whether a job waits for its owner, and why is kept for the operator, once."""
    kept = [(one.kind, one.job) for one in server.store.list_quarantine()]
    record = server.job(job_id)
    held = (record.state, record.reason, record.devices) == (JobState.PAUSED, "quarantined", ())
    return held and kept == [(kind, job_id)]


def test_what_time_brings_others_comes_although_one_is_poison(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = run_two(server)
    short = server.submit(run=RUN, devices=1, max_runtime="20s")
    poison(monkeypatch, timers, "check_job", lambda _staging, _world, record: record.id == bad)
    server.pass_s(10.0)
    assert is_held(server, bad, "time")
    server.pass_s(30.0)
    assert server.job(short.id).reason == "max_runtime", "others' limits are kept"
    assert server.job(good).state is JobState.RUNNING
    assert is_held(server, bad, "time"), "it is not tried for ever"


def test_a_job_that_cannot_be_started_again_costs_no_other(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = run_two(server)
    poison(monkeypatch, transitions, "start_again", lambda _staging, _world, _dir, job_id: job_id == bad)
    for job_id in (bad, good):
        del server.executor.runs[job_id]
    server.pass_s(12.0)
    assert is_held(server, bad, "audit")
    assert "lost" in server.event_kinds(good) and server.job(good).state is JobState.RUNNING
    assert good in server.executor.runs


def test_a_job_that_cannot_leave_a_node_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS)
    jobs = [server.submit(run=RUN, devices=1).id for _ in range(4)]
    server.pass_s(4.0)
    inventory = server.reconciler.inventory
    first = inventory.nodes[0]
    bad, good = [one for one in jobs if set(server.job(one).devices) & set(inventory.names_of(first))]
    poison(monkeypatch, node_drains, "force_to_leave", lambda _staging, _world, _dir, _one, job_id: job_id == bad)
    monkeypatch.setattr(node_drains, "follow_event", lambda *_: None)  # neither is seen to leave
    server.reconciler.call(lambda: server.operations.drain(first, 2.0))
    server.pass_s(12.0)
    assert is_held(server, bad, "drains")
    assert "drain_forced" in server.event_kinds(good)


def test_a_job_is_missed_twice_before_it_starts_again_also_beside_a_commit_that_fails(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, _ = run_two(server)
    del server.executor.runs[lost]
    real, failing = server.store.write, [True]

    def fail_once(batch: Batch) -> None:
        if failing and server.reconciler.suspects:
            failing.clear()
            raise sqlite3.IntegrityError("poison")
        real(batch)

    monkeypatch.setattr(server.store, "write", fail_once)
    while failing:
        server.pass_s(0.5)
    assert "lost" not in server.event_kinds(lost), "seen once"
    server.pass_s(5.0)
    assert "lost" in server.event_kinds(lost)


def test_a_server_that_begins_anew_has_missed_nobody_yet(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, _ = run_two(server)
    del server.executor.runs[lost]
    real = server.store.write

    def fail(batch: Batch) -> None:
        if server.reconciler.suspects:
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database is locked"))
        real(batch)

    monkeypatch.setattr(server.store, "write", fail)
    with pytest.raises(OperationalError):
        server.pass_s(5.0)
    monkeypatch.undo()
    server.reconciler.rebuild()
    assert server.reconciler.suspects == frozenset()


@pytest.mark.parametrize("error", [InputError("no"), KeyError("no")], ids=["refused", "odd"])
def test_a_job_that_the_executor_refuses_and_that_cannot_be_ended_costs_no_other(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    _, good = run_two(server)
    real, bad = server.executor.apply, list[str]()

    def refuse(instructions: Sequence[Instruction]) -> None:
        if any(one.job in bad for one in instructions):
            raise error
        real(instructions)

    monkeypatch.setattr(server.executor, "apply", refuse)
    poison(monkeypatch, transitions, "end_job", lambda _staging, _world, job_id, *_: job_id in bad)
    future = server.reconciler.call(lambda: bad.append(submit(server)))
    server.reconciler.step()
    future.result(timeout=0)
    server.pass_s(10.0)
    (kept,) = server.store.list_quarantine()
    assert (kept.kind, kept.job) == ("refused", bad[0])
    assert server.job(bad[0]).state is JobState.PAUSED and server.job(good).state is JobState.RUNNING
    assert server.reconciler.health.executor_lost == ""
    other = server.submit(run=RUN, devices=1)
    server.pass_s(4.0)
    assert server.job(other.id).state is JobState.RUNNING


def test_an_executor_that_fails_in_its_own_way_counts_as_lost_and_comes_back(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, good = run_two(server)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("inside")

    for name in ("acknowledge", "events"):
        with monkeypatch.context() as patch:
            patch.setattr(server.executor, name, fail)
            record = server.submit(run=RUN, devices=1)
            server.pass_s(2.0)
            assert "inside" in server.reconciler.health.executor_lost
        server.pass_s(4.0)
        assert server.reconciler.health.executor_lost == ""
        assert {server.job(one).state for one in (good, record.id)} == {JobState.RUNNING}


def submit(server: HandClockServer) -> str:
    return server.operations.submit(Submission(check_job({"run": RUN, "devices": 1}, "test"), server.code(), "ann"))
