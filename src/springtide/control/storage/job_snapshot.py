"""The jobs that people look at, in memory as they were last stored: every active one, and the newest of the others.

It hears of every commit before the request behind it is answered, so whoever was answered reads what they were told.
What reaches further back than memory does is read from the store.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from springtide.control.storage.records import JobRecord
from springtide.control.storage.store import Store
from springtide.core.job_states import ACTIVE, JobState

MOST_KEPT = 2000  # jobs of every state; active ones are kept beyond it


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs: of these states (all if there are none), of one owner, of users of one name, before a number."""

    states: frozenset[JobState] = frozenset()
    owner: str | None = None
    limit: int | None = None
    before: int | None = None
    user: str | None = None
    #: Whether jobs are left out that are only measured, for a plan.
    without_probes: bool = False

    def takes(self, record: JobRecord) -> bool:
        """Whether a job is one of those asked for."""
        return (
            (not self.states or record.state in self.states)
            and self.owner in (None, record.owner)
            and self.user in (None, record.user)
            and (self.before is None or record.seq < self.before)
            and not (self.without_probes and record.measure_only)
        )

    @property
    def only_active(self) -> bool:
        """Whether no job that has ended is asked for."""
        return bool(self.states) and self.states <= ACTIVE


class JobSnapshot:
    """Jobs by id, the oldest first. Safe to use from several threads: one writes, the others read copies."""

    def __init__(self, store: Store, most: int = MOST_KEPT) -> None:
        self.store = store
        self.most = most
        self.lock = threading.Lock()
        self.records: dict[str, JobRecord] = {}
        self.floor = 0  # every job of this number or a higher one is here
        self.changes = 0
        self.prunes = -1
        with self.lock:
            self.load()
        store.listeners.append(self.hear)

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever something may have changed."""
        return self.changes, self.store.prunes

    def load(self) -> None:
        """Read everything anew."""
        self.prunes = self.store.prunes
        newest = self.store.list_jobs(limit=self.most)
        self.floor = newest[-1].seq if len(newest) == self.most else 0
        older = [record for record in self.store.active_jobs() if record.seq < self.floor]
        self.records = {record.id: record for record in (*older, *reversed(newest))}

    def hear(self, jobs: Mapping[str, JobRecord]) -> None:
        """Take in jobs that were just stored."""
        with self.lock:
            last = next(reversed(self.records.values())).seq if self.records else 0
            new = [record for record in jobs.values() if record.id not in self.records]
            self.records.update(jobs)
            self.changes += 1
            in_order = all(one.seq < two.seq for one, two in pairwise(new))
            if (new and (new[0].seq <= last or not in_order)) or len(self.records) > 2 * self.most:
                self.load()

    def copy(self) -> tuple[tuple[JobRecord, ...], int]:
        """Every job that is here, the oldest first, and the number from which on none is missing."""
        with self.lock:
            self.refresh()
            return tuple(self.records.values()), self.floor

    def refresh(self) -> None:
        """Read everything anew if jobs were forgotten since."""
        if self.prunes != self.store.prunes:
            self.load()

    def list_jobs(self, query: JobQuery) -> list[JobRecord]:
        """The jobs asked for, newest first."""
        records, floor = self.copy()
        found: list[JobRecord] = []
        for record in reversed(records):
            if len(found) == query.limit or (record.seq < floor and not query.only_active):
                break
            if query.takes(record):
                found.append(record)
        if len(found) == query.limit or query.only_active or floor == 0:
            return found
        return self.store.list_jobs(
            query.states, query.owner, query.limit, query.before, query.user, query.without_probes
        )

    def find_jobs(self, text: str, owner: str | None = None) -> list[JobRecord]:
        """The job of an id, or else those that a text stands for."""
        with self.lock:
            self.refresh()
            record = self.records.get(text)
        if record is not None and owner in (None, record.owner):
            return [record]
        return self.store.find_jobs(text, owner)
