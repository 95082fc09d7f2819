"""The reconciler's working copy of the store: active jobs in memory, and changes staged until they are committed.

Whoever decides something writes it here first; `commit` makes it durable, and only then does anyone act on it.
"""

from dataclasses import replace
from typing import Any

from springtide.control.clock import Clock
from springtide.control.storage.records import Condition, EventRecord, JobRecord, OfferRecord, OrderRecord, SpeedRecord
from springtide.control.storage.store import Batch, Store
from springtide.executors.protocol import Instruction
from springtide.executors.wire import dump_instruction


class Staging:
    """Active jobs by id in arrival order, speeds as they are asked for, and one batch of changes."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.jobs: dict[str, JobRecord] = {record.id: record for record in store.active_jobs()}
        self.batch = Batch()
        self._speeds: dict[str, SpeedRecord] = {}
        self.next_seq = store.next_seq()

    def active(self) -> list[JobRecord]:
        """Jobs to which something is still to happen; one that ended stays in `jobs` until the commit."""
        return [record for record in self.jobs.values() if record.active]

    def add(self, record: JobRecord) -> JobRecord:
        """Stage a new job under the next number."""
        record = replace(record, seq=self.next_seq)
        self.next_seq += 1
        self.jobs[record.id] = self.batch.jobs[record.id] = record
        return record

    def change(self, job_id: str, **fields: Any) -> JobRecord:
        """Stage a change of a job; one that has ended leaves the working copy at the next commit."""
        record = replace(self.jobs[job_id], **fields)
        self.jobs[job_id] = self.batch.jobs[job_id] = record
        return record

    def set_condition(self, job_id: str, kind: str, reason: str, sentence: str) -> bool:
        """Stage that a condition holds; returns whether that is new."""
        record = self.jobs[job_id]
        old = record.condition(kind)
        since_s = old.since_s if old is not None else self.clock.now_s()
        others = tuple(one for one in record.conditions if one.kind != kind)
        self.change(job_id, conditions=(*others, Condition(kind, reason, sentence, since_s)))
        return old is None

    def clear_condition(self, job_id: str, kind: str) -> bool:
        """Stage that a condition holds no longer; returns whether it did."""
        record = self.jobs[job_id]
        if record.condition(kind) is None:
            return False
        self.change(job_id, conditions=tuple(one for one in record.conditions if one.kind != kind))
        return True

    def note(self, kind: str, sentence: str, job_id: str | None = None, **data: Any) -> None:
        """Stage an event."""
        self.batch.events.append(EventRecord(self.clock.now_s(), kind, sentence, job_id, data))

    def put_offer(self, offer: OfferRecord) -> None:
        """Stage an offer."""
        self.batch.offers[offer.id] = offer

    def put_fact(self, name: str, value: Any) -> None:
        """Stage a fact."""
        self.batch.facts[name] = value

    def order(self, instruction: Instruction) -> None:
        """Stage an instruction."""
        body = dump_instruction(instruction)
        self.batch.orders.append(OrderRecord(instruction.job, instruction.generation, instruction.key, body))

    def speed(self, key: str) -> SpeedRecord | None:
        """What is known of the speed of some code."""
        if key not in self._speeds:
            known = self.store.speed(key)
            if known is None:
                return None
            self._speeds[key] = known
        return self._speeds[key]

    def put_speed(self, speed: SpeedRecord) -> None:
        """Stage what is known of a speed."""
        self._speeds[speed.key] = self.batch.speeds[speed.key] = speed

    def commit(self) -> list[OrderRecord]:
        """Write everything staged in one transaction; returns the instructions that may now be carried out."""
        batch, self.batch = self.batch, Batch()
        if not batch:
            return []
        try:
            self.store.write(batch)
        except BaseException:
            self.batch = batch
            raise
        for job_id in [job_id for job_id in batch.jobs if not self.jobs[job_id].active]:
            del self.jobs[job_id]
        return batch.orders
