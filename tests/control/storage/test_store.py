import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

from springtide.control.storage.database.database_migrations import STEPS, VERSION, back_up, know_daily_use, migrate
from springtide.control.storage.database.databases import write_json
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import (
    ArrayPlace,
    AwaitedJob,
    Condition,
    EventRecord,
    InstructionRecord,
    JobRecord,
    OfferRecord,
    PlanRecord,
    SpeedRecord,
    UserRecord,
)
from springtide.control.storage.store import Store
from springtide.core.dependencies import AfterEnd
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.errors import StateError


def make_job(number: int, **fields: object) -> JobRecord:
    record = JobRecord(f"id{number}", f"job-{number}", "ann", JobState.ADMITTED, JobFile(run="x"), 1.0, seq=number)
    return replace(record, **fields)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'x.db'}")


def test_records_come_back_as_they_were(store: Store) -> None:
    job = make_job(
        1,
        deadline_s=5.0,
        plan=PlanRecord(((1.0, 2), (3.0, 1)), 4.0, 5.0),
        conditions=(Condition("at_risk", "late", "it is late", 2.0),),
        devices=("cpu:0", "cpu:1"),
        promised=True,
    )
    batch = Batch(jobs={"id1": job}, facts={"cursor": 7, "memory": {"a": [1, 2]}})
    batch.events.append(EventRecord(1.0, "admitted", "yes", "id1", {"x": 1}))
    batch.offers["o"] = OfferRecord("o", "id1", "ann", "deadline", 9.0, 10, 2.0)
    batch.speeds["k@cpu"] = SpeedRecord("k@cpu", {1: (30, 2.5), 2: (10, 4.0)}, 1.5, 0.1, 100, 10, 4, "cpu", True)
    batch.instructions.append(InstructionRecord("id1", 1, "id1.1", {"kind": "stop"}))
    store.write(batch)
    assert store.job("id1") == job
    assert store.events("id1") == [replace(batch.events[0], seq=1)]
    assert store.offers("id1") == [batch.offers["o"]]
    assert store.speeds("k") == [batch.speeds["k@cpu"]]
    assert store.list_instructions() == batch.instructions
    assert (store.fact("cursor"), store.fact("memory"), store.fact("none")) == (7, {"a": [1, 2]}, None)
    store.write(Batch(sent=[("id1", 1)]))
    assert store.list_instructions() == []


def test_a_batch_is_written_whole_or_not_at_all(store: Store) -> None:
    order = InstructionRecord("id1", 1, "k", {})
    store.write(Batch(instructions=[order]))
    with pytest.raises(Exception, match="UNIQUE"):
        store.write(Batch(jobs={"id1": make_job(1)}, instructions=[order]))
    assert store.job("id1") is None


def test_jobs_are_found_by_id_name_and_unique_beginning(store: Store) -> None:
    store.write(Batch(jobs={"id1": make_job(1, owner="@a"), "id2": make_job(2, name="other", user="bob", owner="@b")}))
    assert [job.id for job in store.find_jobs("oth")] == ["id2"]
    assert [job.id for job in store.find_jobs("id")] == ["id2", "id1"]
    assert [job.id for job in store.find_jobs("id", owner="@a")] == ["id1"]
    assert store.find_jobs("%") == []


def test_lists_are_newest_first_and_paged(store: Store) -> None:
    store.write(
        Batch(
            jobs={f"id{n}": make_job(n, state=JobState.SUCCEEDED if n % 2 else JobState.RUNNING) for n in range(1, 7)}
        )
    )
    assert [job.seq for job in store.list_jobs(limit=2)] == [6, 5]
    assert [job.seq for job in store.list_jobs(limit=2, before=5)] == [4, 3]
    assert [job.seq for job in store.active_jobs()] == [2, 4, 6]
    assert store.count_jobs() == {"running": 3, "succeeded": 3}
    assert store.next_seq() == 7


def test_old_jobs_and_events_are_pruned_but_never_active_ones(store: Store) -> None:
    ended = make_job(1, state=JobState.SUCCEEDED, finished_s=10.0)
    store.write(Batch(jobs={"id1": ended, "id2": make_job(2, finished_s=10.0)}, events=[EventRecord(1.0, "k", "s")]))
    assert store.prune(20.0) == (["id1"], 1)
    assert store.job("id2") is not None


def test_with_a_job_go_its_offers_and_the_speeds_that_no_other_uses(store: Store) -> None:
    jobs = {
        "id1": make_job(1, state=JobState.SUCCEEDED, finished_s=10.0, speed_key="old"),
        "id2": make_job(2, state=JobState.SUCCEEDED, finished_s=10.0, speed_key="both"),
        "id3": make_job(3, speed_key="both"),
    }
    offers = {
        name: OfferRecord(name, job, "ann", "deadline", 9.0, 10, 2.0) for name, job in (("o1", "id1"), ("o3", "id3"))
    }
    speeds = {f"{key}@cpu": SpeedRecord(f"{key}@cpu", device_type="cpu") for key in ("old", "both")}
    store.write(Batch(jobs=jobs, offers=offers, speeds=speeds))
    assert store.prune(20.0)[0] == ["id1", "id2"]
    assert [offer.id for offer in store.offers()] == ["o3"]
    assert [speed.key for speed in store.speeds()] == ["both@cpu"]


def test_users_are_kept_and_dropped(store: Store) -> None:
    user = UserRecord("ann", "hash", True, 10.0, 3, None)
    ann = store.put_user(user)
    assert store.put_user(replace(user, most_active=4)) == replace(ann, most_active=4)
    assert store.users() == [replace(ann, most_active=4)]
    assert store.drop_user("ann")
    assert not store.drop_user("ann")


def test_a_name_given_again_is_another_user_and_jobs_keep_theirs(store: Store) -> None:
    old = store.put_user(UserRecord("ann", "hash", run_as="nobody"))
    store.write(Batch(jobs={"id1": make_job(1, owner=old.id)}, events=[EventRecord(1.0, "k", "s", "id1")]))
    store.drop_user("ann")
    new = store.put_user(UserRecord("ann", "hash2"))
    assert old.id != new.id
    assert (store.find_jobs("id1", new.id), store.list_jobs(owner=new.id), store.events(owner=new.id)) == ([], [], [])
    assert [job.id for job in store.list_jobs(owner=old.id)] == ["id1"]
    # a job that outlives its user still runs as it did, never as the server
    assert (store.find_run_as(old.id), store.find_run_as(new.id)) == ("nobody", None)


def test_a_migration_backs_up_first_and_happens_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = Store(f"sqlite:///{path}")

    def add_table(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE extra (x INTEGER)"))

    def fail(connection: Connection) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        migrate(store.engine, path, (*STEPS, add_table, fail))
    migrate(store.engine, path, (*STEPS, add_table))
    assert (tmp_path / f"x.db.before-{VERSION + 1}").exists()
    with pytest.raises(StateError, match=f"version {VERSION + 1}, this springtide knows up to {VERSION}"):
        Store(f"sqlite:///{path}")


def test_a_database_of_the_first_form_is_brought_up_to_date_with_its_jobs_and_speeds(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = Store(f"sqlite:///{path}")
    plan = PlanRecord(((1.0, 2),), 5.0, 6.0)
    store.write(Batch(jobs={"id1": make_job(1, plan=plan)}, speeds={"k": SpeedRecord("k", device_type="cpu")}))
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobs DROP COLUMN first_device_type"))
        connection.execute(text("ALTER TABLE jobs DROP COLUMN endangered"))
        connection.execute(text("UPDATE jobs SET plan = json_remove(plan, '$.device_type')"))
        connection.execute(text("UPDATE schema_version SET version = 1"))
    store.close()
    store = Store(f"sqlite:///{path}")
    assert store.job("id1") == make_job(1, plan=plan)
    assert store.speeds("k") == [SpeedRecord("k@cpu", device_type="cpu")]
    assert (tmp_path / f"x.db.before-{VERSION}").exists()


def test_a_promise_in_danger_and_a_first_type_survive_from_the_second_form(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = Store(f"sqlite:///{path}")
    plan = PlanRecord(((1.0, 2),), 5.0, 6.0, "t4")
    endangered = make_job(1, promised=True, endangered=True, first_device_type="a100")
    planned = make_job(2, promised=True, plan=plan)
    store.write(Batch(jobs={"id1": endangered, "id2": planned}))
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobs RENAME COLUMN first_device_type TO home"))
        connection.execute(text("ALTER TABLE jobs DROP COLUMN endangered"))
        renamed = "json_set(json_remove(plan, '$.device_type'), '$.kind', 't4')"
        connection.execute(text(f"UPDATE jobs SET plan = {renamed} WHERE id = 'id2'"))
        connection.execute(text("UPDATE schema_version SET version = 2"))
    store.close()
    store = Store(f"sqlite:///{path}")
    assert store.job("id1") == endangered
    assert store.job("id2") == planned


def test_a_backup_is_a_whole_database(store: Store, tmp_path: Path) -> None:
    store.write(Batch(jobs={"id1": make_job(1)}))
    assert store.path is not None
    back_up(store.path, tmp_path / "copy.db")
    assert Store(f"sqlite:///{tmp_path / 'copy.db'}").job("id1") == make_job(1)
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_jobs_that_were_listed_to_be_measured_only_say_so_themselves(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = Store(f"sqlite:///{path}")
    store.write(Batch(jobs={f"id{n}": make_job(n) for n in (1, 2)}, facts={"plans": ["id2", "gone"]}))
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobs DROP COLUMN measure_only"))
        connection.execute(text("UPDATE schema_version SET version = 3"))
    store.close()
    store = Store(f"sqlite:///{path}")
    assert [job.measure_only for job in store.list_jobs()] == [True, False]
    assert store.fact("plans") is None


def test_what_jobs_wait_for_and_where_they_stand_in_arrays_comes_back_as_it_was(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/test.db")
    record = make_job(
        1,
        waits_for=(AwaitedJob("id0", "first", AfterEnd.ANY),),
        array_place=ArrayPlace("a1", "lrs", 2, 3, True, {"lr": "0.1"}),
        inputs={"digits": "files:1"},
        stepped_s=4.5,
        cost_usd=1.25,
        hourly_usd=2.0,
        project="vision",
    )
    store.write(Batch(jobs={record.id: record}))
    store.close()
    again = Store(f"sqlite:///{tmp_path}/test.db")
    assert again.job("id1") == record and again.find_array("lrs") == [record] and again.find_array("other") == []
    again.close()


def test_a_database_of_before_daily_use_is_brought_forward_with_what_was_used(tmp_path: Path) -> None:
    path, new = (
        tmp_path / "test.db",
        ("waits_for", "array_place", "stepped_s", "cost_usd", "usd_before", "ran_before_s"),
    )
    store = Store(f"sqlite:///{path}")
    old = make_job(1, served=40.0, first_start_s=10.0, settled_s=30.0, state=JobState.SUCCEEDED, finished_s=30.0)
    store.write(Batch(jobs={old.id: old}))
    store.close()
    connection = sqlite3.connect(path)
    for column in (*new, "hourly_usd", "inputs", "project"):
        connection.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
    connection.execute("ALTER TABLE users DROP COLUMN project")
    for table in ("projects", "usage", "notices"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute(f"UPDATE schema_version SET version = {STEPS.index(know_daily_use)}")
    connection.commit()
    connection.close()
    store = Store(f"sqlite:///{path}")
    assert store.job("id1") == old
    assert [(one.device_s, one.start_s, one.end_s, one.usd) for one in store.list_used(0.0)] == [
        (40.0, 10.0, 30.0, 0.0)
    ]
    assert store.projects() == [] and store.notices("id1") == []
    store.close()


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True]}, [float("inf"), -float("inf")], "\u00e9\U0001f600", "\ud800", {1: "x"}, 2**70, "\0"],
    ids=ascii,
)
def test_json_is_written_in_ascii_and_read_as_the_standard_library_has_it(value: object) -> None:
    text = write_json(value)
    assert text.isascii() and json.loads(text) == json.loads(json.dumps(value))
