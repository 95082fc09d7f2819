"""What goes and what stays, in folders as servers leave them."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from springtide.control.storage import housekeeping
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.database.tables import JOBS
from springtide.control.storage.housekeeping import DAY_S, collect, list_garbage, list_orphans, list_usage, remove_all
from springtide.control.storage.job_manifests import JobManifest, write_manifest
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState

NOW_S = 1000 * DAY_S


@pytest.fixture
def home(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "home").make()


@pytest.fixture
def store(home: StateDir) -> Iterator[Store]:
    store = Store(f"sqlite:///{home.database}")
    yield store
    store.close()


def put_job(home: StateDir, store: Store, job_id: str, state: JobState, ended_days_ago: float | None = None) -> None:
    """A job with three checkpoints, output, a probe, secrets and code, last touched long ago."""
    finished_s = None if ended_days_ago is None else NOW_S - ended_days_ago * DAY_S
    number = store.next_seq()
    record = JobRecord(
        job_id, job_id, "ann", state, JobFile(run="x"), 1.0, seq=number, archive=f"of-{job_id}", finished_s=finished_s
    )
    store.write(Batch(jobs={job_id: record}))
    for folder in (
        *(home.checkpoints(job_id) / f"step-{step:09d}" for step in (1, 2, 3)),
        home.output(job_id),
        home.scratch(job_id),
        home.code / f"of-{job_id}",
    ):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x" * 100)
        os.utime(folder, (0, 0))
    home.secrets_file(job_id).write_text("{}")


def left(home: StateDir, job_id: str) -> list[str]:
    """What is left of a job: its folders and checkpoints."""
    folder = home.job_folder(job_id)
    found = [path for path in (*folder.glob("*"), *folder.glob("checkpoints/*")) if path.name != "checkpoints"]
    return sorted(path.name for path in found)


ALL = ["output", "probe", "secrets.json", "step-000000001", "step-000000002", "step-000000003"]


@pytest.mark.parametrize(
    ("state", "days", "kept"),
    [
        (JobState.RUNNING, None, ALL),
        (JobState.PAUSED, None, ALL),
        (JobState.SUCCEEDED, 1, ["output", "step-000000003"]),
        (JobState.SUCCEEDED, 89, ["output", "step-000000003"]),
        (JobState.SUCCEEDED, 91, []),
        (JobState.CANCELLED, 6, ["output", "step-000000003"]),
        (JobState.CANCELLED, 8, ["output"]),
        (JobState.FAILED, 8, ["output", "step-000000003"]),
    ],
)
def test_a_job_keeps_what_it_may(
    home: StateDir, store: Store, state: JobState, days: float | None, kept: list[str]
) -> None:
    put_job(home, store, "job", state, days)
    listed = list_garbage(home, store, NOW_S)
    assert left(home, "job") == ALL
    assert collect(home, store, NOW_S) == listed
    assert left(home, "job") == kept
    assert (store.job("job") is None) == (not kept)
    assert (home.code / "of-job").exists() == bool(kept)
    assert list_garbage(home, store, NOW_S) == []


def test_the_checkpoint_that_stays_is_of_the_last_start_whatever_one_that_was_cut_off_has_written(
    home: StateDir, store: Store
) -> None:
    put_job(home, store, "job", JobState.SUCCEEDED, 1)
    for name in (
        "step-000000004-g9-abcd",
        "step-000000004-g10-0123",
        "step-000000005-g9-abcd",
        "damaged-step-000000004",
    ):
        folder = home.checkpoints("job") / name
        folder.mkdir()
        os.utime(folder, (0, 0))
    collect(home, store, NOW_S)
    assert left(home, "job") == ["output", "step-000000004-g10-0123"]


@pytest.mark.parametrize("changed", ["resumed", "its code is used", "its code was used and failed"])
def test_what_somebody_begins_to_need_while_it_is_measured_stays(
    home: StateDir, store: Store, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    days = 8 if changed == "resumed" else 91
    put_job(home, store, "job", JobState.CANCELLED, days)
    found, measure = left(home, "job"), housekeeping.measure

    def measure_meanwhile(path: Path) -> int:
        ended = store.job("job")
        assert ended is not None
        again = replace(ended, state=JobState.WAITLISTED, finished_s=None)
        new = again if changed == "resumed" else replace(again, id="new", name="new", seq=ended.seq + 1)
        if changed == "its code was used and failed":
            new = replace(new, state=JobState.FAILED, finished_s=NOW_S)
        store.write(Batch(jobs={new.id: new}))
        return measure(path)

    monkeypatch.setattr(housekeeping, "measure", measure_meanwhile)
    collect(home, store, NOW_S)
    assert left(home, "job") == (found if changed == "resumed" else [])
    assert (home.code / "of-job").exists()


def test_what_may_still_be_needed_is_left_alone_for_an_hour(home: StateDir, store: Store) -> None:
    put_job(home, store, "job", JobState.CANCELLED, 0.0)
    half = home.checkpoints("job") / ".writing-4-77"
    uploaded, uploading = home.code / "just-uploaded", home.code / ".upload-1"
    for folder in (half, uploaded, uploading):
        folder.mkdir()
    collect(home, store, NOW_S)
    assert half.exists() and uploaded.exists() and uploading.exists()
    for folder in (half, uploaded, uploading):
        os.utime(folder, (0, 0))
    assert {piece.path for piece in collect(home, store, NOW_S)} == {half, uploaded, uploading}


def test_what_the_store_does_not_know_goes_only_when_asked_for(home: StateDir, store: Store) -> None:
    put_job(home, store, "job", JobState.SUCCEEDED, 1)
    put_job(home, store, "lost", JobState.SUCCEEDED, 1)
    forget(store, "lost")
    os.utime(home.job_folder("lost"), (0, 0))
    collect(home, store, NOW_S)
    assert left(home, "lost") == ALL
    assert (home.code / "of-lost").exists(), "the code that an unknown job may need stays too"
    asked = list_orphans(home, store)
    assert {(piece.kind, piece.path.name) for piece in asked} == {("orphan", "lost"), ("code", "of-lost")}
    remove_all(home, asked)
    assert not home.job_folder("lost").exists() and home.job_folder("job").exists()


def test_the_code_of_an_unknown_job_that_tells_of_itself_stays_and_other_code_goes(
    home: StateDir, store: Store
) -> None:
    put_job(home, store, "lost", JobState.RUNNING)
    record = store.job("lost")
    assert record is not None
    write_manifest(home, JobManifest(record, None))
    (home.code / "of-nobody").mkdir()
    os.utime(home.code / "of-nobody", (0, 0))
    forget(store, "lost")
    assert [piece.path.name for piece in collect(home, store, NOW_S)] == ["of-nobody"]


def test_a_job_that_went_on_after_its_backup_keeps_its_weights(home: StateDir, store: Store) -> None:
    for name, days in (("cancelled", 8), ("failed", 91)):
        put_job(home, store, name, JobState(name), days)
        newest = home.checkpoints(name) / "step-000000003"
        os.utime(newest, (NOW_S - DAY_S, NOW_S - DAY_S))  # as of now, but the record is of before it was resumed
    collect(home, store, NOW_S)
    for name in ("cancelled", "failed"):
        assert "step-000000003" in left(home, name)
        assert store.job(name) is not None and (home.code / f"of-{name}").exists()


def test_a_link_in_a_jobs_folder_leads_keeping_house_nowhere(home: StateDir, store: Store, tmp_path: Path) -> None:
    put_job(home, store, "job", JobState.CANCELLED, 8)
    others = tmp_path / "others"
    for name in ("step-1", "step-2"):
        (others / name).mkdir(parents=True)
        (others / name / "weights").write_text("mine")
        os.utime(others / name, (0, 0))
    shutil.rmtree(home.checkpoints("job"))
    home.checkpoints("job").symlink_to(others)
    (home.scratch("job") / "link").symlink_to(others)
    collect(home, store, NOW_S)
    assert not home.scratch("job").exists()
    assert [(others / name / "weights").read_text() for name in ("step-1", "step-2")] == ["mine", "mine"]


def forget(store: Store, job_id: str) -> None:
    """Have a store that never knew a job, as an older backup is."""
    with store.engine.begin() as connection:
        connection.execute(JOBS.delete().where(JOBS.c.id == job_id))
    store._recent = {}


@pytest.mark.parametrize("error", [OSError("the disk is away"), KeyError("nobody expected this")])
def test_a_server_keeps_house_until_it_ends(
    home: StateDir, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    put_job(home, store, "job", JobState.SUCCEEDED, 91)
    ended = Event()
    rounds: list[float] = []

    def tell_time() -> float:
        rounds.append(NOW_S)
        if len(rounds) == 3:
            ended.set()
        if len(rounds) == 1:
            raise error
        return NOW_S

    monkeypatch.setattr(housekeeping, "FIRST_S", 0.0)
    monkeypatch.setattr(housekeeping, "HOUR_S", 0.001)
    housekeeping.keep_house(home, store, tell_time, 90.0, ended)
    assert len(rounds) == 3
    assert not home.job_folder("job").exists()
    assert "tried again" in caplog.text


def test_usage_counts_every_file(home: StateDir, store: Store) -> None:
    put_job(home, store, "job", JobState.SUCCEEDED, 1)
    home.log.write_text("x" * 5000)
    pieces = list_usage(home)
    assert {piece.kind for piece in pieces} == {"database", "server", "code", "checkpoints", "output", "probe"}
    on_disk = sum(path.stat().st_size for path in home.root.rglob("*") if path.is_file())
    assert sum(piece.bytes for piece in pieces) == on_disk - home.secrets_file("job").stat().st_size


def test_other_users_may_pass_only_while_jobs_run_as_them(home: StateDir) -> None:
    def modes() -> set[int]:
        return {folder.stat().st_mode & 0o777 for folder in (home.root, home.code, home.jobs)}

    assert modes() == {0o700}
    home.let_through()
    assert modes() == {0o711}
    home.make()  # as every command does
    assert modes() == {0o711}
    home.root.chmod(0o755)
    home.make()
    assert home.root.stat().st_mode & 0o777 == 0o700
    home.let_through(False)
    assert modes() == {0o700}


def test_a_job_whose_folder_cannot_be_looked_at_costs_no_other_its_housekeeping(
    home: StateDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may close its own folder, or remove something while it is looked at; that was the end of a whole round."""
    put_job(home, store, "closed", JobState.SUCCEEDED, 1.0)
    put_job(home, store, "done", JobState.SUCCEEDED, 1.0)
    real = StateDir.scratch

    def refuse(state_dir: StateDir, job_id: str) -> Path:
        if job_id == "closed":
            raise PermissionError(13, "Permission denied")
        return real(state_dir, job_id)

    monkeypatch.setattr(StateDir, "scratch", refuse)
    collect(home, store, NOW_S)
    assert left(home, "closed") and not home.secrets_file("done").exists()
    assert (home.code / "of-closed").is_dir()


def test_what_goes_while_it_is_looked_at_is_left_alone(home: StateDir, store: Store) -> None:
    gone = home.code / ".upload-gone.tar"
    assert housekeeping.measure(gone) == 0 and housekeeping.is_young(gone)
