"""The memory of the platform: every record in SQLite (or PostgreSQL by URL), through SQLAlchemy Core.

One writer, the reconciler, whose changes are gathered in a `Batch` and written in one transaction before anything is
done; any number of readers. Knows nothing of policies or executors. Users and projects are in `accounts`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.engine import Connection

from springtide.control.storage.accounts import AccountStore
from springtide.control.storage.database.database_migrations import migrate
from springtide.control.storage.database.databases import find_address, is_unavailable, open_engine
from springtide.control.storage.database.rows import read_body, read_job, read_speed, write_fields
from springtide.control.storage.database.store_batches import Batch, insert_batch
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
from springtide.control.storage.leadership import Leadership
from springtide.control.storage.records import (
    EventRecord,
    InstructionRecord,
    JobLedgerEntry,
    JobOutcome,
    JobRecord,
    NoticeRecord,
    OfferRecord,
    PredictionRecord,
    QuarantineRecord,
    SpeedRecord,
    UsageRecord,
)
from springtide.core.job_states import ACTIVE, JobState
from springtide.errors import StateError

logger = logging.getLogger("springtide.control")
RECENT_JOBS = 256
COMMITS = "commits"  # the fact that counts them
PREDICTED = tuple(PREDICTIONS.c[one.name] for one in fields(PredictionRecord))
IS_KNOWN = select(JOBS.c.id).where(JOBS.c.id == bindparam("id"))
FORGET_PREDICTIONS = PREDICTIONS.delete().where(PREDICTIONS.c.job == bindparam("gone"))
FORGET_OFFERS = OFFERS.delete().where(OFFERS.c.job == bindparam("gone"))
# Built once: whoever changes a job is answered with its offers, and to build this takes as long as to ask it.
ALL_OFFERS = select(OFFERS).order_by(OFFERS.c.id)
OFFERS_OF_JOB = ALL_OFFERS.where(OFFERS.c.job == bindparam("asked"))
#: The ids of two jobs at most of an owner that a text stands for.
NAMED_JOBS = (
    select(JOBS.c.id)
    .where((JOBS.c.id == bindparam("asked")) | (JOBS.c.name == bindparam("asked")))
    .where(JOBS.c.owner == bindparam("of"))
    .limit(2)
)


def forget_speeds(connection: Connection) -> None:
    """Forget the speeds of code that no job is known to run; it is measured again if it comes again."""
    used = set(connection.execute(select(JOBS.c.speed_key).distinct()).scalars())
    keys = connection.execute(select(SPEEDS.c.key)).scalars().all()
    unused = [{"gone": key} for key in keys if key.rpartition("@")[0] not in used]
    if unused:
        connection.execute(SPEEDS.delete().where(SPEEDS.c.key == bindparam("gone")), unused)


class Store(AccountStore):
    """Reads and writes records. Safe to use from several threads."""

    def __init__(self, url: str, leadership: Leadership | None = None) -> None:
        address = find_address(url)
        self.path = Path(address.database) if address.drivername.startswith("sqlite") and address.database else None
        if self.path is not None:
            self.path.touch(mode=0o600)  # what SQLite puts beside it gets the same mode
        super().__init__(open_engine(address, "" if leadership is None else leadership.holder), leadership)
        #: How often something was written, and how many events: so that whoever watches knows when to look again.
        self.version = self.happened = 0
        #: Hear of the jobs that were just written; what they raise is logged.
        self.listeners: list[Callable[[Mapping[str, JobRecord]], None]] = []
        #: How often jobs were forgotten, of which the listeners do not hear.
        self.prunes = 0
        self._recent: dict[str, JobRecord] = {}  # as written, because whoever changed a job reads it next
        #: Jobs whose rows cannot be read, and why: left out of every list, and never written.
        self.unreadable: dict[str, str] = {}
        migrate(self.engine, self.path)
        if self.path is not None:
            self.path.chmod(0o600)

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()

    def write(self, batch: Batch) -> None:
        """Write all changes of a batch, or none."""
        if not batch:
            return
        with self.begin() as connection:
            insert_batch(connection, batch)
        self._remember(batch.jobs)
        self.happened += len(batch.events)
        self.version += 1
        self._tell(batch.jobs)

    def try_write(self, batch: Batch) -> None:
        """Find out whether a batch could be written: raises what `write` would raise; nothing is changed."""
        with self.begin() as connection:
            insert_batch(connection, batch)
            connection.rollback()

    def _tell(self, jobs: Mapping[str, JobRecord]) -> None:
        """Let the listeners hear of jobs; what fails in one is not the writer's, whose batch is stored."""
        for hear in tuple(self.listeners):
            try:
                hear(jobs)
            except Exception:
                logger.exception("a listener failed over jobs that were stored")

    def _read_jobs(self, query: Select[Any]) -> list[JobRecord]:
        """The jobs of a query; one whose row cannot be read is left out, and costs no other."""
        if self.unreadable:
            query = query.where(JOBS.c.id.not_in(list(self.unreadable)))
        with self.engine.connect() as connection:
            try:
                return [read_job(row) for row in connection.execute(query)]
            except Exception as error:
                ids = (
                    []
                    if is_unavailable(error)
                    else connection.execute(query.with_only_columns(JOBS.c.id)).scalars().all()
                )
                if all([self._can_read(connection, job_id) for job_id in ids]):
                    raise
        return self._read_jobs(query)

    def _can_read(self, connection: Connection, job_id: str) -> bool:
        """Whether the row of a job can be read; one that cannot is noted."""
        try:
            read_job(connection.execute(select(JOBS).where(JOBS.c.id == job_id)).one())
        except Exception as error:
            if is_unavailable(error):
                raise
            logger.exception("the record of job %s cannot be read", job_id)
            self.unreadable[job_id] = f"{type(error).__name__}: {error}"
        return job_id not in self.unreadable

    def _check_readable(self, job_id: str) -> None:
        """Refuse to say anything of a job whose row cannot be read; that it is not there would be untrue."""
        if job_id in self.unreadable:
            raise StateError(
                f"the record of job {job_id} cannot be read; it is kept for the operator: springtide doctor"
            )

    def _remember(self, jobs: dict[str, JobRecord]) -> None:
        """Keep the last written jobs at hand. Only this process writes, and records are never changed."""
        recent = {**self._recent, **jobs}
        for job_id in list(islice(recent, max(0, len(recent) - RECENT_JOBS))):
            del recent[job_id]
        self._recent = recent

    def list_instructions(self) -> list[InstructionRecord]:
        """Instructions that may not have reached the executor, oldest first for each job."""
        with self.engine.connect() as connection:
            keys = select(INSTRUCTIONS.c.job, INSTRUCTIONS.c.generation, INSTRUCTIONS.c.key)
            rows = connection.execute(keys.order_by(INSTRUCTIONS.c.job, INSTRUCTIONS.c.generation)).all()
            return [InstructionRecord(*row, body=read_body(connection, row.job, row.generation)) for row in rows]

    def next_seq(self) -> int:
        """The number that the next job will have."""
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.coalesce(func.max(JOBS.c.seq), 0))).scalar_one()) + 1

    def fact(self, name: str) -> Any:
        """A remembered fact, None if there is none."""
        with self.engine.connect() as connection:
            return connection.execute(select(FACTS.c.value).where(FACTS.c.name == name)).scalar_one_or_none()

    def count_commits(self) -> int:
        """How many batches of a reconciler were ever stored."""
        return int(self.fact(COMMITS) or 0)

    def job(self, job_id: str) -> JobRecord | None:
        """The job of this id."""
        recent = self._recent.get(job_id)
        if recent is not None:
            return recent
        found = self._read_jobs(select(JOBS).where(JOBS.c.id == job_id))
        self._check_readable(job_id)
        return found[0] if found else None

    def knows(self, job_id: str) -> bool:
        """Whether a job has this id; readable or not, and without reading it."""
        with self.engine.connect() as connection:
            return connection.execute(IS_KNOWN, {"id": job_id}).first() is not None

    def find_request(self, owner: str, key: str) -> JobRecord | None:
        """The job that the user of an id has submitted under an idempotency key."""
        asked = (JOBS.c.owner == owner) & (JOBS.c.idempotency_key == key)
        with self.engine.connect() as connection:
            job_id = connection.execute(select(JOBS.c.id).where(asked)).scalar_one_or_none()
        return None if job_id is None else self.job(job_id)

    def list_quarantine(self, limit: int = 100) -> list[QuarantineRecord]:
        """What could not be worked in or stored, newest first."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(QUARANTINE).order_by(QUARANTINE.c.seq.desc()).limit(limit))
            return [QuarantineRecord(**row._mapping) for row in rows]

    def count_quarantine(self) -> int:
        """How much was ever put aside and is still kept."""
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(QUARANTINE)).scalar_one())

    def find_jobs(self, text: str, owner: str | None = None) -> list[JobRecord]:
        """The jobs that an id, a name, or a prefix of either stands for: the exact ones if there are any."""
        exact = (JOBS.c.id == text) | (JOBS.c.name == text)
        near = JOBS.c.id.startswith(text, autoescape=True) | JOBS.c.name.startswith(text, autoescape=True)
        for chosen in (exact, near):
            query = select(JOBS).where(chosen).order_by(JOBS.c.seq.desc()).limit(20)
            found = self._read_jobs(query if owner is None else query.where(JOBS.c.owner == owner))
            if found:
                return found
        return []

    def is_unique(self, name: str, owner: str) -> bool:
        """Whether a name stands for one job of its owner; without reading what is known of it."""
        with self.engine.connect() as connection:
            return len(connection.execute(NAMED_JOBS, {"asked": name, "of": owner}).all()) == 1

    def find_array(self, text: str, owner: str | None = None) -> list[JobRecord]:
        """The jobs of the array of an id, or of the newest of a name, the first one first."""
        place, newest = JOBS.c.array_place, JOBS.c.seq.desc()
        named = (place["id"].as_string() == text) | (place["name"].as_string() == text)
        with self.engine.connect() as connection:
            query = select(place["id"].as_string()).where(named).order_by(newest).limit(1)
            query = query if owner is None else query.where(JOBS.c.owner == owner)
            array_id = connection.execute(query).scalar_one_or_none()
        if array_id is None:
            return []
        return self._read_jobs(select(JOBS).where(place["id"].as_string() == array_id).order_by(JOBS.c.seq))

    def list_jobs(
        self,
        states: Iterable[JobState] = (),
        owner: str | None = None,
        limit: int | None = None,
        before: int | None = None,
        user: str | None = None,
        without_probes: bool = False,
    ) -> list[JobRecord]:
        """Jobs, newest first, of these states (all if none are given), of one owner and of users of one name.

        Those that are only measured for a plan can be left out.
        """
        query = select(JOBS).order_by(JOBS.c.seq.desc())
        wanted = [str(state) for state in states]
        query = query.where(JOBS.c.state.in_(wanted)) if wanted else query
        query = query.where(JOBS.c.owner == owner) if owner is not None else query
        query = query.where(JOBS.c.user == user) if user is not None else query
        query = query.where(JOBS.c.seq < before) if before is not None else query
        query = query.where(~JOBS.c.measure_only) if without_probes else query
        return self._read_jobs(query.limit(limit) if limit else query)

    def list_recent(self, since_s: float, owner: str | None = None) -> list[JobRecord]:
        """Jobs that go on or ended since an instant, newest first; those that were only measured are left out."""
        recent = (JOBS.c.finished_s > since_s) | JOBS.c.finished_s.is_(None)
        query = select(JOBS).where(recent & ~JOBS.c.measure_only).order_by(JOBS.c.seq.desc())
        return self._read_jobs(query if owner is None else query.where(JOBS.c.owner == owner))

    def list_ids(self) -> set[str]:
        """The ids of all jobs that are known."""
        with self.engine.connect() as connection:
            return set(connection.execute(select(JOBS.c.id)).scalars())

    def list_outcomes(self, job_id: str | None = None) -> list[JobOutcome]:
        """What became of every job, oldest first, or of one."""
        query = select(*(JOBS.c[one.name] for one in fields(JobOutcome))).order_by(JOBS.c.seq)
        with self.engine.connect() as connection:
            rows = connection.execute(query if job_id is None else query.where(JOBS.c.id == job_id))
            return [JobOutcome(found, archive, JobState(state), *rest) for found, archive, state, *rest in rows]

    def find_outcome(self, job_id: str) -> JobOutcome | None:
        """What became of a job by now; None if it is not known any more."""
        return next(iter(self.list_outcomes(job_id)), None)

    def is_archive_used(self, archive: str, since_s: float) -> bool:
        """Whether a job runs from some code that is not over, or ended at an instant or later and may be resumed."""
        needed = JOBS.c.state.in_(map(str, ACTIVE)) | (JOBS.c.finished_s >= since_s)
        used = select(JOBS.c.id).where((JOBS.c.archive == archive) & needed).limit(1)
        with self.engine.connect() as connection:
            return connection.execute(used).first() is not None

    def list_ledger(self, owner: str | None = None) -> list[JobLedgerEntry]:
        """What reports count: of one owner's jobs, or of all."""
        query = select(*(JOBS.c[one.name] for one in fields(JobLedgerEntry))).order_by(JOBS.c.seq)
        with self.engine.connect() as connection:
            rows = connection.execute(query if owner is None else query.where(JOBS.c.owner == owner))
            return [JobLedgerEntry(user, JobState(state), *rest) for user, state, *rest in rows]

    def count_promises(self, owner: str | None = None) -> tuple[int, int]:
        """How many promises were kept, and how many missed: of one owner's jobs, or of all."""
        query = select(JOBS.c.missed != "", func.count()).where(JOBS.c.promised).group_by(JOBS.c.missed != "")
        query = query.where((JOBS.c.state == str(JobState.SUCCEEDED)) | (JOBS.c.missed != ""))
        with self.engine.connect() as connection:
            rows = connection.execute(query if owner is None else query.where(JOBS.c.owner == owner))
            counts = {bool(missed): int(count) for missed, count in rows}
        return counts.get(False, 0), counts.get(True, 0)

    def active_jobs(self) -> list[JobRecord]:
        """Jobs to which something is still to happen, oldest first."""
        return self.list_jobs(ACTIVE)[::-1]

    def count_jobs(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(JOBS.c.state, func.count()).group_by(JOBS.c.state))
            return {str(state): int(count) for state, count in rows}

    def events(
        self, job_id: str | None = None, after: int = 0, limit: int = 1000, owner: str | None = None
    ) -> list[EventRecord]:
        """Events after a number, oldest first: of one job, of one owner's jobs, or all."""
        query = select(EVENTS).where(EVENTS.c.seq > after).order_by(EVENTS.c.seq).limit(limit)
        query = query.where(EVENTS.c.job == job_id) if job_id is not None else query
        if owner is not None:
            query = query.where(EVENTS.c.job.in_(select(JOBS.c.id).where(JOBS.c.owner == owner)))
        with self.engine.connect() as connection:
            return [EventRecord(**row._mapping) for row in connection.execute(query)]

    def last_events(self, count: int, job_id: str | None = None) -> list[EventRecord]:
        """The newest events, newest first: of one job, or of all."""
        query = select(EVENTS).order_by(EVENTS.c.seq.desc()).limit(count)
        query = query.where(EVENTS.c.job == job_id) if job_id is not None else query
        with self.engine.connect() as connection:
            return [EventRecord(**row._mapping) for row in connection.execute(query)]

    def predictions(self, job_id: str) -> list[PredictionRecord]:
        """What was predicted of a job, the first one first."""
        query = select(PREDICTIONS).where(PREDICTIONS.c.job == job_id).order_by(PREDICTIONS.c.seq)
        with self.engine.connect() as connection:
            return [PredictionRecord(*row) for row in connection.execute(query.with_only_columns(*PREDICTED))]

    def last_predictions(self) -> dict[str, PredictionRecord]:
        """The newest prediction of each active job."""
        active = select(JOBS.c.id).where(JOBS.c.state.in_([str(state) for state in ACTIVE]))
        newest = select(func.max(PREDICTIONS.c.seq)).where(PREDICTIONS.c.job.in_(active)).group_by(PREDICTIONS.c.job)
        query = select(*PREDICTED).where(PREDICTIONS.c.seq.in_(newest))
        with self.engine.connect() as connection:
            return {row.job: PredictionRecord(*row) for row in connection.execute(query)}

    def offers(self, job_id: str | None = None, state: str | None = None) -> list[OfferRecord]:
        """Offers of one job, or of all, in this state, or in any; the first one first."""
        query = ALL_OFFERS if job_id is None else OFFERS_OF_JOB
        query = query.where(OFFERS.c.state == state) if state is not None else query
        with self.engine.connect() as connection:
            return [
                OfferRecord(**row._mapping)
                for row in connection.execute(query, {} if job_id is None else {"asked": job_id})
            ]

    def speeds(self, key: str | None = None) -> list[SpeedRecord]:
        """What is known of the speed of some code on each device type, or of all code."""
        query = select(SPEEDS).order_by(SPEEDS.c.key)
        query = query.where(SPEEDS.c.key.startswith(f"{key}@", autoescape=True)) if key is not None else query
        with self.engine.connect() as connection:
            return [read_speed(row) for row in connection.execute(query)]

    def list_due_notices(self, now_s: float, of_each: int, without: Collection[int] = ()) -> list[tuple[int, str]]:
        """What is to be told now but for some, so much at most of each owner: numbers, with the owners' ids.

        An owner's notices that were not tried yet are the first, then the oldest.
        """
        owner = func.coalesce(JOBS.c.owner, "").label("owner")  # of a job that was forgotten nobody knows
        order = func.row_number().over(partition_by=owner, order_by=(NOTICES.c.tries, NOTICES.c.seq))
        due = (NOTICES.c.state == "open") & (NOTICES.c.due_s <= now_s) & NOTICES.c.seq.not_in(list(without))
        joined = NOTICES.outerjoin(JOBS, JOBS.c.id == NOTICES.c.job)
        placed = select(NOTICES.c.seq, owner, order.label("place")).select_from(joined).where(due).subquery()
        query = select(placed.c.seq, placed.c.owner).where(placed.c.place <= of_each)
        with self.engine.connect() as connection:
            rows = connection.execute(query.order_by(placed.c.place, placed.c.seq))
            return [(int(seq), str(found)) for seq, found in rows]

    def find_notice(self, seq: int) -> NoticeRecord | None:
        """The notice of a number."""
        with self.engine.connect() as connection:
            row = connection.execute(select(NOTICES).where(NOTICES.c.seq == seq)).one_or_none()
            return None if row is None else NoticeRecord(**row._mapping)

    def put_notice(self, notice: NoticeRecord) -> None:
        """Note what came of telling."""
        with self.begin() as connection:
            connection.execute(NOTICES.update().where(NOTICES.c.seq == notice.seq).values(**write_fields(notice)))

    def give_up_notice(self, seq: int, said: str) -> None:
        """Note of a notice whose row cannot be read that it is not told."""
        with self.begin() as connection:
            connection.execute(NOTICES.update().where(NOTICES.c.seq == seq).values(state="given_up", said=said))

    def notices(self, job_id: str) -> list[NoticeRecord]:
        """What was or is to be told of a job, oldest first."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(NOTICES).where(NOTICES.c.job == job_id).order_by(NOTICES.c.seq))
            return [NoticeRecord(**row._mapping) for row in rows]

    def list_used(self, since_s: float, owner: str | None = None) -> list[UsageRecord]:
        """What jobs have used in stretches that ended after an instant: of one owner's, or of all."""
        query = select(*(USAGE.c[one.name] for one in fields(UsageRecord))).where(USAGE.c.end_s > since_s)
        with self.engine.connect() as connection:
            rows = connection.execute(query if owner is None else query.where(USAGE.c.owner == owner))
            return [UsageRecord(*row) for row in rows]

    def prune(self, before_s: float, keep: Collection[str] = ()) -> tuple[list[str], int]:
        """Forget jobs that ended before an instant, but for some, and events older than it; returns ids and a count.

        With them go their offers, and the speeds of code that no job has any more.
        """
        self._recent = {}
        old = (JOBS.c.finished_s < before_s) & JOBS.c.state.not_in([str(state) for state in ACTIVE])
        with self.begin() as connection:
            found = {str(job_id) for job_id in connection.execute(select(JOBS.c.id).where(old)).scalars()}
            gone = sorted(found.difference(keep))
            if gone:
                connection.execute(FORGET_PREDICTIONS, [{"gone": one} for one in gone])
                connection.execute(JOBS.delete().where(JOBS.c.id == bindparam("gone")), [{"gone": one} for one in gone])
                connection.execute(FORGET_OFFERS, [{"gone": one} for one in gone])
                forget_speeds(connection)
            events = connection.execute(EVENTS.delete().where(EVENTS.c.at_s < before_s)).rowcount
            connection.execute(QUARANTINE.delete().where(QUARANTINE.c.at_s < before_s))
            connection.execute(NOTICES.delete().where(NOTICES.c.at_s < before_s))
            connection.execute(USAGE.delete().where(USAGE.c.end_s < before_s))
        self.prunes += 1
        return gone, events
