"""`springtide` on clusters of several device types: one pool of devices per type, and every promise inside one pool.

A pool is a small homogeneous world: its nodes, the jobs promised there with their speeds on that type, and the
planning, rehearsal and proof of `promises`. So no promise ever rests on two types, and late_admitted stays 0 by the
same argument. A job without an answer is tried in every pool its level allows, the fastest first. What the promises
leave over is shared out among best-effort jobs over all types (`guests`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Changes, Decision, JobView, Snapshot, Status
from springtide.core.devices import Devices, count_devices
from springtide.core.jobs import Job, JobId
from springtide.placement.loose import hold_loosely
from springtide.placement.pools import Pool, pools_of
from springtide.policies.elasticflow import BEST_EFFORT
from springtide.policies.guests import share_out
from springtide.policies.ledgers import Ledger
from springtide.policies.promises import Caution, Draft, Propose, decide_firmly

OPEN = (Status.PENDING, Status.WAITLISTED)
MEMORY = "pools"  # key in the policy's memory: {kind: what the pool's own planning remembers}


@dataclass(slots=True)
class Books:
    """What one decision leaves to the next: the ledger of each pool, and each job as a pool saw it."""

    ledgers: dict[str, Ledger] = field(default_factory=dict)
    seen: dict[tuple[str, JobId], tuple[JobView, JobView]] = field(default_factory=dict)


@dataclass(slots=True)
class Table:
    """One decision in the making."""

    now_s: float
    snapshot: Snapshot
    books: Books
    decisions: dict[str, Decision] = field(default_factory=dict)
    admitted: dict[JobId, str] = field(default_factory=dict)

    @property
    def memory(self) -> Mapping[str, Any]:
        """What each pool remembers."""
        remembered: Mapping[str, Any] = self.snapshot.memory.get(MEMORY, {})
        return remembered


def is_mixed(snapshot: Snapshot) -> bool:
    """Whether devices are of several types and jobs know it."""
    return len(snapshot.cluster.device_types) > 1 and any(view.job.typed for view in snapshot.jobs.values())


def decide_pools(now_s: float, snapshot: Snapshot, propose: Propose) -> Decision:
    """Promises within the pools, then best-effort jobs over all of them."""
    old = snapshot.cache if isinstance(snapshot.cache, Books) else Books()
    table = Table(now_s, snapshot, Books(dict(old.ledgers), old.seen))
    for pool in order_pools(snapshot):
        table.decisions[pool.kind] = decide_pool(table, pool, propose)
    return conclude(table)


def order_pools(snapshot: Snapshot) -> list[Pool]:
    """The pools, those first whose devices are the fastest for the jobs that wait for an answer."""
    waiting = [view.job for view in snapshot.jobs.values() if view.status in OPEN and not view.job.best_effort]
    return sorted(pools_of(snapshot.cluster), key=lambda pool: -sum(relative_speed(job, pool.kind) for job in waiting))


def relative_speed(job: Job, kind: str) -> float:
    """The speed of one device of a type beside the job's fastest type; 0 where it cannot run."""
    if job.typed is None or kind not in job.typed.curves:
        return 0.0
    curve, best = job.typed.curves[kind], job.typed.curves[job.typed.fastest]
    return curve.rates[0] / curve.shares[0] / (best.rates[0] / best.shares[0])


def decide_pool(table: Table, pool: Pool, propose: Propose) -> Decision:
    """What a pool decides on its own; candidates it admits are not shown to the pools after it."""
    inside = look_inside(table, pool)
    decision = decide_firmly(table.now_s, inside, partial(leave_growth, propose, is_crowded(table.snapshot)))
    for job_id in decision.promises:
        if inside.jobs[job_id].status in OPEN:
            table.admitted[job_id] = pool.kind
    assert isinstance(decision.cache, Ledger)
    table.books.ledgers[pool.kind] = decision.cache
    return decision


def leave_growth(propose: Propose, crowded: bool, ledger: Ledger, inside: Snapshot, caution: Caution) -> Draft:
    """A pool's proposal; promised jobs grow into spare devices only if no best-effort job wants them."""
    draft = propose(ledger, inside, caution)
    if crowded:
        draft.patience = inf
    return draft


def is_crowded(snapshot: Snapshot) -> bool:
    """Whether there are best-effort jobs."""
    return any(view.job.best_effort for view in snapshot.jobs.values())


def look_inside(table: Table, pool: Pool) -> Snapshot:
    """The world as a pool sees it: its own nodes, who is promised or holds devices there, and who wants to."""
    snapshot = table.snapshot
    jobs: dict[JobId, JobView] = {}
    for job_id, view in snapshot.jobs.items():
        found = find_view(table, pool, view)
        if found is not None:
            jobs[job_id] = found
    free = tuple([snapshot.free_masks[node] for node in pool.nodes])
    finished = Changes(snapshot.changes.finished)
    memory = table.memory.get(pool.kind, {})
    return Snapshot(pool.cluster, jobs, free, finished, memory, table.books.ledgers.get(pool.kind))


def find_view(table: Table, pool: Pool, view: JobView) -> JobView | None:
    """A job as a pool sees it, None if it has no business there; the same object as long as nothing changes."""
    if not belongs(table, pool, view):
        return None
    key = (pool.kind, view.job.id)
    known = table.books.seen.get(key)
    if known is None or known[0] is not view:
        known = table.books.seen[key] = (view, narrow_view(pool, view))
    return known[1]


def belongs(table: Table, pool: Pool, view: JobView) -> bool:
    """Whether a job is promised in a pool, holds devices there, or waits for an answer and could get it there."""
    job = view.job
    if view.promise is not None and view.promise.kind == pool.kind:
        return True
    if view.mix and view.mix.get(pool.kind):
        return True
    may_ask = view.status in OPEN and not job.best_effort and job.id not in table.admitted
    return may_ask and job.typed is not None and pool.kind in job.typed.curves


def narrow_view(pool: Pool, view: JobView) -> JobView:
    """A job inside a pool: at its speeds on that type, with the devices it holds there.

    Without a promise there it is a guest: it may keep what it holds, as long as nobody needs it.
    """
    devices = pool.narrow(view.devices)
    share = count_devices(devices)
    job, promise = view.job, view.promise
    assert job.typed is not None
    if promise is not None and promise.kind == pool.kind:
        own = replace(job, curve=job.typed.curves[pool.kind], typed=None)
        return replace(view, job=own, devices=devices, share=share, promise=replace(promise, kind=""), mix=None)
    if share:
        own = replace(job, curve=hold_curve(share, view.progress.rate), deadline_s=inf, typed=None)
        return replace(view, job=own, devices=devices, share=share, promise=None, mix=None)
    return replace(view, job=replace(job, curve=job.typed.curves[pool.kind], typed=None), answer_by_s=inf)


def hold_curve(share: int, rate: float) -> Curve:
    """What a guest may hold in a pool: as much as now, or one device."""
    return Curve((1,), (rate,)) if share == 1 else Curve((1, share), (rate / share, rate))


def conclude(table: Table) -> Decision:
    """All pools' decisions as one, with devices for the best-effort jobs."""
    answers = answer_all(table)
    allocations = allocate(table, answers)
    promises = {
        job_id: replace(promise, kind=kind)
        for kind, decision in table.decisions.items()
        for job_id, promise in decision.promises.items()
    }
    reasons = {job_id: text for decision in table.decisions.values() for job_id, text in decision.reasons.items()}
    wake_at_s = min(decision.wake_at_s for decision in table.decisions.values())
    return Decision(
        answers=answers,
        promises=promises,
        allocations=allocations,
        reasons=reasons,
        wake_at_s=wake_at_s,
        memory=remember(table),
        cache=forget(table.books, table.snapshot),
    )


def remember(table: Table) -> dict[str, Any] | None:
    """The memory of all pools; None if none of them has learnt anything."""
    news = {kind: decision.memory for kind, decision in table.decisions.items() if decision.memory is not None}
    return {**table.snapshot.memory, MEMORY: {**table.memory, **news}} if news else None


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
    mixes = share_out(table.now_s, guests, cluster.totals, count_free(free, cluster.node_types))
    own = {job_id: held.get(job_id, snapshot.jobs[job_id].devices) for job_id in mixes}
    return hold_loosely(cluster, free, own, mixes)


def count_free(free: Iterable[int], node_types: Iterable[str]) -> dict[str, int]:
    """How many devices of each type are free."""
    counts: dict[str, int] = {}
    for mask, kind in zip(free, node_types, strict=True):
        counts[kind] = counts.get(kind, 0) + mask.bit_count()
    return counts
