"""The reconciler's working copy of the store: active jobs in memory, and changes staged until they are committed.

Whoever decides something stages it here as `Effects`; `commit` makes it durable, and only then does anyone act on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import (
    EventRecord,
    InstructionRecord,
    JobRecord,
    OfferRecord,
    PredictionRecord,
    QuarantineRecord,
    SpeedRecord,
)
from springtide.control.storage.store import COMMITS, Store
from springtide.core.job_states import ENDED
from springtide.executors.protocol import Instruction
from springtide.executors.wire import dump_instruction

MOST_BODY = 20_000  # letters kept of what was put aside


@dataclass(frozen=True, slots=True)
class Effects:
    """What follows for one job: its record from now on, what is told of it, and what the executor is to do."""

    record: JobRecord
    events: tuple[EventRecord, ...] = ()
    instruction: Instruction | None = None
    offers: tuple[OfferRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class StagingMark:
    """The working copy at one moment, to come back to."""

    jobs: dict[str, JobRecord]
    batch: Batch
    instructions: list[Instruction]
    next_seq: int
    predictions: dict[str, PredictionRecord]
    secrets: dict[str, Mapping[str, str]] = field(repr=False)


class KnownSpeeds(dict[str, dict[str, SpeedRecord]]):
    """What is known of the speed of some code, by its key and by device type; read from the store when first asked."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        #: By key, after how many prunes of the store it had these speeds: a later one may have removed them.
        self.stored: dict[str, int] = {}

    def may_be_forgotten(self, speed_key: str) -> bool:
        """Whether housekeeping may have removed speeds from the store that are still known here."""
        return self.stored.get(speed_key) != self.store.prunes

    def __missing__(self, speed_key: str) -> dict[str, SpeedRecord]:
        self.stored[speed_key] = self.store.prunes
        known = self[speed_key] = {speed.device_type: speed for speed in self.store.speeds(speed_key)}
        return known


class Staging:
    """Active jobs by id in arrival order, what is known of speeds, and one batch of changes.

    `now_s` is the platform time of the present step: the clock is read once for each.
    """

    def __init__(self, store: Store, now_s: float) -> None:
        self.store = store
        self.now_s = now_s
        self.jobs: dict[str, JobRecord] = {record.id: record for record in store.active_jobs()}
        self.batch = Batch()
        self.instructions: list[Instruction] = []  # those of the batch
        self.secrets: dict[str, Mapping[str, str]] = {}  # of the jobs of the batch; these go into no database
        self.speeds = KnownSpeeds(store)
        self.next_seq = store.next_seq()
        self.predictions = store.last_predictions()
        self.commits = store.count_commits()  # that are known to be stored
        self.turn = 0  # whose prediction is next, where there are too many to look at all at each decision

    def mark(self) -> StagingMark:
        """The working copy as it is, to come back to by `roll_back`; once."""
        changes = self.batch.copy(), list(self.instructions), self.next_seq, dict(self.predictions)
        return StagingMark(dict(self.jobs), *changes, dict(self.secrets))

    def roll_back(self, mark: StagingMark) -> None:
        """Be again as at a mark: what was staged since is gone."""
        self.jobs, self.next_seq, self.predictions = mark.jobs, mark.next_seq, mark.predictions
        self.batch, self.instructions, self.secrets = mark.batch, mark.instructions, mark.secrets
        self.speeds.clear()  # to be read again, from the store and from what is staged
        for speed in self.batch.speeds.values():
            self.put_speed(speed)

    def list_active(self) -> list[JobRecord]:
        """Jobs to which something is still to happen; one that ended stays in `jobs` until the commit."""
        return [record for record in self.jobs.values() if record.active]

    def add(self, record: JobRecord, *events: EventRecord) -> JobRecord:
        """Stage a new job under the next number, with what is known of its speed.

        Housekeeping forgets in the store the speeds of code that no job had until now; they are still known here.
        """
        known = list(self.speeds[record.speed_key].values())
        for speed in known if self.speeds.may_be_forgotten(record.speed_key) else ():
            self.put_speed(speed)
        if record.seq != self.next_seq:
            record = replace(record, seq=self.next_seq)
        self.next_seq += 1
        self.batch.added.add(record.id)
        return self.stage(Effects(record, events))

    def change(self, job_id: str, **fields: Any) -> JobRecord:
        """Stage a change of a job's record alone."""
        return self.stage(Effects(replace(self.jobs[job_id], **fields)))

    def stage(self, effects: Effects) -> JobRecord:
        """Stage what follows for a job; one that has ended leaves the working copy at the next commit."""
        record = effects.record
        self.jobs[record.id] = self.batch.jobs[record.id] = record
        self.batch.events += effects.events
        self.batch.offers.update((offer.id, offer) for offer in effects.offers)
        if effects.instruction is not None:
            self.send(effects.instruction)
        return record

    def send(self, one: Instruction) -> None:
        """Stage an instruction."""
        self.instructions.append(one)
        self.batch.instructions.append(InstructionRecord(one.job, one.generation, one.key, dump_instruction(one)))

    def add_event(self, kind: str, sentence: str, job_id: str | None = None, **data: Any) -> None:
        """Stage an event of now."""
        self.batch.events.append(EventRecord(self.now_s, kind, sentence, job_id, data))

    def put_aside(self, kind: str, job_id: str | None, body: object, error: BaseException) -> None:
        """Stage for the operator what cannot be worked in or stored, in letters that every store takes."""
        told, why = ascii(body)[:MOST_BODY], f"{type(error).__name__}: {error}"
        safe_id = None if job_id is None else ascii(job_id)[1:-1][:200]
        self.batch.quarantine.append(QuarantineRecord(self.now_s, kind, safe_id, ascii(why)[1:-1][:MOST_BODY], told))

    def put_fact(self, name: str, value: Any) -> None:
        """Stage a fact."""
        self.batch.facts[name] = value

    def read_fact(self, name: str) -> Any:
        """A fact, as staged or as stored."""
        staged = self.batch.facts.get(name)
        return self.store.fact(name) if staged is None else staged

    def list_open_offers(self, job_id: str) -> list[OfferRecord]:
        """The open offers of a job, the first one first, as staged or as stored."""
        stored = {offer.id: offer for offer in self.store.offers(job_id)}
        staged = {offer.id: offer for offer in self.batch.offers.values() if offer.job == job_id}
        return [offer for _, offer in sorted({**stored, **staged}.items()) if offer.state == "open"]

    def add_prediction(self, prediction: PredictionRecord) -> None:
        """Stage a prediction, which is now the newest of its job."""
        self.batch.predictions.append(prediction)
        self.predictions[prediction.job] = prediction

    def put_speed(self, speed: SpeedRecord) -> None:
        """Stage what is known of a speed."""
        self.batch.speeds[speed.key] = speed
        speed_key = speed.key.rpartition("@")[0]
        self.speeds[speed_key][speed.device_type] = speed
        self.speeds.stored[speed_key] = self.store.prunes

    def commit(self) -> list[Instruction]:
        """Write everything staged in one transaction; returns the instructions that may now be carried out."""
        if not self.batch:
            return []
        self.batch.facts[COMMITS] = self.commits + 1
        self.store.write(self.batch)
        self.commits += 1
        for job_id in [job_id for job_id in self.batch.jobs if self.jobs[job_id].state in ENDED]:
            del self.jobs[job_id]
            self.predictions.pop(job_id, None)
        instructions, self.batch, self.instructions, self.secrets = self.instructions, Batch(), [], {}
        return instructions
