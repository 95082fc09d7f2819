"""The tables of the database in their newest form; how an older one gets there is in `migrations`."""

from sqlalchemy import JSON, Boolean, Column, Float, Index, Integer, MetaData, String, Table, false

METADATA = MetaData()

FACTS = Table("facts", METADATA, Column("name", String, primary_key=True), Column("value", JSON, nullable=False))

JOBS = Table(
    "jobs",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("user", String, nullable=False),
    Column("state", String, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("submitted_s", Float, nullable=False),
    Column("archive", String, nullable=False),
    Column("speed_key", String, nullable=False),
    Column("deadline_s", Float),
    Column("total_steps", Integer),
    Column("logical_workers", Integer),
    Column("step", Integer, nullable=False),
    Column("saved_step", Integer, nullable=False, server_default="0"),
    Column("reason", String, nullable=False),
    Column("sentence", String, nullable=False),
    Column("answered_s", Float),
    Column("answer_by_s", Float),
    Column("promised", Boolean, nullable=False),
    Column("plan", JSON),
    Column("predicted_s", Float),
    Column("conditions", JSON, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("stopped_generation", Integer, nullable=False, server_default="0"),
    Column("devices", JSON, nullable=False),
    Column("first_device_type", String, nullable=False, server_default=""),
    Column("first_start_s", Float),
    Column("finished_s", Float),
    Column("exit_code", Integer),
    Column("rescales", Integer, nullable=False),
    Column("faults", Integer, nullable=False),
    Column("pause_s", Float, nullable=False),
    Column("lost_steps", Integer, nullable=False),
    Column("served", Float, nullable=False),
    Column("ran_s", Float, nullable=False),
    Column("settled_s", Float, nullable=False),
    Column("missed", String, nullable=False),
    Column("endangered", Boolean, nullable=False, server_default=false()),
    Column("accept_offer", Boolean, nullable=False),
    Column("expected_s", Float),
    Column("measure_only", Boolean, nullable=False, server_default=false()),
    Column("idempotency_key", String),
    Column("request_hash", String, nullable=False, server_default=""),
    Column("owner", String, nullable=False, server_default=""),
    Column("weights", String, nullable=False, server_default=""),
    Column("project", String, nullable=False, server_default=""),
    Column("waits_for", JSON, nullable=False, server_default="[]"),
    Column("array_place", JSON),
    Column("stepped_s", Float),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    Column("hourly_usd", Float),
    Column("usd_before", Float, nullable=False, server_default="0"),
    Column("ran_before_s", Float, nullable=False, server_default="0"),
    Column("inputs", JSON, nullable=False, server_default="{}"),
    Index("jobs_by_state", "state", "seq"),
    Index("jobs_by_name", "name"),
    Index("jobs_by_user", "user", "seq"),
    Index("jobs_by_owner", "owner", "seq"),
    Index("jobs_by_key", "owner", "idempotency_key", unique=True),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at_s", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("sentence", String, nullable=False),
    Column("job", String),
    Column("data", JSON, nullable=False),
    Index("events_by_job", "job", "seq"),
)

QUARANTINE = Table(
    "quarantine",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at_s", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("job", String),
    Column("error", String, nullable=False),
    Column("body", String, nullable=False),
)

PREDICTIONS = Table(
    "predictions",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("job", String, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("predicted_s", Float, nullable=False),
    Column("late_s", Float),
    Index("predictions_by_job", "job", "seq"),
)

OFFERS = Table(
    "offers",
    METADATA,
    Column("id", String, primary_key=True),
    Column("job", String, nullable=False, index=True),
    Column("user", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("deadline_s", Float, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("expires_s", Float, nullable=False),
    Column("reserved", Boolean, nullable=False),
    Column("state", String, nullable=False, index=True),
)

SPEEDS = Table(
    "speeds",
    METADATA,
    Column("key", String, primary_key=True),
    Column("points", JSON, nullable=False),
    Column("startup_s", Float, nullable=False),
    Column("pause_s", Float),
    Column("total_steps", Integer),
    Column("steps_per_epoch", Integer),
    Column("logical_workers", Integer),
    Column("device_type", String, nullable=False),
    Column("whole_epoch", Boolean, nullable=False),
)

USERS = Table(
    "users",
    METADATA,
    Column("name", String, primary_key=True),
    Column("token_hash", String, nullable=False, unique=True),
    Column("admin", Boolean, nullable=False),
    Column("quota_device_s", Float),
    Column("most_active", Integer),
    Column("run_as", String),
    Column("id", String, nullable=False, server_default=""),
    Column("project", String, nullable=False, server_default=""),
)

PROJECTS = Table(
    "projects",
    METADATA,
    Column("name", String, primary_key=True),
    Column("quota_device_s", Float),
    Column("most_active", Integer),
)

USAGE = Table(
    "usage",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("job", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("user", String, nullable=False),
    Column("project", String, nullable=False),
    Column("start_s", Float, nullable=False),
    Column("end_s", Float, nullable=False),
    Column("device_s", Float, nullable=False),
    Column("usd", Float, nullable=False),
    Index("usage_by_end", "end_s"),
    Index("usage_by_job", "job"),
)

NOTICES = Table(
    "notices",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("job", String, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("way", JSON, nullable=False),
    Column("body", JSON, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("tries", Integer, nullable=False),
    Column("due_s", Float, nullable=False),
    Column("said", String, nullable=False),
    Index("notices_by_job", "job"),
)

FORMER_USERS = Table(
    "former_users",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("run_as", String),
)

INSTRUCTIONS = Table(
    "orders",
    METADATA,
    Column("job", String, primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("key", String, nullable=False),
    Column("body", JSON, nullable=False),
)
