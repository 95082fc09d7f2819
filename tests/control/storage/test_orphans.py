"""Weights outlive their records: a database that was lost, emptied, damaged or restored costs no job its folder."""

import errno
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.control.http_servers import connect, run_server, write_project

from springtide.cli.app import main
from springtide.control.storage import store_opening
from springtide.control.storage.database import database_checks
from springtide.control.storage.database.database_checks import UnusableDatabaseError, check_database
from springtide.control.storage.database.database_migrations import back_up
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.job_manifests import NAME, read_manifest
from springtide.control.storage.orphans import adopt, find_orphans
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.control.storage.store_opening import DatabasePlace, find_place, insist, open_store
from springtide.core.job_states import JobState
from springtide.errors import StateError
from springtide.executors.fake import FakeJob

needs_psycopg = pytest.mark.skipif(find_spec("psycopg") is None, reason="the extra `postgres` is not installed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """A state directory with a job that has ended, one that runs, and a backup of before both."""
    home = StateDir(tmp_path / "home")
    monkeypatch.setenv("SPRINGTIDE_HOME", str(home.root))
    with run_server(tmp_path) as server, connect(server) as client:
        back_up(home.database, tmp_path / "backup.db")
        client.wait(client.submit(write_project(tmp_path / "a", name="done", deadline="1h")))
        server.engine.executor.usual = FakeJob(speeds={1: 0.01})  # type: ignore[attr-defined]
        client.submit(write_project(tmp_path / "a", name="under-way", run="python train.py x"))
        for job in client.jobs(all=True):
            weights = home.checkpoints(job.id) / "step-000000007"
            weights.mkdir(parents=True)
            (weights / "manifest.json").write_text("{}")
    return home


def names(home: StateDir) -> set[str]:
    """The names of the jobs whose folders are there, as these say."""
    return {read_manifest(home, folder).record.name for folder in home.jobs.iterdir()}


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def lose(home: StateDir) -> None:
    for path in home.root.glob("springtide.db*"):
        path.unlink()


def test_every_job_tells_of_itself_in_its_folder(home: StateDir) -> None:
    assert names(home) == {"done", "under-way"}


def test_a_server_refuses_an_empty_database_beside_jobs_unless_told(home: StateDir, tmp_path: Path) -> None:
    lose(home)
    refusal = r"knows no job, but .* holds the folders of 2 .*restore FILE.*--keep-orphans"
    with pytest.raises(StateError, match=refusal), run_server(tmp_path):
        pass
    with run_server(tmp_path, keep_orphans=True) as server, connect(server) as client:
        assert client.jobs(all=True) == []
    assert names(home) == {"done", "under-way"}


def test_jobs_are_taken_back_after_the_database_was_lost(
    home: StateDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(home)
    assert run("doctor", "--repair", "-o", "json") in (0, 1)
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["status"] for one in findings if one["check"] == "repair"] == ["ok", "ok"]
    with run_server(tmp_path) as server, connect(server) as client:
        done, lost = client.job("done"), client.job("under-way")
        assert (done.state, done.met, done.deadline is not None) == (JobState.SUCCEEDED, True, True)
        assert (lost.state, lost.reason, lost.step) == (JobState.CANCELLED, "adopted", 7)
        assert client.resume(lost).state in (JobState.ADMITTED, JobState.RUNNING)
        assert [event.kind for event in client.events("done")] == ["adopted"]


def test_nothing_is_lost_by_restoring_an_older_backup(
    home: StateDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("restore", tmp_path / "backup.db") == 0
    assert "does not know 2 jobs" in capsys.readouterr().out
    assert run("gc") == 0
    assert names(home) == {"done", "under-way"}
    run("doctor", "--repair")
    with run_server(tmp_path) as server, connect(server) as client:
        assert {job.name for job in client.jobs(all=True)} == {"done", "under-way"}


def test_orphans_are_shown_before_they_go(home: StateDir, capsys: pytest.CaptureFixture[str]) -> None:
    lose(home)
    for folder in (*home.jobs.iterdir(), *home.code.iterdir()):
        os.utime(folder, (0, 0))
    assert run("gc", "--orphans") == 2
    assert "nothing was removed" in capsys.readouterr().err
    assert names(home) == {"done", "under-way"}
    assert run("gc", "--orphans", "--yes") == 0
    assert list(home.jobs.iterdir()) == []


def test_an_account_that_the_server_did_not_write_is_not_believed(home: StateDir, tmp_path: Path) -> None:
    folders = sorted(home.jobs.iterdir())
    (folders[0] / NAME).unlink()
    (folders[0] / NAME).symlink_to(folders[1] / NAME)
    (folders[1] / NAME).write_text((folders[1] / NAME).read_text().replace(folders[1].name, folders[0].name))
    empty = home.jobs / "older"
    empty.mkdir()
    orphans = find_orphans(home, ())
    assert [orphan.manifest for orphan in orphans] == [None, None, None]
    assert {orphan.problem for orphan in orphans} == {
        "job.json cannot be read (OSError)",
        "job.json is of another job",
        "it has no job.json: its server was older",
    }
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    assert adopt(home, store, 1.0) == ([], orphans)
    store.close()


@pytest.fixture
def damaged(home: StateDir) -> Iterator[StateDir]:
    with sqlite3.connect(home.database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(home.database.read_bytes())
    content[4096 : 4096 + 2048] = b"\x5a" * 2048
    home.database.write_bytes(content)
    yield home


def test_a_damaged_database_is_refused_in_a_sentence_and_a_backup_mends_it(
    damaged: StateDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = r"is damaged \(.*\); put a backup back with: springtide restore FILE"
    with pytest.raises(StateError, match=refusal), run_server(tmp_path):
        pass
    assert run("gc") == 1
    assert "is damaged" in capsys.readouterr().err
    assert run("restore", tmp_path / "backup.db") == 0
    check_database(damaged.database)
    assert (damaged.root / "springtide.db.before-restore").stat().st_size


def test_what_is_no_database_at_all_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StateError, match="file is not a database"):
        check_database(path)


def test_a_database_that_another_program_holds_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    monkeypatch.setattr(database_checks, "LOCK_S", 0.0)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("CREATE TABLE t (x)")
        holder.commit()
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnusableDatabaseError, match="database is locked; free room on its disk, or end what holds"):
            check_database(path)


def test_a_server_waits_for_a_database_that_cannot_be_used_yet(home: StateDir) -> None:
    refusals = [UnusableDatabaseError("held"), OSError(errno.ENOSPC, "no space left"), None]

    def open_once() -> Store:
        if (refusal := refusals.pop(0)) is not None:
            raise refusal
        return open_store(home)

    slept: list[float] = []
    insist(open_once, DatabasePlace("x.db"), slept.append).close()
    assert len(slept) == 2


def test_a_server_that_cannot_write_where_it_goes_on_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, write = [OSError(errno.ENOSPC, "no space left")] * 2, Store.write

    def write_later(store: Store, batch: Batch) -> None:
        if refusals:
            raise refusals.pop()
        write(store, batch)

    monkeypatch.setattr(Store, "write", write_later)
    monkeypatch.setattr(store_opening, "RETRY_S", 0.0)
    with run_server(tmp_path) as server, connect(server) as client:
        assert client.jobs(all=True) == [] and not refusals


def test_a_server_gives_up_on_a_database_that_stays_unusable(home: StateDir) -> None:
    def open_once() -> Store:
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(UnusableDatabaseError, match=r"the database x.db cannot be used: .*no space left; free room"):
        insist(open_once, DatabasePlace("x.db"), lambda _: None)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        (None, "free room on its disk"),
        ("sqlite:///x.db", "free room on its disk"),
        pytest.param("postgresql://h/n", "see that its server runs", marks=needs_psycopg),
    ],
)
def test_the_remedy_is_for_the_kind_of_database(home: StateDir, url: str | None, remedy: str) -> None:
    def open_once() -> Store:
        raise ConnectionRefusedError("connection refused")

    with pytest.raises(UnusableDatabaseError, match=f"connection refused; {remedy}"):
        insist(open_once, find_place(home, url), lambda _: None)


def test_a_damaged_backup_is_not_restored(damaged: StateDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("restore", damaged.database) == 2
    assert "damaged" in capsys.readouterr().err
