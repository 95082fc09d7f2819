"""All that a board is made of, gathered at one instant for one reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from springtide.control.api.histories import Track
from springtide.control.prices import PriceTable
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.storage.records import JobRecord, OfferRecord, PredictionRecord


@dataclass(frozen=True, slots=True)
class BoardSources:
    """All that a board is made of: jobs (the reader may know some of them), their past, and the devices."""

    now_s: float
    since_s: float
    #: From when on it is known who held what: the first event, or the start of this server.
    known_s: float
    active: Sequence[JobRecord]
    ended: Sequence[JobRecord]
    #: The ids of the jobs that the reader may see.
    seen: frozenset[str]
    is_admin: bool
    tracks: Mapping[str, Track]
    predictions: Mapping[str, PredictionRecord]
    offers: Mapping[str, Sequence[OfferRecord]]
    inventory: Inventory
    node_states: Mapping[str, str]
    #: Since when nodes take no work that take none.
    away_since: Mapping[str, float]
    prices: PriceTable
    kept: int
    missed: int
    #: The least that an open offer would cost, by its id; none where nothing has a price.
    offer_prices: Mapping[str, float]

    @property
    def counted_s(self) -> float:
        """From when on the use of devices is counted: not before anything is known."""
        return min(self.now_s, max(self.since_s, self.known_s))

    @property
    def visible(self) -> list[JobRecord]:
        """The reader's jobs: those that go on, then those that ended."""
        return [record for record in (*self.active, *self.ended) if record.id in self.seen]
