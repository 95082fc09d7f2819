"""Records as the JSON documents that the API and the command line show. Fields are only ever added.

Instants are RFC 3339 in UTC; every document has `"schema": 1`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from springtide.control.scheduling.machines import node_drains
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.operations import Forecast
from springtide.control.scheduling.sentences import tell_offer
from springtide.control.storage.records import (
    EventRecord,
    JobRecord,
    NoticeRecord,
    OfferRecord,
    ProjectRecord,
    QuarantineRecord,
    UserRecord,
)
from springtide.core.durations import show_instant, show_instants
from springtide.core.job_states import JobState
from springtide.core.moments import tell_moments

SCHEMA = 1
NO_PRICES: Mapping[str, float] = {}


def hide_name(record: JobRecord, user: UserRecord) -> JobRecord:
    """A job as a user may know of it: that it is there, but whose and what only of their own."""
    return record if user.admin or record.owner == user.id else replace(record, id="", name="another user's job")


def show_time(at_s: float | None) -> str | None:
    """An instant as text, or nothing."""
    return None if at_s is None else show_instant(at_s)


def round_s(seconds: float) -> float:
    """Seconds to the millisecond."""
    return round(seconds, 3)


def write_job(
    record: JobRecord, now_s: float, offers: Iterable[OfferRecord] = (), prices: Mapping[str, float] = NO_PRICES
) -> dict[str, Any]:
    """A job, all of it but its secrets (whose values are in no record); `prices` are of its offers, by their ids."""
    told = {"offers": [write_offer(offer, now_s, prices.get(offer.id)) for offer in offers], "rent": None}
    return write_facts(record) | told | write_spans(record, now_s)


def write_array(records: Sequence[JobRecord], now_s: float) -> dict[str, Any]:
    """All jobs of an array."""
    place = next(record.array_place for record in records if record.array_place is not None)
    jobs = [write_job(record, now_s) for record in records]
    return {"schema": SCHEMA, "id": place.id, "name": place.name, "count": place.count, "jobs": jobs}


def write_facts(record: JobRecord) -> dict[str, Any]:
    """What of a job stays the same until its record changes."""
    instants = show_instants(
        submitted_at=record.submitted_s,
        answered_at=record.answered_s,
        answer_by=record.answer_by_s,
        deadline=record.deadline_s,
        predicted_finish=record.predicted_s,
        planned_finish=find_planned(record),
        started_at=record.first_start_s,
        finished_at=record.finished_s,
    )
    return {
        "schema": SCHEMA,
        "id": record.id,
        "name": record.name,
        "user": record.user,
        "state": str(record.state),
        "answer": find_answer(record),
        "reason": record.reason,
        **instants,
        "best_effort": record.deadline_s is None and not (record.waits_for and record.spec.deadline),
        "promised": record.promised,
        "promised_finish": instants["deadline"] if record.promised else None,
        "slack_s": find_slack(record),
        "met": find_met(record),
        "missed": record.missed or None,
        "step": record.step,
        "total_steps": record.total_steps,
        "logical_workers": record.logical_workers,
        "share": 0 if record.state is JobState.PROBING else len(record.devices),
        "devices": list(record.devices),
        "rescales": record.rescales,
        "faults": record.faults,
        "pause_s": round_s(record.pause_s),
        "lost_steps": record.lost_steps,
        "exit_code": record.exit_code,
        "weights_sha256": record.weights or None,
        "code_hash": record.archive,
        "project": record.project or None,
        "labels": record.spec.labels,
        "waits_for": [{"id": one.id, "name": one.name, "end": str(one.end)} for one in record.waits_for],
        "array": None if record.array_place is None else asdict(record.array_place),
        "inputs": record.inputs,
        "spec": record.spec.document,
    }


def write_spans(record: JobRecord, now_s: float) -> dict[str, Any]:
    """What of a job is another at every moment."""
    return {
        "sentence": tell_moments(record.sentence, now_s),
        "conditions": [
            {
                "kind": one.kind,
                "reason": one.reason,
                "sentence": tell_moments(one.sentence, now_s),
                "since": show_time(one.since_s),
            }
            for one in record.conditions
        ],
        "deadline_in_s": None if record.deadline_s is None else round_s(record.deadline_s - now_s),
        "predicted_finish_in_s": None if record.predicted_s is None else round_s(record.predicted_s - now_s),
        "device_s": round_s(find_served(record, now_s)),
        "cost_usd": find_cost(record, now_s),
        "expected_cost_usd": expect_cost(record, now_s),
        "plan": [] if record.finished_s is not None else write_plan(record.plan.segments if record.plan else (), now_s),
    }


def find_planned(record: JobRecord) -> float | None:
    """When the plan behind a promise ends, at the speeds that it counts on; None without one."""
    plan = record.plan if record.finished_s is None else None
    return None if plan is None or plan.finish_s == inf else plan.finish_s


def find_answer(record: JobRecord) -> str:
    """What the job was told: admitted, waitlisted, declined, or that it is being probed."""
    if record.state in (JobState.OFFERED, JobState.DECLINED):
        return "declined"
    return str(record.state) if record.state in (JobState.PROBING, JobState.WAITLISTED) else "admitted"


def find_slack(record: JobRecord) -> float | None:
    """Seconds between the expected or actual end and the deadline."""
    end_s = record.finished_s if record.finished_s is not None else record.predicted_s
    return None if end_s is None or record.deadline_s is None else round_s(record.deadline_s - end_s)


def find_met(record: JobRecord) -> bool | None:
    """Whether a promise was kept; None while that is open, or where nothing was promised."""
    if not record.promised:
        return None
    if record.missed:
        return False
    return True if record.state is JobState.SUCCEEDED else None


def find_served(record: JobRecord, now_s: float) -> float:
    """Device-seconds used up to now."""
    return record.served + (len(record.devices) * (now_s - record.settled_s) if record.devices else 0.0)


def find_cost(record: JobRecord, now_s: float) -> float | None:
    """Dollars that its devices have cost up to now; None where nothing had a price."""
    if record.hourly_usd is None and not record.cost_usd:
        return None
    running = (record.hourly_usd or 0.0) * (now_s - record.settled_s) / 3600.0 if record.devices else 0.0
    return round(record.cost_usd + (0.0 if record.state is JobState.PROBING else running), 6)


def expect_cost(record: JobRecord, now_s: float) -> float | None:
    """Dollars it will have cost if it ends when expected, on the devices it holds; None while that is not known."""
    cost_usd = find_cost(record, now_s)
    if cost_usd is None or record.predicted_s is None or not record.devices or record.state is JobState.PROBING:
        return None
    return round(cost_usd + (record.hourly_usd or 0.0) * max(0.0, record.predicted_s - now_s) / 3600.0, 6)


def write_plan(segments: Sequence[tuple[float, int]], now_s: float) -> list[dict[str, Any]]:
    """The plan behind a promise: shares from instants on."""
    return [
        {"from": show_instant(start_s), "from_in_s": round_s(start_s - now_s), "share": share}
        for start_s, share in segments
    ]


def write_offer(offer: OfferRecord, now_s: float, cost_usd: float | None = None) -> dict[str, Any]:
    """An offer, and the least that taking it would cost."""
    return {
        "id": offer.id,
        "kind": offer.kind,
        "state": offer.state,
        "deadline": show_time(offer.deadline_s),
        "deadline_in_s": round_s(offer.deadline_s - now_s),
        "steps": offer.steps,
        "expires_at": show_time(offer.expires_s),
        "reserved": offer.reserved,
        "sentence": tell_moments(tell_offer(offer), now_s),
        "cost_usd": None if cost_usd is None else round(cost_usd, 4),
    }


def write_event(event: EventRecord, now_s: float, reader: str | None = None) -> dict[str, Any]:
    """An event as it reads now; a job of other users than the reader's (None: an admin) is not named."""
    data = event.data | ({"why": tell_moments(event.data["why"], now_s)} if "why" in event.data else {})
    if reader is not None and data.get("other_user", reader) != reader:
        data = {name: value for name, value in data.items() if not name.startswith("other")}
    return {
        "seq": event.seq,
        "at": show_time(event.at_s),
        "at_s": round_s(event.at_s),
        "kind": event.kind,
        "job": event.job,
        "sentence": tell_moments(event.sentence, now_s),
        "data": data,
    }


def write_forecast(forecast: Forecast, now_s: float) -> dict[str, Any]:
    """What `plan` says."""
    return {
        "schema": SCHEMA,
        "answer": forecast.state,
        "reason": forecast.reason,
        "sentence": tell_moments(forecast.sentence, now_s),
        "promised": forecast.promised,
        "deadline": show_time(forecast.deadline_s),
        "predicted_finish": show_time(forecast.finish_s),
        "predicted_finish_in_s": None if forecast.finish_s is None else round_s(forecast.finish_s - now_s),
        "total_steps": forecast.total_steps,
        "cost_usd": None if forecast.cost_usd is None else round(forecast.cost_usd, 4),
        "shares": [
            {
                "share": share,
                "steps_per_s": round(fast, 4),
                "planned_steps_per_s": round(slow, 4),
                "alone_s": round_s(s),
            }
            for share, fast, slow, s in forecast.shares
        ],
        "plan": write_plan(forecast.plan, now_s),
        "offers": [
            {
                "kind": offer.kind,
                "deadline": show_time(offer.deadline_s),
                "deadline_in_s": round_s(offer.deadline_s - now_s),
                "steps": offer.steps,
                "cost_usd": None if cost_usd is None else round(cost_usd, 4),
            }
            for offer, cost_usd in zip(forecast.offers, forecast.offer_costs, strict=True)
        ],
    }


def write_quarantine(one: QuarantineRecord) -> dict[str, Any]:
    """Something that was put aside."""
    told = {"kind": one.kind, "job": one.job, "error": one.error, "body": one.body}
    return {"seq": one.seq, "at": show_time(one.at_s), **told}


def write_user(user: UserRecord) -> dict[str, Any]:
    """A user, without the token."""
    return {
        "id": user.id,
        "name": user.name,
        "admin": user.admin,
        "quota_device_s": user.quota_device_s,
        "most_active": user.most_active,
        "run_as": user.run_as,
        "project": user.project or None,
    }


def write_project(project: ProjectRecord) -> dict[str, Any]:
    """A group of users and its limits."""
    return {"name": project.name, "quota_device_s": project.quota_device_s, "most_active": project.most_active}


def write_notice(notice: NoticeRecord) -> dict[str, Any]:
    """Something told, or to be told."""
    told = {"state": notice.state, "tries": notice.tries, "problem": notice.said or None}
    return {"seq": notice.seq, "at": show_time(notice.at_s), "event": notice.body["event"], "way": notice.way, **told}


def write_devices(
    inventory: Inventory, drains: Mapping[str, node_drains.Drain], holders: Mapping[str, JobRecord]
) -> Iterator[dict[str, Any]]:
    """Every device with its node, whether that takes work, and who holds it."""
    for label, node, device_type in zip(inventory.nodes, inventory.names, inventory.types, strict=True):
        drain = drains.get(label)
        for name in node:
            holder = holders.get(name)
            yield {
                "name": name,
                "node": label,
                "state": node_drains.describe_node(drain),
                "state_since_s": None if drain is None else drain.since_s,
                "leave_by_s": None if drain is None else drain.until_s,
                "leaving": 0 if drain is None else len(drain.jobs),
                "type": device_type,
                "slowdown": round(inventory.find_slowest([name]), 2),
                "job": None if holder is None else holder.id or None,
                "job_name": None if holder is None else holder.name,
            }


def write_list(name: str, items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A list under its name."""
    return {"schema": SCHEMA, name: [dict(item) for item in items]}
