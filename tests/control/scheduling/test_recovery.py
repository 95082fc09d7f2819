"""A server starts whatever one record says: what cannot be read or restored is put aside with its job."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from tests.control.hand_clock import HandClockServer
from tests.control.scheduling.test_quarantine import RUN, SCRIPTS, run_two

from springtide.control.scheduling import live_jobs
from springtide.control.scheduling.loop import recovery
from springtide.control.storage.job_snapshot import JobSnapshot
from springtide.core.job_states import JobState
from springtide.errors import ExecutorError, StateError


@pytest.fixture
def server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, scripts=SCRIPTS)


def list_kept(server: HandClockServer) -> list[tuple[str, str | None]]:
    return [(one.kind, one.job) for one in server.store.list_quarantine()]


def change(server: HandClockServer, statement: str) -> None:
    """What no server does: change rows by hand."""
    with server.store.engine.begin() as connection:
        connection.execute(text(statement))


@pytest.mark.parametrize("begin", ["restart", "rebuild"])
def test_a_job_that_cannot_be_restored_is_held(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    bad, good = run_two(server)
    real = live_jobs.make_job

    def fail(record: Any, *rest: Any) -> Any:
        if record.id == bad:
            raise KeyError("poison")
        return real(record, *rest)

    monkeypatch.setattr(recovery, "make_job", fail)
    server.restart() if begin == "restart" else server.reconciler.rebuild()
    server.pass_s(4.0)
    assert (server.job(bad).state, server.job(bad).reason) == (JobState.PAUSED, "quarantined")
    assert server.job(good).state is JobState.RUNNING and bad not in server.executor.runs
    assert list_kept(server) == [("recover", bad)]
    server.restart()
    assert list_kept(server) == [("recover", bad)], "it does not come again"


def test_a_database_that_cannot_be_read_is_no_poison(server: HandClockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    run_two(server)

    def fail(*_: Any) -> Any:
        raise OperationalError("SELECT", {}, Exception("disk I/O error"))

    monkeypatch.setattr(recovery, "make_job", fail)
    with pytest.raises(OperationalError):
        server.reconciler.rebuild()
    assert list_kept(server) == []


@pytest.mark.parametrize("value", ['\'{"run": 7, "what": 1}\'', "'{no json'"])
def test_a_row_that_cannot_be_read_costs_its_own_job(server: HandClockServer, value: str) -> None:
    bad, good = run_two(server)
    change(server, f"update jobs set spec = {value.replace(':', chr(92) + ':')} where id = '{bad}'")
    server.restart()
    server.pass_s(4.0)
    assert server.job(good).state is JobState.RUNNING and server.submit(run=RUN).state is JobState.ADMITTED
    assert bad not in server.executor.runs, "it does not run on devices that others are given"
    assert list_kept(server) == [("recover", bad)]
    assert bad not in {record.id for record in (*server.store.list_jobs(), *server.store.find_jobs(bad))}
    assert good in JobSnapshot(server.store).records
    with pytest.raises(StateError, match=f"the record of job {bad} cannot be read"):
        server.store.job(bad)
    server.restart()
    assert list_kept(server) == [("recover", bad)], "it does not come again"


@pytest.mark.parametrize("value", ["'{}'", "'{no json'"])
def test_an_instruction_that_cannot_be_read_costs_its_own_job(
    server: HandClockServer, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    def refuse(_: Any) -> None:
        raise ExecutorError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(server.executor, "apply", refuse)
        bad, good = server.submit(run=RUN, devices=1).id, server.submit(run=RUN, devices=1).id
        assert {one.job for one in server.store.list_instructions()} == {bad, good}
        change(server, f"update orders set body = {value} where job = '{bad}'")
    server.restart()
    server.pass_s(4.0)
    assert (server.job(bad).reason, server.job(good).state) == ("quarantined", JobState.RUNNING)
    assert server.store.list_instructions() == [] and list_kept(server) == [("recover", bad)]


def test_a_stop_that_cannot_be_read_is_sent_again(server: HandClockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, _ = run_two(server)

    def refuse(_: Any) -> None:
        raise ExecutorError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(server.executor, "apply", refuse)
        server.reconciler.call(lambda: server.operations.hold(bad, "ann"))
        server.reconciler.step()
        change(server, f"update orders set body = 'null' where job = '{bad}'")
    server.restart()
    server.pass_s(2.0)
    assert server.job(bad).state is JobState.PAUSED and bad not in server.executor.runs
