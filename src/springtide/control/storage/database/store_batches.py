"""Changes of the store that are made together, or not at all."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam
from sqlalchemy.engine import Connection

from springtide.control.storage.database.databases import upsert
from springtide.control.storage.database.rows import write_fields, write_job
from springtide.control.storage.database.tables import (
    EVENTS,
    FACTS,
    INSTRUCTIONS,
    JOBS,
    NOTICES,
    OFFERS,
    PREDICTIONS,
    QUARANTINE,
    SPEEDS,
    USAGE,
)
from springtide.control.storage.records import (
    EventRecord,
    InstructionRecord,
    JobRecord,
    NoticeRecord,
    OfferRecord,
    PredictionRecord,
    QuarantineRecord,
    SpeedRecord,
    UsageRecord,
)

# Built once: to build a statement takes as long as to execute it.
ADD_JOB = JOBS.insert()
FORGET_INSTRUCTION = INSTRUCTIONS.delete().where(
    (INSTRUCTIONS.c.job == bindparam("sent_job")) & (INSTRUCTIONS.c.generation == bindparam("sent_generation"))
)


@dataclass(slots=True)
class Batch:
    """Changes to be written together; a later change of the same thing replaces the earlier one."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    events: list[EventRecord] = field(default_factory=list)
    offers: dict[str, OfferRecord] = field(default_factory=dict)
    speeds: dict[str, SpeedRecord] = field(default_factory=dict)
    instructions: list[InstructionRecord] = field(default_factory=list)
    sent: list[tuple[str, int]] = field(default_factory=list)  # jobs and generations of instructions that have arrived
    facts: dict[str, Any] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)  # those of the jobs that nobody may know yet
    predictions: list[PredictionRecord] = field(default_factory=list)
    quarantine: list[QuarantineRecord] = field(default_factory=list)
    usage: list[UsageRecord] = field(default_factory=list)
    notices: list[NoticeRecord] = field(default_factory=list)

    def copy(self) -> "Batch":
        """A batch that may be changed without changing this one."""
        return Batch(**{name: getattr(self, name).copy() for name in self.__slots__})

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def insert_batch(connection: Connection, batch: Batch) -> None:
    """Make all changes of a batch in a transaction that is open; IntegrityError where an added job's id is taken."""
    if batch.added:
        connection.execute(ADD_JOB, [write_job(one) for one in batch.jobs.values() if one.id in batch.added])
    upsert(connection, JOBS, "id", [write_job(one) for one in batch.jobs.values() if one.id not in batch.added])
    counted = ((EVENTS, batch.events), (QUARANTINE, batch.quarantine), (NOTICES, batch.notices))
    for table, records in counted:
        if records:
            rows = [{k: v for k, v in write_fields(one).items() if k != "seq"} for one in records]
            connection.execute(table.insert(), rows)
    for history, entries in ((PREDICTIONS, batch.predictions), (USAGE, batch.usage)):
        if entries:
            connection.execute(history.insert(), [write_fields(one) for one in entries])
    upsert(connection, OFFERS, "id", [write_fields(offer) for offer in batch.offers.values()])
    upsert(connection, SPEEDS, "key", [write_fields(speed) for speed in batch.speeds.values()])
    if batch.instructions:
        connection.execute(INSTRUCTIONS.insert(), [write_fields(one) for one in batch.instructions])
    if batch.sent:
        keys = [{"sent_job": job_id, "sent_generation": generation} for job_id, generation in batch.sent]
        connection.execute(FORGET_INSTRUCTION, keys)
    upsert(connection, FACTS, "name", [{"name": name, "value": value} for name, value in batch.facts.items()])
