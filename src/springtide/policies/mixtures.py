"""`springtide` on clusters of several device types: what the pools promise, and the rest for best-effort jobs.

Puts the decisions of the pools together into one: answers, promises with their type, and devices. What promises leave
over is shared out among best-effort jobs over all types (`guests`). On a cluster of one type it has no part.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from springtide.core.decisions import Answer, Decision, JobView, Promise, Snapshot, Status
from springtide.core.devices import Devices
from springtide.core.jobs import JobId
from springtide.placement.loose import hold_loosely
from springtide.placement.pools import pools_of
from springtide.policies.elasticflow import BEST_EFFORT, PROMISED
from springtide.policies.guests import share_out
from springtide.policies.parts import widen_promise
from springtide.policies.pools import MEMORY, Books, Table, deal
from springtide.policies.promises import Propose
from springtide.policies.spans import bridge
from springtide.policies.transfers import list_pressing, make_way

ASKERS = 2  # jobs for which others are asked to change their pool, per decision


def is_mixed(snapshot: Snapshot) -> bool:
    """Whether all jobs have speeds by device type; there may be devices of one type only, while others are drained."""
    return bool(snapshot.jobs) and all(view.job.typed is not None for view in snapshot.jobs.values())


def decide_pools(now_s: float, snapshot: Snapshot, propose: Propose) -> Decision:
    """Promises within the pools, then best-effort jobs over all of them."""
    table = deal(now_s, snapshot, propose, {}, {})
    for job_id in list_pressing(table)[:ASKERS]:
        table = make_way(table, job_id, propose) or bridge(table, job_id, propose) or table
    return conclude(table)


def conclude(table: Table) -> Decision:
    """All pools' decisions as one, with devices for the best-effort jobs."""
    answers = answer_all(table)
    allocations = allocate(table, answers)
    reasons = {job_id: text for decision in table.decisions.values() for job_id, text in decision.reasons.items()}
    wake_at_s = min(decision.wake_at_s for decision in table.decisions.values())
    return Decision(
        answers=answers,
        promises=join_promises(table),
        allocations=allocations,
        reasons=reasons,
        wake_at_s=wake_at_s,
        memory=remember(table),
        cache=forget(table.books, table.snapshot),
    )


def join_promises(table: Table) -> dict[JobId, Promise]:
    """All pools' promises, each with its type; of one that spans types the plan of the pool that decided last."""
    promises = {}
    for kind, decision in table.decisions.items():
        for job_id, promise in decision.promises.items():
            mix = table.mix_of(job_id)
            job = table.snapshot.jobs[job_id].job
            promises[job_id] = replace(promise, kind=kind) if mix is None else widen_promise(job, mix, promise)
    return promises


def remember(table: Table) -> dict[str, Any] | None:
    """The memory with what the first pool has learnt; None if it has learnt nothing."""
    news = table.decisions[table.first].memory
    return None if news is None else {**table.snapshot.memory, MEMORY: {**table.memory, table.first: news}}


def forget(books: Books, snapshot: Snapshot) -> Books:
    """The books without jobs that have ended."""
    if any(job_id not in snapshot.jobs for _, job_id in books.seen):
        books.seen = {key: known for key, known in books.seen.items() if key[1] in snapshot.jobs}
    return books


def answer_all(table: Table) -> dict[JobId, Answer]:
    """One answer for each job that gets one: of the pool that admits it, else of all pools together."""
    heard: dict[JobId, list[Answer]] = {}
    for decision in table.decisions.values():
        for job_id, answer in decision.answers.items():
            heard.setdefault(job_id, []).append(answer)
    answers = {job_id: join_answers(table, job_id, given) for job_id, given in heard.items()}
    for job_id, view in table.snapshot.jobs.items():
        if view.status is Status.PENDING and view.job.best_effort:
            answers[job_id] = BEST_EFFORT
    answers |= dict.fromkeys(table.spans, PROMISED)
    return {job_id: answer for job_id, answer in answers.items() if answer is not None}


def join_answers(table: Table, job_id: JobId, given: list[Answer]) -> Answer | None:
    """The best of the answers; a job is declined only if all pools that could run it have declined it."""
    for answer in given:
        if answer.status is Status.ADMITTED:
            return answer
    waiting = [answer for answer in given if answer.status is Status.WAITLISTED]
    if waiting:
        return max(waiting, key=lambda answer: answer.answer_by_s)
    view = table.snapshot.jobs[job_id]
    typed = view.job.typed
    asked = sum(kind in typed.curves for kind in table.decisions) if typed is not None else 0
    if len(given) < asked:
        return None  # one of them lets it wait on
    return join_refusals(given)


def join_refusals(given: list[Answer]) -> Answer:
    """A refusal for want of room if room was what one pool lacked, with the best offers of all."""
    told = next((answer for answer in given if answer.reason == "no_room"), given[0])
    offers = [offer for answer in given for offer in answer.offers]
    best = [
        *sorted(offers, key=lambda offer: (-offer.work, offer.deadline_s))[:1],
        *sorted(offers, key=lambda offer: (offer.deadline_s, -offer.work))[:1],
    ]
    return replace(told, offers=tuple(dict.fromkeys(best)))


def allocate(table: Table, answers: Mapping[JobId, Answer]) -> dict[JobId, Devices]:
    """The devices of every job for which they change: as the pools decided, and best-effort jobs on what is left."""
    snapshot = table.snapshot
    pools = pools_of(snapshot.cluster)
    parts = {pool.kind: {j: pool.widen(d) for j, d in table.decisions[pool.kind].allocations.items()} for pool in pools}
    for job_id in table.moves:
        for part in parts.values():
            part.setdefault(job_id, ())
    held: dict[JobId, Devices] = {}
    for job_id in {job_id: None for part in parts.values() for job_id in part}:
        pieces = [part.get(job_id, _part(snapshot, job_id, kind)) for kind, part in parts.items()]
        held[job_id] = tuple(sorted(piece for devices in pieces for piece in devices))
    guests = [view for view in list_guests(snapshot) if answers.get(view.job.id, BEST_EFFORT).status is Status.ADMITTED]
    if guests:
        held |= seat_guests(table, guests, held)
    return {job_id: devices for job_id, devices in held.items() if devices != snapshot.jobs[job_id].devices}


def _part(snapshot: Snapshot, job_id: JobId, kind: str) -> Devices:
    types = snapshot.cluster.node_types
    return tuple(piece for piece in snapshot.jobs[job_id].devices if types[piece.node] == kind)


def list_guests(snapshot: Snapshot) -> list[JobView]:
    """The best-effort jobs, by priority, then in arrival order."""
    views = [view for view in snapshot.jobs.values() if view.job.best_effort and view.job.typed is not None]
    return sorted(views, key=lambda view: (-view.job.priority, view.job.index))


def seat_guests(table: Table, guests: Iterable[JobView], held: Mapping[JobId, Devices]) -> dict[JobId, Devices]:
    """Devices for the best-effort jobs, of what the promised jobs do not hold; nobody else is moved for them."""
    snapshot = table.snapshot
    cluster, guests = snapshot.cluster, list(guests)
    free = list(cluster.full_masks)
    names = {view.job.id for view in guests}
    for job_id, view in snapshot.jobs.items():
        if job_id not in names:
            for node, mask in held.get(job_id, view.devices):
                free[node] &= ~mask
    mixes = share_out(table.now_s, guests, count_free(free, cluster.node_types))
    own = {job_id: held.get(job_id, snapshot.jobs[job_id].devices) for job_id in mixes}
    return hold_loosely(cluster, free, own, mixes)


def count_free(free: Iterable[int], node_types: Iterable[str]) -> dict[str, int]:
    """How many devices of each type are free."""
    counts: dict[str, int] = {}
    for mask, kind in zip(free, node_types, strict=True):
        counts[kind] = counts.get(kind, 0) + mask.bit_count()
    return counts
