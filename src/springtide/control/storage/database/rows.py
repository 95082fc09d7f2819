"""Records as rows of the database, and back: rows of every earlier version are read, those of this one are written."""

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from springtide.control.storage.database.tables import INSTRUCTIONS, JOBS
from springtide.control.storage.records import ArrayPlace, AwaitedJob, Condition, JobRecord, PlanRecord, SpeedRecord
from springtide.core.dependencies import AfterEnd
from springtide.core.job_file import JobFile
from springtide.core.job_file_parts.job_sections import STORED
from springtide.core.job_states import JobState

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


COLUMNS = tuple(column.name for column in JOBS.c)


def write_fields(record: "DataclassInstance") -> dict[str, Any]:
    """A record's fields as they are: `asdict` copies all that is in them, which takes longer than to store it."""
    return {name: getattr(record, name) for name in _list_fields(type(record))}


@cache
def _list_fields(kind: "type[DataclassInstance]") -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def read_speed(row: Row[Any]) -> SpeedRecord:
    """A row as a speed."""
    fields = dict(row._mapping)
    points = {int(share): (int(steps), float(rate)) for share, (steps, rate) in fields.pop("points").items()}
    return SpeedRecord(points=points, **fields)


def write_job(record: JobRecord) -> dict[str, Any]:
    """A job as a row."""
    row = {name: getattr(record, name) for name in COLUMNS}
    row["state"] = str(record.state)
    row["spec"] = record.spec.document
    row["plan"] = None if record.plan is None else write_fields(record.plan)
    row["conditions"] = [write_fields(condition) for condition in record.conditions]
    row["devices"] = list(record.devices)
    row["waits_for"] = [write_fields(one) for one in record.waits_for]
    row["array_place"] = None if record.array_place is None else write_fields(record.array_place)
    return row


def read_job(row: Row[Any]) -> JobRecord:
    """A row as a job."""
    return load_job(dict(row._mapping))


def load_job(fields: dict[str, Any]) -> JobRecord:
    """The job of a row's fields."""
    plan = fields["plan"]
    if plan is not None:
        segments = tuple((float(start_s), int(share)) for start_s, share in plan["segments"])
        device_type = plan.get("device_type", plan.get("kind", ""))  # `kind` was written by 0.1
        fields["plan"] = PlanRecord(segments, plan["finish_s"], plan["held_until_s"], device_type)
    fields["state"] = JobState(fields["state"])
    fields["spec"] = JobFile.model_validate(fields["spec"], context=STORED)
    fields["conditions"] = tuple(Condition(**condition) for condition in fields["conditions"])
    fields["devices"] = tuple(fields["devices"])
    awaited = (one | {"end": AfterEnd(one["end"])} for one in fields.get("waits_for", ()))
    fields["waits_for"] = tuple(AwaitedJob(**one) for one in awaited)
    place = fields.get("array_place")
    fields["array_place"] = None if place is None else ArrayPlace(**place)
    return JobRecord(**fields)


def read_body(connection: Connection, job_id: str, generation: int) -> Any:
    """What an instruction says; None if that is no JSON, which costs no other row."""
    one = (INSTRUCTIONS.c.job == job_id) & (INSTRUCTIONS.c.generation == generation)
    try:
        return connection.execute(select(INSTRUCTIONS.c.body).where(one)).scalar_one()
    except ValueError:
        return None
