"""Who is told of an event, and how often that is tried. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from springtide.control.storage.records import EventRecord, JobRecord, NoticeRecord
from springtide.core.job_file_parts.job_sections import Notice
from springtide.core.job_states import ENDED, JobState

AT_ONCE = 16
#: Of one owner: four whose addresses are dead take all places, and others wait for one of theirs to be given up.
OF_EACH = 4
MOST_TRIES = 6
#: Seconds before the next try; after the last one it is given up.
PAUSES_S = (2.0, 10.0, 60.0, 300.0, 1800.0)
ENDINGS = frozenset(str(state) for state in ENDED)


def decide_notices(events: Iterable[EventRecord], jobs: Mapping[str, JobRecord]) -> list[NoticeRecord]:
    """What is to be told of events that are about to be stored; to each address of a job once for each event."""
    return [
        NoticeRecord(record.id, event.at_s, notice.model_dump(mode="json", exclude_none=True), body, due_s=event.at_s)
        for event in events
        if event.job is not None and (record := jobs.get(event.job)) is not None and not record.measure_only
        for notice in find_notices(record, event.kind)
        for body in [write_body(record, event)]
    ]


def find_notices(record: JobRecord, kind: str) -> Iterator[Notice]:
    """The entries of a job's file that want to hear of a kind of event."""
    for notice in record.spec.notify:
        if kind in notice.on or ("ended" in notice.on and kind in ENDINGS):
            yield notice


def write_body(record: JobRecord, event: EventRecord) -> dict[str, object]:
    """What is told: what happened, to which job, and where that stands."""
    return {
        "schema": 1,
        "event": event.kind,
        "sentence": event.sentence,
        "at_s": event.at_s,
        "job": record.id,
        "name": record.name,
        "user": record.user,
        "state": str(record.state),
        "ended": record.state in ENDED,
        "succeeded": record.state is JobState.SUCCEEDED,
        "step": record.step,
        "total_steps": record.total_steps,
        "labels": record.spec.labels,
    }


def tell_failure(notice: NoticeRecord) -> str:
    """That a notice has not arrived, why, and whether that is tried again; nothing where it has, or was not tried."""
    if not notice.said or notice.state == "sent":
        return ""
    way = next((name for name in ("webhook", "email", "command") if notice.way.get(name)), "notify")
    count = f"{notice.tries} {'try' if notice.tries == 1 else 'tries'}"
    rest = "it was given up" if notice.state == "given_up" else "it is tried again"
    return f"its notice of {notice.body.get('event')} by {way} has not arrived after {count}: {notice.said}; {rest}"


def is_news(notice: NoticeRecord) -> bool:
    """Whether a try changed what is known: the first that failed, and the last."""
    return bool(notice.said) and (notice.tries == 1 or notice.state == "given_up")


def note_try(notice: NoticeRecord, problem: str, now_s: float) -> NoticeRecord:
    """A notice after a try that went well (no problem) or not."""
    tries = notice.tries + 1
    if not problem:
        return replace(notice, state="sent", tries=tries, said="")
    if tries >= MOST_TRIES:
        return replace(notice, state="given_up", tries=tries, said=problem)
    return replace(notice, tries=tries, said=problem, due_s=now_s + PAUSES_S[tries - 1])


def choose_next(
    waiting: Sequence[tuple[int, str]], under_way: Sequence[str], turns: Mapping[str, int]
) -> list[tuple[int, str]]:
    """Which of the notices that wait are told now: numbers with owners, as those that are under way are owners.

    Owners take turns: first who has the fewest under way, then whose last turn is the longest ago.
    """
    counts, placed = Counter(under_way), []
    for seq, owner in waiting:
        if counts[owner] < OF_EACH:
            placed.append((counts[owner], turns.get(owner, 0), seq, owner))
            counts[owner] += 1
    return [(seq, owner) for _, _, seq, owner in sorted(placed)[: AT_ONCE - len(under_way)]]
