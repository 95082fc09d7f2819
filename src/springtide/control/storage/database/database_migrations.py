"""Brings a database to the newest form, step by numbered step, after a backup; refuses one from a newer version.

A step is never edited once released: a change of the tables is a new step at the end of `STEPS`.
"""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from springtide.control.storage.database.tables import FORMER_USERS, METADATA, NOTICES, PREDICTIONS, PROJECTS, USAGE
from springtide.errors import StateError

Migration = Callable[[Connection], None]


def create_tables(connection: Connection) -> None:
    """Step 1: the first form of every table."""
    METADATA.create_all(connection)


def know_types(connection: Connection) -> None:
    """Step 2: where a job first ran, and speeds by device type. New databases have the column from step 1."""
    if not {"home", "first_device_type"} & list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN home VARCHAR NOT NULL DEFAULT ''"))
    connection.execute(text("UPDATE speeds SET key = key || '@' || device_type"))


def name_danger(connection: Connection) -> None:
    """Step 3: that a promise is in danger is a fact of its own; `home` has a better name."""
    columns = list_columns(connection)
    if "home" in columns:
        connection.execute(text("ALTER TABLE jobs RENAME COLUMN home TO first_device_type"))
    if "endangered" not in columns:
        connection.execute(text("ALTER TABLE jobs ADD COLUMN endangered BOOLEAN NOT NULL DEFAULT false"))
        # 0.1 said it by the absence of a plan; policies that promise without plans failed live there and left no rows
        unplanned = "promised AND missed = '' AND (plan IS NULL OR CAST(plan AS VARCHAR) = 'null')"
        connection.execute(text(f"UPDATE jobs SET endangered = true WHERE {unplanned}"))


def name_measuring(connection: Connection) -> None:
    """Step 4: that a job is only to be measured is said in its row, no longer in a list beside it."""
    if "measure_only" not in list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN measure_only BOOLEAN NOT NULL DEFAULT false"))
    listed = connection.execute(text("SELECT value FROM facts WHERE name = 'plans'")).scalar_one_or_none()
    for job_id in json.loads(listed) if isinstance(listed, str) else listed or ():
        connection.execute(text("UPDATE jobs SET measure_only = true WHERE id = :id"), {"id": job_id})
    connection.execute(text("DELETE FROM facts WHERE name = 'plans'"))


def tell_users_apart(connection: Connection) -> None:
    """Step 5: users have ids, which jobs name; those who are there keep their names as ids. Jobs name their weights."""
    if "owner" not in list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN owner VARCHAR NOT NULL DEFAULT ''"))
        connection.execute(text('UPDATE jobs SET owner = "user"'))
        connection.execute(text("CREATE INDEX IF NOT EXISTS jobs_by_owner ON jobs (owner, seq)"))
    if "weights" not in list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN weights VARCHAR NOT NULL DEFAULT ''"))
    if "id" not in list_columns(connection, "users"):
        connection.execute(text("ALTER TABLE users ADD COLUMN id VARCHAR NOT NULL DEFAULT ''"))
        connection.execute(text("UPDATE users SET id = name"))
    FORMER_USERS.create(connection, checkfirst=True)


def keep_predictions(connection: Connection) -> None:
    """Step 6: what was predicted of each job, and when."""
    PREDICTIONS.create(connection, checkfirst=True)


def know_requests(connection: Connection) -> None:
    """Step 7: what a submission was called by its client, so that it can be sent again; what was put aside."""
    if "idempotency_key" not in list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN idempotency_key VARCHAR"))
        connection.execute(text("ALTER TABLE jobs ADD COLUMN request_hash VARCHAR NOT NULL DEFAULT ''"))
        connection.execute(text("CREATE UNIQUE INDEX jobs_by_key ON jobs (owner, idempotency_key)"))
    METADATA.tables["quarantine"].create(connection, checkfirst=True)


def know_daily_use(connection: Connection) -> None:
    """Step 8: projects, what jobs wait for, arrays, costs, the last step, inputs; usage by stretch; notices."""
    new = {
        "project": "VARCHAR NOT NULL DEFAULT ''",
        "waits_for": "JSON NOT NULL DEFAULT '[]'",
        "array_place": "JSON",
        "stepped_s": "FLOAT",
        "cost_usd": "FLOAT NOT NULL DEFAULT 0",
        "hourly_usd": "FLOAT",
        "usd_before": "FLOAT NOT NULL DEFAULT 0",
        "ran_before_s": "FLOAT NOT NULL DEFAULT 0",
        "inputs": "JSON NOT NULL DEFAULT '{}'",
    }
    for name, kind in new.items():
        if name not in list_columns(connection):
            connection.execute(text(f"ALTER TABLE jobs ADD COLUMN {name} {kind}"))
    if "project" not in list_columns(connection, "users"):
        connection.execute(text("ALTER TABLE users ADD COLUMN project VARCHAR NOT NULL DEFAULT ''"))
    for table in (PROJECTS, USAGE, NOTICES):
        table.create(connection, checkfirst=True)
    # what was used before is known for each job as a whole
    connection.execute(
        text(
            'INSERT INTO usage (job, owner, "user", project, start_s, end_s, device_s, usd) '
            "SELECT id, owner, \"user\", '', first_start_s, settled_s, served, 0 FROM jobs "
            "WHERE served > 0 AND first_start_s IS NOT NULL"
        )
    )


def know_saves(connection: Connection) -> None:
    """Step 9: which step of a job is known to be saved."""
    if "saved_step" not in list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN saved_step INTEGER NOT NULL DEFAULT 0"))


def know_stops(connection: Connection) -> None:
    """Step 10: which instruction of a job has found its end, because that may be told twice."""
    if "stopped_generation" not in list_columns(connection):
        connection.execute(text("ALTER TABLE jobs ADD COLUMN stopped_generation INTEGER NOT NULL DEFAULT 0"))


def list_columns(connection: Connection, table: str = "jobs") -> set[str]:
    """The columns of a table as it is."""
    return {column["name"] for column in inspect(connection).get_columns(table)}


STEPS: tuple[Migration, ...] = (
    create_tables,
    know_types,
    name_danger,
    name_measuring,
    tell_users_apart,
    keep_predictions,
    know_requests,
    know_daily_use,
    know_saves,
    know_stops,
)
VERSION = len(STEPS)


def read_version(connection: Connection) -> int:
    """The number of the last step taken; 0 for an empty database."""
    if not inspect(connection).has_table("schema_version"):
        return 0
    return int(connection.execute(text("SELECT version FROM schema_version")).scalar_one())


def migrate(engine: Engine, path: Path | None, steps: tuple[Migration, ...] = STEPS) -> None:
    """Take the steps that are missing, all or none; `path` is the SQLite file, which is backed up first."""
    with engine.connect() as connection:
        version = read_version(connection)
    if version > len(steps):
        raise StateError(
            f"the database is of version {version}, this springtide knows up to {len(steps)}; install the newer "
            "springtide again, or point SPRINGTIDE_HOME at another directory"
        )
    if version == len(steps):
        return
    if version and path is not None:
        back_up(path, path.with_name(f"{path.name}.before-{len(steps)}"))
    with engine.begin() as connection:
        for step in steps[version:]:
            step(connection)
        write_version(connection, len(steps))


def write_version(connection: Connection, version: int) -> None:
    """Note the number of the last step taken."""
    connection.execute(text("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"))
    connection.execute(text("DELETE FROM schema_version"))
    connection.execute(text("INSERT INTO schema_version (version) VALUES (:version)"), {"version": version})


def back_up(source: Path, target: Path) -> None:
    """Copy a SQLite database that may be in use, by SQLite's online backup; complete or not at all."""
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    origin, copy = sqlite3.connect(source), sqlite3.connect(partial)
    try:
        origin.backup(copy)
    finally:
        copy.close()
        origin.close()
    partial.chmod(0o600)
    partial.replace(target)
