"""Who held which devices when, and what befell whom: made of the events, and kept up with them as they are stored.

What a chart of the past needs of thousands of jobs, at the cost of what is new since it was last asked.
"""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from springtide.control.storage.job_snapshot import JobSnapshot
from springtide.control.storage.records import EventRecord, JobRecord, PredictionRecord
from springtide.control.storage.store import Store

MOST_EVENTS = 50_000  # read when it is first asked: older ones are out of every chart
PAGE = 1000
PREDICTIONS_S = 3.0
MOST_CHANGES = 400  # of one job; the oldest go
GIVEN = frozenset({"placed", "grows", "shrinks", "moves", "probing"})
TAKEN = frozenset(
    {"suspended", "stopped", "probed", "probe_failed", "paused", "succeeded", "failed", "cancelled", "declined"}
)
#: What is worth a mark in a chart.
MARKED = frozenset({"grows", "shrinks", "moves", "suspended", "faulted", "lost", "at_risk", "safe", "missed"})


@dataclass(slots=True)
class Track:
    """One job's past: (instant, devices from then on), and (instant, what happened)."""

    holdings: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)

    def note(self, event: EventRecord) -> None:
        """Take in an event of this job."""
        if event.kind in GIVEN or event.kind in TAKEN:
            given = tuple(event.data.get("devices", ())) if event.kind in GIVEN else ()
            if not self.holdings or self.holdings[-1][1] != given:
                self.holdings = [*self.holdings[-MOST_CHANGES:], (event.at_s, given)]
        if event.kind in MARKED:
            self.marks = [*self.marks[-MOST_CHANGES:], (event.at_s, event.kind)]

    def spans(self, since_s: float, now_s: float) -> Iterator[tuple[float, float, tuple[str, ...]]]:
        """From when to when it held which devices, from an instant on."""
        for (start_s, devices), (end_s, _) in pairwise([*self.holdings, (now_s, ())]):
            if devices and end_s > since_s:
                yield max(start_s, since_s), end_s, devices

    def shares(self, since_s: float) -> list[tuple[float, int]]:
        """(instant, number of devices from then on), from an instant on; the first says what it held then."""
        before = [(since_s, len(devices)) for at_s, devices in self.holdings if at_s <= since_s][-1:]
        return [*before, *((at_s, len(devices)) for at_s, devices in self.holdings if at_s > since_s)]


class Histories:
    """The tracks of all jobs, by id; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tracks: dict[str, Track] = {}
        self._last: int | None = None
        self._prunes = store.prunes
        #: The instant of the oldest event that was read: nothing is known of who held what before.
        self.first_s: float | None = None
        self._lock = threading.Lock()

    def read(self) -> dict[str, Track]:
        """The tracks as of now."""
        with self._lock:
            if self._last is None:
                self._take_in(self.store.last_events(MOST_EVENTS)[::-1])
            if self._prunes != self.store.prunes:
                self._prunes = self.store.prunes
                self._forget(self.store.list_ids())
            while page := self.store.events(None, self._last or 0, PAGE):
                self._take_in(page)
        return self._tracks

    def _forget(self, known: Collection[str]) -> None:
        """Keep only the tracks of jobs that are known; who reads the old ones goes on with them."""
        self._tracks = {job_id: track for job_id, track in self._tracks.items() if job_id in known}

    def _take_in(self, events: list[EventRecord]) -> None:
        if events and self.first_s is None:
            self.first_s = events[0].at_s
        for event in events:
            if event.job is not None:
                self._tracks.setdefault(event.job, Track()).note(event)
        self._last = events[-1].seq if events else self._last or 0


class RecentJobs:
    """The jobs that go on and those that ended lately, from memory, and what was last predicted of them."""

    def __init__(self, store: Store, snapshot: JobSnapshot) -> None:
        self.store = store
        self.snapshot = snapshot
        self._predictions: dict[str, PredictionRecord] = {}
        self._predicted_s = 0.0

    def read(self, since_s: float, limit: int) -> tuple[list[JobRecord], list[JobRecord]]:
        """The jobs that go on in the order of their arrival, and those that ended since an instant, the last first."""
        records, _ = self.snapshot.copy()
        active = [record for record in records if record.active]
        ended = [record for record in records if not record.active and (record.finished_s or 0.0) >= since_s]
        ended = [record for record in ended if not record.measure_only]  # of a plan, which leaves nothing to look at
        return active, sorted(ended, key=lambda record: -(record.finished_s or 0.0))[:limit]

    def read_predictions(self) -> Mapping[str, PredictionRecord]:
        """The newest prediction of each job that goes on; a few seconds old at most."""
        if time.monotonic() - self._predicted_s > PREDICTIONS_S:
            self._predictions, self._predicted_s = self.store.last_predictions(), time.monotonic()
        return self._predictions
