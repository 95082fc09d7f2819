"""`why`: one sentence on where a job stands, a reason code, and what can be done about it.

Reads records and events only; the same precedence always: ended, conditions, answer, waiting, running.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from springtide.control.scheduling.live_jobs import MIXING, UNCOUNTED, list_device_types
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.sentences import tell_missed, tell_offer
from springtide.control.scheduling.waiting import HELD
from springtide.control.storage.records import EventRecord, JobRecord, OfferRecord
from springtide.core.durations import show_instant, show_span
from springtide.core.job_states import JobState
from springtide.core.moments import tell_moments


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason code, a sentence, what to do next (if anything), and the facts behind it."""

    reason: str
    sentence: str
    remedy: str = ""
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpareDevices:
    """The devices that take work and that nobody holds now, and how many a job needs at least."""

    free: int = 0
    least: int = 1


ALL_TAKEN = SpareDevices()
MISSED = "missed"
LATER = "submit it with a later deadline, or without one"
#: What to do where another deadline would not help.
REMEDIES = {
    "exceeds_cluster": "ask for fewer devices",
    "no_such_device": "leave device_types out, or name those that `springtide nodes` lists",
    "unknown_duration": "add duration:, or leave the deadline out",
    "budget_too_small": "submit it with a larger budget, or with no more steps than it pays for",
    "quota_exceeded": "wait for your other jobs to end, submit it with fewer steps, or ask an admin for more",
}


def explain(
    record: JobRecord,
    offers: list[OfferRecord],
    events: list[EventRecord],
    others: list[JobRecord],
    now_s: float,
    ref: str = "",
    spare: SpareDevices = ALL_TAKEN,
) -> Explanation:
    """Why a job is where it is, as it reads now. `others` are the active jobs beside it, `spare` what they leave.

    `ref` is what commands are to name it by, where that is not its name.
    """
    told = find_explanation(record, offers, events, others, now_s, ref or record.name, spare)
    facts = tuple(tell_moments(fact, now_s) for fact in told.facts)
    return replace(told, sentence=tell_moments(told.sentence, now_s), facts=facts)


def find_explanation(
    record: JobRecord,
    offers: list[OfferRecord],
    events: list[EventRecord],
    others: list[JobRecord],
    now_s: float,
    ref: str,
    spare: SpareDevices,
) -> Explanation:
    """Why a job is where it is, instants as they are kept."""
    if record.state in (JobState.OFFERED, JobState.DECLINED):
        return explain_decline(record, offers, now_s, ref)
    if not record.active:
        return explain_end(record, events, now_s, ref)
    if record.state is JobState.PAUSED:
        verb = "release" if record.reason == HELD else "resume"
        return Explanation(record.reason, f"it is paused: {record.sentence}", f"springtide {verb} {ref}")
    for kind in ("stalled", "at_risk", "recovering", "checkpoint_failing", "lagging", "inputs_changed", "rescaling"):
        condition = record.condition(kind)
        if condition is not None:
            facts = tell_facts(record, events, now_s)
            return Explanation(kind, condition.sentence, tell_remedy(kind, ref), facts)
    if record.state is JobState.PROBING:
        where = f"on {', '.join(record.devices)}" if record.devices else "as soon as a device is free"
        return Explanation("unknown_speed", f"nobody has measured this code yet; a probe of at most 15 s runs {where}")
    if record.state is JobState.WAITLISTED:
        remedy = "nothing to do: the answer will come by itself"
        if record.waits_for:
            remedy = f"see what it waits for: springtide why {record.waits_for[0].name}"
        return Explanation(record.reason, record.sentence, remedy)
    if not record.devices:
        return explain_waiting(record, others, now_s, spare)
    return explain_running(record, events, now_s)


def explain_decline(record: JobRecord, offers: list[OfferRecord], now_s: float, ref: str) -> Explanation:
    """Why a job was not taken, and what would be."""
    open_offers = [offer for offer in offers if offer.state == "open" and offer.expires_s > now_s]
    facts = tuple(f"offer {offer.id}: {tell_offer(offer)}" for offer in open_offers)
    remedy = f"springtide accept {ref}" if open_offers else REMEDIES.get(record.reason, LATER)
    return Explanation(record.reason, f"it was declined: {record.sentence}", remedy, facts)


def explain_end(record: JobRecord, events: list[EventRecord], now_s: float, ref: str) -> Explanation:
    """How a job ended."""
    # of a gang nothing is saved, and before the first step there is nothing to save
    from_there = "go on from its last checkpoint" if record.spec.elastic and record.step else "start it again"
    goes_on = f"{from_there} with: springtide resume {ref}"
    remedies = {
        JobState.FAILED: goes_on
        if record.reason == "max_runtime"
        else f"read its last lines with: springtide logs {ref}",
        JobState.CANCELLED: goes_on,
    }
    is_done = record.state is JobState.SUCCEEDED
    sentence = (
        f"it was {record.sentence}" if record.state is JobState.CANCELLED else f"it {record.state}: {record.sentence}"
    )
    if is_done and record.promised and record.deadline_s is not None and record.finished_s is not None:
        early_s = record.deadline_s - record.finished_s
        sentence += f"; {show_span(abs(early_s))} {'before' if early_s >= 0 else 'after'} its deadline"
    remedy = "" if record.measure_only and record.state is JobState.CANCELLED else remedies.get(record.state, "")
    return Explanation(record.reason, sentence, remedy, tell_facts(record, events, now_s))


def explain_waiting(
    record: JobRecord, others: list[JobRecord], now_s: float, spare: SpareDevices = ALL_TAKEN
) -> Explanation:
    """Why an admitted job holds no devices now."""
    holders = [other for other in others if other.devices and other.id != record.id]
    held = ", ".join(f"{other.name} ({len(other.devices)})" for other in holders[:5]) or "no one"
    facts = (f"devices are held by: {held}",)
    if record.promised and record.plan is not None:
        start_s = next((start_s for start_s, share in record.plan.segments if share > 0), now_s)
        when = f"in {show_span(start_s - now_s)}" if start_s > now_s else "now"
        sentence = f"its plan starts {when} and still ends by {show_instant(record.deadline_s or 0.0)}"
        return Explanation("planned_later", sentence, "", facts)
    yields = any(other.promised for other in holders)
    taken = tell_taken(spare, yields)
    if record.missed:
        return Explanation(MISSED, f"{tell_missed(record.missed)}, and {taken}", "", facts)
    if record.deadline_s is not None:
        return Explanation("no_spare_device", f"nothing is promised to it, and {taken}", "", facts)
    sentence = f"it is best effort, and {taken}"
    return Explanation("no_spare_device", sentence, "give it a deadline to get a promise" if yields else "", facts)


def count_spare(record: JobRecord, active: Iterable[JobRecord], inventory: Inventory) -> SpareDevices:
    """The devices that nobody of all active jobs holds and a job may have at once, and how many it needs at least."""
    held = {name for one in active for name in one.devices}
    allowed, usable = list_device_types(record, inventory), [name for names in inventory.usable for name in names]
    free = inventory.count_types(name for name in usable if name not in held)
    counts = [free.get(device_type, 0) for device_type in allowed]
    can_mix = record.spec.elastic and record.spec.determinism == MIXING
    shares = record.spec.shares(record.logical_workers or UNCOUNTED, len(usable))
    return SpareDevices(sum(counts) if can_mix else max(counts, default=0), min(shares, default=1))


def tell_taken(spare: SpareDevices, yields: bool) -> str:
    """Why a job that nothing is promised gets no device: all are taken, too few are free, or not for it."""
    before = f"{'a promise or ' if yields else ''}a job that goes before it"
    if not spare.free:
        return f"every device serves {before} now"
    free = "1 device is" if spare.free == 1 else f"{spare.free} devices are"
    if spare.free < spare.least:
        return f"it needs {spare.least} devices at least; {free} free now"
    return f"{free} free now, but kept for {before}"


def explain_running(record: JobRecord, events: list[EventRecord], now_s: float) -> Explanation:
    """How a running job is doing."""
    count = len(record.devices)
    sentence = f"it runs on {count} device{'s' if count != 1 else ''}"
    if record.total_steps:
        sentence += f", step {record.step} of {record.total_steps}"
    if record.predicted_s is not None:
        sentence += f", expected to end in {show_span(max(0.0, record.predicted_s - now_s))}"
        if record.promised and record.deadline_s is not None:
            late_s = record.predicted_s - record.deadline_s
            sentence += f", {show_span(abs(late_s))} {'after' if late_s > 0 else 'before'} its deadline"
    if record.missed:
        sentence = f"{tell_missed(record.missed)}: {sentence}"
    return Explanation(MISSED if record.missed else "running", sentence, "", tell_facts(record, events, now_s))


def tell_facts(record: JobRecord, events: list[EventRecord], now_s: float) -> tuple[str, ...]:
    """The answer it got, and the last things that happened to it."""
    kinds = {"grows", "shrinks", "moves", "placed", "suspended", "faulted", "at_risk", "missed", "lost", "warned"}
    last = [event for event in events if event.kind in kinds][-3:]
    told: list[tuple[float, str]] = []
    if record.active and record.sentence and not record.missed:  # what was promised is not a fact any more once missed
        answered_s = record.submitted_s if record.answered_s is None else record.answered_s
        told.append((answered_s, tell_answer(record, now_s)))
    told += [(event.at_s, f"{show_span(max(0.0, now_s - event.at_s))} ago: {event.sentence}") for event in last]
    return tuple(sentence for _, sentence in sorted(told, key=lambda one: one[0]))


def tell_answer(record: JobRecord, now_s: float) -> str:
    """The answer it got, and when: the plan in it was that of then, and plans are made anew."""
    ago_s = 0.0 if record.answered_s is None else now_s - record.answered_s
    return f"{show_span(ago_s)} ago: {record.sentence}" if ago_s >= 1 else record.sentence


def tell_remedy(kind: str, ref: str) -> str:
    """What to do about a condition."""
    if kind == "at_risk":
        return "it may take free and best-effort devices by itself; cancel best-effort jobs, or add devices"
    if kind == "stalled":
        return f"see what it does: springtide logs {ref}"
    if kind == "inputs_changed":
        return f"if what it has learned from them is worthless: springtide cancel {ref}"
    if kind == "lagging":
        return "see what else runs there: springtide nodes; or leave the machine: springtide nodes drain NODE"
    if kind == "checkpoint_failing":
        return "free disk space: springtide du, springtide gc"
    return ""


def write_explanation(record: JobRecord, told: Explanation, facts: Iterable[str]) -> dict[str, Any]:
    """An explanation as a document, with those facts that are not empty."""
    return {
        "schema": 1,
        "job": record.id,
        "name": record.name,
        "state": str(record.state),
        "reason": told.reason,
        "sentence": told.sentence,
        "remedy": told.remedy,
        "facts": [*filter(None, facts)],
    }
