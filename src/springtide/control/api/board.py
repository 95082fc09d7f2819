"""The board: every job on one axis of time, past and planned, who holds which device, and how the promises stand.

One document instead of a request per job. Its instants are seconds since 1970 (`_s`), because charts compute with them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from springtide.control.api import documents
from springtide.control.api.board_sources import BoardSources
from springtide.control.api.device_lanes import sum_held, write_lanes
from springtide.control.scheduling.live_world import read_promise
from springtide.control.scheduling.sentences import name_node
from springtide.control.storage.records import JobRecord, OfferRecord
from springtide.core.durations import show_span
from springtide.core.job_states import JobState
from springtide.core.moments import tell_moments
from springtide.core.shared_types import Document
from springtide.core.timelines import leave_free

NAMED_RISKS = 2  # that the sentence names
MOST_HELPS = 4


class JobGroup(StrEnum):
    """What a job needs of its reader, in the order in which the groups are shown."""

    AT_RISK = "at_risk"  # an open promise in danger
    PROMISED = "promised"
    OFFERED = "offered"  # declined, with an offer that can be taken
    WAITING = "waiting"  # for an answer, for a probe, or to be resumed
    BEST_EFFORT = "best_effort"  # nothing is promised to it, or no longer
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the jobs are shown: a group, words in their names, one owner, those on devices, and a page."""

    group: JobGroup | None = None
    find: str = ""
    owner: str = ""
    offset: int = 0
    limit: int = 100
    lanes: bool = True
    held: bool = False

    def takes(self, record: JobRecord) -> bool:
        """Whether a job is one of them, whatever its group."""
        wanted = self.find.lower()
        if (self.owner and record.user != self.owner) or (self.held and not record.devices):
            return False
        return not wanted or wanted in record.name.lower() or record.id.startswith(wanted)


def write_board(sources: BoardSources, choice: Choice) -> Document:
    """The document."""
    now_s = sources.now_s
    found = [(find_group(record), record) for record in sources.visible if choice.takes(record)]
    chosen = [(group, one) for group, one in found if choice.group is None or group is choice.group]
    chosen.sort(key=lambda pair: sort_key(*pair))
    total = len(sources.inventory.types_by_name)
    span_s = max(1e-9, now_s - sources.counted_s)
    return {
        "schema": documents.SCHEMA,
        "now_s": documents.round_s(now_s),
        "since_s": documents.round_s(sources.since_s),
        "sentence": tell_board(sources),
        "helps": find_helps(sources),
        "promises": count_promises(sources),
        "devices": {
            "total": total,
            "held": sum(len(record.devices) for record in sources.active),
            "used": round(sum_held(sources.tracks.values(), sources.counted_s, now_s) / (span_s * max(1, total)), 4),
            "used_since_s": documents.round_s(sources.counted_s),
            "usd_per_h": find_rent(sources),
            **count_lent(sources),
        },
        "groups": {str(group): sum(one is group for one, _ in found) for group in JobGroup},
        "count": len(chosen),
        "owners": sorted({record.user for record in sources.visible}),
        "jobs": [
            write_row(group, record, sources) for group, record in chosen[choice.offset : choice.offset + choice.limit]
        ],
        "lanes": write_lanes(sources, sources.since_s) if choice.lanes else [],
        "planned": write_load(sources),
    }


def find_rent(sources: BoardSources) -> float | None:
    """Dollars per hour of all devices that are held now, whoever's they are; None where nothing has a price."""
    if sources.prices.is_empty:
        return None
    types = sources.inventory.types_by_name
    held = (sources.prices.find(types.get(name, "")) for record in sources.active for name in record.devices)
    return round(sum(held), 4)


def count_lent(sources: BoardSources) -> Document:
    """Devices that jobs without a promise hold now, and device-hours they have had; whoever's they are."""
    best_effort = [record.id for record in (*sources.active, *sources.ended) if not record.promised]
    tracks = [sources.tracks[id] for id in best_effort if id in sources.tracks]
    return {
        "lent": sum(len(record.devices) for record in sources.active if not record.promised),
        "lent_h": round(sum_held(tracks, sources.counted_s, sources.now_s) / 3600.0, 3),
    }


def find_group(record: JobRecord) -> JobGroup:
    """Where a job belongs on the board."""
    if not record.active:
        return JobGroup.ENDED
    if is_at_risk(record):
        return JobGroup.AT_RISK
    if record.state is JobState.OFFERED:
        return JobGroup.OFFERED
    if record.state in (JobState.PROBING, JobState.WAITLISTED, JobState.PAUSED):
        return JobGroup.WAITING
    return JobGroup.PROMISED if record.promised and not record.missed else JobGroup.BEST_EFFORT


def sort_key(group: JobGroup, record: JobRecord) -> tuple[int, float, int]:
    """Groups in their order; in each the most urgent first, of those that ended the last one."""
    if group is JobGroup.ENDED:
        urgency_s = -(record.finished_s or 0.0)
    elif group is JobGroup.WAITING:
        urgency_s = record.answer_by_s or inf
    elif group is JobGroup.BEST_EFFORT:
        urgency_s = 0.0 if record.devices else 1.0
    else:
        urgency_s = record.deadline_s or inf
    return list(JobGroup).index(group), urgency_s, record.seq


def write_row(group: JobGroup, record: JobRecord, sources: BoardSources) -> Document:
    """One job: what was asked and answered, its past, its plan."""
    prediction = sources.predictions.get(record.id)
    track = sources.tracks.get(record.id)
    plan = record.plan if record.active else None
    return {
        "id": record.id,
        "name": record.name,
        "user": record.user,
        "group": str(group),
        "state": str(record.state),
        "sentence": tell_moments(record.sentence, sources.now_s),
        "promised": record.promised,
        "met": documents.find_met(record),
        "conditions": [one.kind for one in record.conditions],
        "submitted_s": record.submitted_s,
        "started_s": record.first_start_s,
        "finished_s": record.finished_s,
        "deadline_s": record.deadline_s,
        "predicted_s": record.predicted_s,
        "late_s": prediction.late_s if prediction is not None and record.predicted_s is not None else None,
        "slack_s": documents.find_slack(record),
        "answer_by_s": record.answer_by_s if record.state is JobState.WAITLISTED else None,
        "share": len(record.devices),
        "step": record.step,
        "total_steps": record.total_steps,
        "shares": [] if track is None else track.shares(sources.since_s),
        "marks": [] if track is None else [mark for mark in track.marks if mark[0] >= sources.since_s],
        "plan": [] if plan is None else [*plan.segments],
        "plan_end_s": documents.find_planned(record),
        "offers": [
            write_open_offer(offer, sources.offer_prices.get(offer.id))
            for offer in sources.offers.get(record.id, ())
            if offer.state == "open"
        ],
    }


def write_open_offer(offer: OfferRecord, cost_usd: float | None) -> Document:
    """An offer that can be taken, and the least that it would cost."""
    return {
        "id": offer.id,
        "kind": offer.kind,
        "deadline_s": offer.deadline_s,
        "expires_s": offer.expires_s,
        "steps": offer.steps,
        "cost_usd": None if cost_usd is None else round(cost_usd, 4),
    }


def is_at_risk(record: JobRecord) -> bool:
    """Whether an open promise is in danger."""
    open_promise = record.active and record.promised and not record.missed
    return open_promise and (record.endangered or record.condition("at_risk") is not None)


def list_promises(sources: BoardSources) -> list[JobRecord]:
    """The reader's promises that are open."""
    return [one for one in sources.visible if one.active and one.promised and not one.missed]


def count_promises(sources: BoardSources) -> Document:
    """How the promises stand: those that are open, and what became of the others."""
    promises = list_promises(sources)
    at_risk = sum(is_at_risk(record) for record in promises)
    counts = {"open": len(promises), "safe": len(promises) - at_risk, "at_risk": at_risk}
    return counts | {"kept": sources.kept, "missed": sources.missed}


def tell_board(sources: BoardSources) -> str:
    """How the promises stand, in one sentence: what an owner wants to know first."""
    promises = list_promises(sources)
    risky = [record for record in promises if is_at_risk(record)]
    waiting = sum(record.state in (JobState.WAITLISTED, JobState.PROBING) for record in sources.visible)
    if not promises:
        running = sum(bool(record.devices) for record in sources.visible)
        best = f"; {count(running, 'job')} without a promise on devices now" if running else ""
        later = f"; {count(waiting, 'job')} waiting for an answer" if waiting else ""
        return f"No open promises{best}{later}."
    told = f"{count(len(promises), 'promise')}: "
    later = f"; {count(waiting, 'job')} waiting for an answer" if waiting else ""
    if not risky:
        return told + ("all safe" if len(promises) > 1 else "safe") + later + "."
    named = ", ".join(tell_risk(record) for record in risky[:NAMED_RISKS])
    more = f" and {len(risky) - NAMED_RISKS} more" if len(risky) > NAMED_RISKS else ""
    told += f"{len(promises) - len(risky)} safe, {len(risky)} at risk: {named}{more}"
    return told + tell_unless(sources) + later + "."


def tell_risk(record: JobRecord) -> str:
    """A promise in danger, and by how much."""
    if record.predicted_s is None or record.deadline_s is None:
        return f"{record.name} may not end in time"
    late_s = record.predicted_s - record.deadline_s
    told = f"ends {show_span(late_s)} late" if late_s > 0 else "has lost the devices of its plan"
    return f"{record.name} {told}"


def tell_unless(sources: BoardSources) -> str:
    """What would save it."""
    away = [node for node, state in sources.node_states.items() if state != "ready"]
    if away:
        return f" unless {', '.join(map(name_node, away))} return{'s' * (len(away) == 1)}"
    lent = sum(len(record.devices) for record in sources.active if not record.promised)
    return f" unless it gets some of the {count(lent, 'device')} of jobs without a promise" if lent else ""


def find_helps(sources: BoardSources) -> list[Document]:
    """What the reader could do now: bring a node back, take an offer, end a job that nothing is promised."""
    helps: list[Document] = []
    risky = any(is_at_risk(record) for record in sources.visible)
    for node, state in sources.node_states.items():
        if sources.is_admin and state in ("drained", "draining") and (risky or state == "drained"):
            helps.append({"kind": "undrain", "node": node, "sentence": f"Let {node} take work again"})
    for record in sources.visible:
        for offer in [one for one in sources.offers.get(record.id, ()) if one.state == "open"][:1]:
            cost_usd = sources.offer_prices.get(offer.id)
            price = "" if cost_usd is None else f", for at least ${cost_usd:,.2f}"
            sentence = f"Take the offer for {record.name}: {tell_terms(offer, sources.now_s)}{price}"
            helps.append({"kind": "accept", "job": record.id, "offer": offer.id, "sentence": sentence})
        if risky and record.devices and not record.promised:
            sentence = f"Cancel {record.name}, which holds {count(len(record.devices), 'device')} without a promise"
            helps.append({"kind": "cancel", "job": record.id, "sentence": sentence})
    return helps[:MOST_HELPS]


def tell_terms(offer: OfferRecord, now_s: float) -> str:
    """What an offer grants, in a few words."""
    if offer.kind == "deadline":
        return f"all of it, {show_span(max(0.0, offer.deadline_s - now_s))} from now"
    return f"{offer.steps} steps by its deadline"


def write_load(sources: BoardSources) -> list[tuple[float, int]]:
    """(instant, devices that the plans of all promises hold from then on), whoever's they are."""
    total = len(sources.inventory.types_by_name)
    promises = [
        read_promise(record.plan, record.deadline_s)
        for record in sources.active
        if record.plan is not None and record.deadline_s is not None
    ]
    left = leave_free((promise.plan for promise in promises), total, sources.now_s)
    return [(stretch.start_s, total - stretch.devices) for stretch in left.walk()]


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def group_offers(offers: Iterable[OfferRecord]) -> dict[str, list[OfferRecord]]:
    """Offers by the job they are for."""
    found: dict[str, list[OfferRecord]] = {}
    for offer in offers:
        found.setdefault(offer.job, []).append(offer)
    return found
